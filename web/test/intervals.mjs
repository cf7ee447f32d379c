// Means of a few runs, with confidence intervals.

/** Student's t for 95 %, two-sided, by degrees of freedom from 1 on. */
const T = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
  2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/** Beyond the table, the first terms of the expansion, exact to three decimals there. */
const studentsT = (freedom) => T[freedom - 1] ?? 1.96 + 2.372 / freedom;

/** `{ mean, half }`: the mean lies within `mean ± half` with 95 %; `half` is NaN for less than two values. */
export function interval(values) {
  const n = values.length;
  const mean = values.reduce((sum, value) => sum + value, 0) / n;
  if (n < 2) return { mean, half: NaN };
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1);
  return { mean, half: studentsT(n - 1) * Math.sqrt(variance / n) };
}

/** The same for `a` minus `b`, paired by run, which removes the variation between runs. Both are maps by run. */
export function difference(a, b) {
  return interval([...a].filter(([run]) => b.has(run)).map(([run, value]) => value - b.get(run)));
}
