-- How many sessions of each group have about the same metric, eight bins to its double, and what these have in sum.
-- The millionth keeps powers of two off the edges of bins, where logarithms of different engines may differ.
WITH taken AS (
{taken}),
binned AS (
  SELECT g, CAST(FLOOR(8 * LOG2(CAST(GREATEST(m, 0) + 1 AS DOUBLE)) + 0.000001) AS BIGINT) AS k, a, b, c, d FROM taken
)
SELECT g AS user_group, k AS bin, CAST(COUNT(*) AS BIGINT) AS n,
       SUM(a) AS goodput, SUM(b) AS open_rate, SUM(c) AS flight, SUM(d) AS win
FROM binned
GROUP BY g, k
ORDER BY user_group, bin
