import assert from 'node:assert/strict';
import test from 'node:test';
import { difference, interval } from './intervals.mjs';

const near = (is, expected) => assert.ok(Math.abs(is - expected) < 1e-3, `${is}, not ${expected}`);

test('the interval of a mean is Student’s', () => {
  const { mean, half } = interval([1, 2, 3, 4, 5]);
  near(mean, 3);
  // 2.776 × √(2.5 ÷ 5)
  near(half, 1.963);
});

test('one value has a mean and no interval', () => {
  const { mean, half } = interval([7]);
  assert.equal(mean, 7);
  assert.ok(Number.isNaN(half));
});

test('many values approach the normal distribution', () => {
  const values = Array.from({ length: 10_000 }, (_, i) => i % 2);
  near(interval(values).half, 1.96 * 0.5 / 100);
});

test('a difference is paired over common runs', () => {
  const a = new Map([[1, 10], [2, 20], [3, 31], [4, 99]]);
  const b = new Map([[1, 9], [2, 18], [3, 28], [5, 0]]);
  const { mean, half } = difference(a, b);
  near(mean, 2);
  // 4.303 × √(1 ÷ 3)
  near(half, 2.484);
});
