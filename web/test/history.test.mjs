import assert from 'node:assert/strict';
import test from 'node:test';
import { History } from '../src/history.js';

test('only the last ten minutes stay', () => {
  const history = new History(600);
  for (let t = 0; t < 5000; t++) history.push(t, { a: t });
  const [times, a] = history.data;
  assert.deepEqual([times[0], times.at(-1), times.length], [4399, 4999, 601]);
  assert.deepEqual(a, times);
});

test('the number of points is limited at any rate', () => {
  const history = new History(10);
  for (let i = 0; i < 1000; i++) history.push(i / 1000, { a: i });
  assert.equal(history.length, 20);
});

test('a later series is empty before, and a vanished one is dropped when empty', () => {
  const history = new History(5);
  history.push(1, { old: 1 });
  history.push(2, { old: 2, late: 20 });
  assert.deepEqual(history.names, ['old', 'late']);
  assert.deepEqual(history.data, [[1, 2], [1, 2], [null, 20]]);
  for (let t = 3; t < 9; t++) history.push(t, { late: t });
  assert.deepEqual(history.names, ['late']);
  assert.equal(history.data.length, 2);
});

test('the number of series is limited', () => {
  const history = new History(600, 3, 8);
  for (let i = 0; i < 100; i++) history.push(i, { [`cohort ${i}`]: 1, steady: 2 });
  assert.equal(history.names.length, 8);
  for (const column of history.data) assert.equal(column.length, history.length);
});

test('a pause in the data breaks the line', () => {
  const history = new History(600, 3);
  history.push(1, { a: 1 });
  history.push(2, { a: 2 });
  history.push(60, { a: 3 });
  const [times, a] = history.data;
  assert.deepEqual(a, [1, 2, null, 3]);
  assert.ok(times[2] > 2 && times[2] < 60);
});

test('a clock step back replaces values in its future; a jump ahead starts again', () => {
  const history = new History(600);
  for (let t = 100; t < 110; t++) history.push(t, { a: t });
  history.push(105, { a: -1 });
  assert.deepEqual(history.data[0], [100, 101, 102, 103, 104, 105]);
  assert.equal(history.data[1].at(-1), -1);
  history.push(100_000, { a: 7 });
  assert.deepEqual(history.data, [[100_000], [7]]);
});

test('invalid values are gaps, and points without a time are ignored', () => {
  const history = new History();
  history.push(1, { a: null, b: undefined, c: 'x' });
  history.push(NaN, { a: 1 });
  history.push(undefined, { a: 1 });
  assert.deepEqual(history.data, [[1], [null], [null], [null]]);
});

test('the time axis starts at the first value and grows up to ten minutes', () => {
  const history = new History(600);
  for (let t = 1000; t < 1100; t++) history.push(t, { a: null });
  history.push(1100, { a: 1, b: null });
  assert.deepEqual(history.span(), [1100, 1130]);
  for (let t = 1101; t <= 1200; t++) history.push(t, { a: t, b: null });
  assert.deepEqual(history.span(), [1100, 1200]);
  for (let t = 1201; t <= 2000; t++) history.push(t, { a: t, b: null });
  assert.deepEqual(history.span(), [1400, 2000]);
});

test('the time axis of an empty chart ends at the last event', () => {
  const history = new History(600);
  for (let t = 1000; t <= 1100; t++) history.push(t, { a: null });
  assert.deepEqual(history.span(), [1070, 1100]);
});
