-- Counts and sums the sessions of each group in logarithmic bins of the metric, eight per octave.
-- The millionth moves powers of two away from bin edges, where engines' logarithms may disagree.
WITH eligible AS (
{eligible}),
binned AS (
  SELECT g,
         CAST(FLOOR(8 * LOG2(CAST(GREATEST(m, 0) + 1 AS DOUBLE)) + 0.000001) AS BIGINT) AS k,
         a, b, c, d
  FROM eligible
)
SELECT g AS user_group, k AS bin, CAST(COUNT(*) AS BIGINT) AS n,
       SUM(a) AS goodput, SUM(b) AS open_rate, SUM(c) AS flight, SUM(d) AS win
FROM binned
GROUP BY g, k
ORDER BY user_group, bin
