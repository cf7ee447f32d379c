-- Selects the sessions between two percentiles of each group from any number of histograms. Bins
-- that the band splits count in proportion. Weights and sums are scaled by 100.
WITH summed AS (
  SELECT user_group AS g, bin AS k, SUM(n) AS z,
         SUM(goodput) AS a, SUM(open_rate) AS b, SUM(flight) AS c, SUM(win) AS d
  FROM histograms
  GROUP BY user_group, bin
),
cumulative AS (
  SELECT g, z, a, b, c, d,
         CAST(SUM(z) OVER (
           PARTITION BY g ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
         ) AS BIGINT) AS upto,
         CAST(SUM(z) OVER (PARTITION BY g) AS BIGINT) AS total
  FROM summed
),
overlapping AS (
  SELECT g, total, z, a, b, c, d,
         LEAST(upto * 100, total * {to}) - GREATEST((upto - z) * 100, total * {from}) AS w
  FROM cumulative
)
SELECT g AS user_group, MIN(total) AS among, SUM(w) AS weight,
       SUM(CAST(FLOOR(
         CAST(a AS DOUBLE) * CAST(w AS DOUBLE) / CAST(z AS DOUBLE)
       ) AS BIGINT)) AS goodput,
       SUM(CAST(FLOOR(
         CAST(b AS DOUBLE) * CAST(w AS DOUBLE) / CAST(z AS DOUBLE)
       ) AS BIGINT)) AS open_rate,
       SUM(CAST(FLOOR(
         CAST(c AS DOUBLE) * CAST(w AS DOUBLE) / CAST(z AS DOUBLE)
       ) AS BIGINT)) AS flight,
       SUM(CAST(FLOOR(
         CAST(d AS DOUBLE) * CAST(w AS DOUBLE) / CAST(z AS DOUBLE)
       ) AS BIGINT)) AS win
FROM overlapping
WHERE w > 0
GROUP BY g
ORDER BY user_group
