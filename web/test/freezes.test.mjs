import assert from 'node:assert/strict';
import test from 'node:test';
import { ASLEEP_MS, FreezeCounter } from '../src/freezes.js';

/** A counter with the first frame at 1000 ms, playing since 1100 ms. */
function playing() {
  const counter = new FreezeCounter();
  counter.waiting(0); // browsers fire it before anything has played
  counter.firstFrame(1000);
  counter.playing(1100);
  return counter;
}

const sums = (counter, now) => {
  const { freezes, freezeMs, playedMs } = counter.snapshot(now);
  return { freezes, freezeMs, playedMs };
};

test('startup is neither a freeze nor played time', () => {
  const counter = new FreezeCounter();
  counter.waiting(0);
  counter.waiting(400);
  assert.deepEqual(sums(counter, 900), { freezes: 0, freezeMs: 0, playedMs: 0 });
  counter.firstFrame(1000);
  counter.waiting(1050); // the first frame stays until the first `playing`: still startup
  counter.playing(1300);
  assert.deepEqual(sums(counter, 2000), { freezes: 0, freezeMs: 0, playedMs: 1000 });
});

test('a stall lasts from waiting to the next playing', () => {
  const counter = playing();
  counter.waiting(5000);
  counter.waiting(5100); // repeated: the same stall
  counter.playing(6500);
  assert.deepEqual(sums(counter, 8000), { freezes: 1, freezeMs: 1500, playedMs: 5500 });
});

test('a stall in progress counts once it is a freeze', () => {
  const counter = playing();
  counter.waiting(5000);
  assert.deepEqual(sums(counter, 5199), { freezes: 0, freezeMs: 0, playedMs: 4199 });
  assert.deepEqual(sums(counter, 5200), { freezes: 1, freezeMs: 200, playedMs: 4000 });
  assert.equal(counter.frozen, true);
});

test('pseudo-stalls below 200 ms are played time, and every threshold is kept', () => {
  const counter = playing();
  let now = 2000;
  for (const length of [42, 199, 200, 600, 1250]) {
    counter.waiting(now);
    counter.playing(now + length);
    now += length + 1000;
  }
  const { stalls, freezes, freezeMs, playedMs } = counter.snapshot(now);
  assert.deepEqual(stalls.map(({ count }) => count), [5, 3, 2, 1]);
  assert.deepEqual(stalls.map(({ ms }) => ms), [2291, 2050, 1850, 1250]);
  assert.deepEqual([freezes, freezeMs, playedMs + freezeMs], [3, 2050, now - 1000]);
});

test('nothing counts between the end and the next start', () => {
  const counter = playing();
  counter.waiting(5000);
  counter.stop(5500);
  assert.deepEqual(sums(counter, 60_000), { freezes: 1, freezeMs: 500, playedMs: 4000 });
  counter.waiting(61_000); // startup of the next attempt
  counter.firstFrame(62_000);
  counter.playing(62_100);
  assert.deepEqual(sums(counter, 63_000), { freezes: 1, freezeMs: 500, playedMs: 5000 });
});

test('a broken connection freezes the picture until it plays again', () => {
  const counter = playing();
  counter.waiting(5000); // the connection broke
  counter.firstFrame(6800); // of the next connection
  counter.playing(7000);
  assert.deepEqual(sums(counter, 8000), { freezes: 1, freezeMs: 2000, playedMs: 5000 });
});

test('the watchdog finds a stall without waiting, back-dated', () => {
  const counter = playing();
  for (let now = 1250; now <= 4000; now += 250) counter.tick(now, (now - 1100) / 1000);
  for (let now = 4250; now < 5250; now += 250) counter.tick(now, 2.9);
  assert.equal(counter.frozen, false);
  counter.tick(5250, 2.9); // stopped since 4000
  assert.equal(counter.frozen, true);
  counter.playing(6000);
  assert.deepEqual(sums(counter, 6000), { freezes: 1, freezeMs: 2000, playedMs: 3000 });
});

test('the watchdog ends a stall without `playing`', () => {
  const counter = playing();
  counter.tick(4750, 3);
  counter.waiting(5000);
  counter.tick(5000, 3.1); // the last of the buffer: one advance alone ends nothing
  counter.tick(5250, 3.1);
  counter.tick(5500, 3.1);
  assert.equal(counter.frozen, true);
  counter.tick(5750, 3.2);
  counter.tick(6000, 3.45);
  assert.equal(counter.frozen, false);
  assert.deepEqual(sums(counter, 6000), { freezes: 1, freezeMs: 750, playedMs: 4250 });
});

test('a suspended page did not freeze, a throttled one played', () => {
  const asleep = playing();
  asleep.tick(2000, 0.9);
  asleep.tick(2000 + 8 * 3_600_000, 0.9);
  assert.deepEqual(sums(asleep, 2000 + 8 * 3_600_000), { freezes: 0, freezeMs: 0, playedMs: 1000 });
  const throttled = playing();
  throttled.tick(2000, 0.9);
  throttled.tick(2000 + 6 * ASLEEP_MS, 0.9 + 60);
  assert.deepEqual(sums(throttled, 2000 + 6 * ASLEEP_MS), { freezes: 0, freezeMs: 0, playedMs: 61_000 });
});

test('for all events, sums neither shrink nor exceed the elapsed time', () => {
  for (let seed = 1; seed <= 200; seed++) {
    let state = seed;
    const random = (below) => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return (state >>> 8) % below;
    };
    const counter = new FreezeCounter();
    let now = 0;
    let media = 0;
    let before = sums(counter, now);
    for (let step = 0; step < 300; step++) {
      now += random(700);
      media += random(2) ? random(700) / 1000 : 0;
      [() => counter.playing(now), () => counter.waiting(now), () => counter.firstFrame(now), () => counter.tick(now, media), () => counter.tick(now, media), () => random(8) || counter.stop(now)][random(6)]();
      const after = sums(counter, now);
      assert.ok(after.freezes >= 0 && after.freezeMs >= 0 && after.playedMs >= 0, `seed ${seed} step ${step}`);
      assert.ok(after.playedMs + after.freezeMs >= before.playedMs + before.freezeMs, `seed ${seed} step ${step}`);
      assert.ok(after.playedMs + after.freezeMs <= now, `seed ${seed} step ${step}`);
      before = after;
    }
  }
});
