import assert from 'node:assert/strict';
import test from 'node:test';
import { FreezeCounter } from '../src/freezes.js';
import { Minute, WINDOW_MS } from '../src/minute.js';
import { parseWall } from '../src/wall.js';

test('players have names and origins, and shared parameters', () => {
  const wall = parseWall('?stream=live/a&buffer_ms=300&player=arq=https://127.0.0.1:5000&player=spare=https://a.test/&token=x');
  assert.deepEqual(wall.players, [{ name: 'arq', origin: 'https://127.0.0.1:5000' }, { name: 'spare', origin: 'https://a.test' }]);
  assert.equal(wall.bufferMs, 300);
  assert.deepEqual([wall.target.stream, wall.target.protocol, `${wall.target.query}`], ['live/a', 'flv', 'token=x']);
  assert.equal(parseWall('?player=a=https://b.test').bufferMs, 800);
});

test('errors name the invalid parameter', () => {
  const said = (search) => {
    try {
      parseWall(search);
    } catch (error) {
      return error.message;
    }
    return assert.fail(search);
  };
  assert.match(said(''), /^player occurs 0 times/);
  assert.match(said(`?${'player=a=https://b.test&'.repeat(9)}`), /^player occurs 9 times/);
  for (const player of ['arq', '=https://b.test', 'a=http://b.test', 'a=https://b.test/path', 'a=https://b.test/?q', 'a=https://b.test/#x', 'a=https://me@b.test', ' =https://b.test', 'a=javascript:alert(1)', 'a=nowhere']) {
    assert.match(said(`?player=${encodeURIComponent(player)}`), /^player is/, player);
  }
  for (const buffer of ['', 'x', '99', '10001', '-1']) assert.match(said(`?buffer_ms=${buffer}&player=a=https://b.test`), /^buffer_ms/, buffer);
  assert.match(said('?stream=../x&player=a=https://b.test'), /^stream “.*” is invalid/);
  for (const protocol of ['hls', 'rtmp']) assert.match(said(`?protocol=${protocol}&player=a=https://b.test`), /^protocol /, protocol);
});

/** A strip's spans in milliseconds. */
const spans = (minute, now) => minute.spans(now).map(({ state, from, to }) => [state, ...[from, to].map((share) => Math.round(now - (1 - share) * WINDOW_MS))]);

test('the strip shows a freeze from its start, once it counts as one', () => {
  const minute = new Minute();
  assert.deepEqual(spans(minute, 100_000), []);
  assert.equal(minute.push(100_000, false, 0), false);
  minute.push(100_900, false, 0);
  minute.push(101_000, true, 0);
  // The picture freezes at 101,050, which counts after 200 ms.
  assert.equal(minute.push(101_200, true, 0), false);
  assert.deepEqual(spans(minute, 101_200), [['off', 100_000, 100_900], ['playing', 100_900, 101_200]]);
  assert.equal(minute.push(101_300, true, 250), true);
  assert.equal(minute.push(101_400, true, 350), true);
  assert.equal(minute.push(101_500, true, 350), false);
  assert.deepEqual(spans(minute, 101_500), [['off', 100_000, 100_900], ['playing', 100_900, 101_050], ['frozen', 101_050, 101_400], ['playing', 101_400, 101_500]]);
});

test('the red parts of the strip are as long as the counted frozen time', () => {
  const [minute, counter] = [new Minute(), new FreezeCounter()];
  counter.firstFrame(1000);
  counter.playing(1000);
  const events = new Map([[5_000, 'waiting'], [5_150, 'playing'], [9_030, 'waiting'], [9_600, 'playing'], [30_000, 'waiting'], [31_234, 'playing'], [40_010, 'waiting']]);
  for (let now = 1000; now <= 41_000; now += 1) {
    if (events.has(now)) counter[events.get(now)](now);
    if (now % 100 === 0) minute.push(now, true, counter.snapshot(now).freezeMs);
  }
  const red = spans(minute, 41_000).filter(([state]) => state === 'frozen').map(([, from, to]) => to - from);
  assert.deepEqual(red, [570, 1234, 990]);
  assert.equal(red.reduce((sum, ms) => sum + ms), counter.snapshot(41_000).freezeMs);
});

test('the strip drops spans older than a minute, and does not grow', () => {
  const minute = new Minute();
  for (let now = 0; now <= 300_000; now += 100) minute.push(now, true, 500 * Math.floor(now / 10_000) + Math.min(500, now % 10_000));
  const kept = spans(minute, 300_000);
  assert.ok(kept.length <= 14, `${kept.length} spans`);
  assert.equal(kept[0][1], 240_000);
  assert.equal(kept.at(-1)[2], 300_000);
});

test('a suspended page shows the elapsed time', () => {
  const minute = new Minute();
  minute.push(100_000, true, 0);
  minute.push(101_000, true, 0);
  minute.push(131_000, false, 0);
  assert.deepEqual(spans(minute, 131_000), [['playing', 100_000, 101_000], ['off', 101_000, 131_000]]);
});
