import assert from 'node:assert/strict';
import test from 'node:test';
import { behindHole } from '../src/engines.js';

const RANGES = [[0, 4.08], [4.227, 9]];

test('playback skips a gap that it has reached', () => {
  assert.equal(behindHole([], 1, 0), null);
  assert.equal(behindHole([[0, 4]], 4, 0), null);
  assert.equal(behindHole(RANGES, 3.9, 0), null, 'before it');
  assert.deepEqual(behindHole(RANGES, 4.05, 0), { start: 4.227, time: 4.227 });
  assert.deepEqual(behindHole(RANGES, 4.2, 0), { start: 4.227, time: 4.227 }, 'within it');
  assert.deepEqual(behindHole(RANGES, 4.5, 0), { start: 4.227, time: 4.5 }, 'audio has passed the gap');
  assert.equal(behindHole(RANGES, 9, 0), null, 'nothing is buffered after it');
});

test('a gap is skipped once', () => {
  assert.equal(behindHole(RANGES, 4.5, 4.227), null);
  assert.deepEqual(behindHole([...RANGES, [9.2, 12]], 9, 4.227), { start: 9.2, time: 9.2 });
});

test('a viewer that starts after a gap has not reached it', () => {
  const ranges = [[0, 1], [5, 6], [6.3, 9]];
  assert.equal(behindHole(ranges, 6.2, 5)?.start, 6.3);
  assert.equal(behindHole(ranges, 7, 6.3), null);
});
