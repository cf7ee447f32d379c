-- The sessions between two percentiles of each group, exactly: what mendcast_groups::select::choose finds. Only those
-- in bins (histogram.sql's) that an edge of the band runs through are put in order; of the others the bin says enough.
-- Sums are times 100, as those of merge.sql are.
WITH taken AS (
{taken}),
binned AS (
  SELECT g, s, m, CAST(FLOOR(8 * LOG2(CAST(GREATEST(m, 0) + 1 AS DOUBLE)) + 0.000001) AS BIGINT) AS k, a, b, c, d FROM taken
),
summed AS (
  SELECT g, k, CAST(COUNT(*) AS BIGINT) AS z, SUM(a) AS a, SUM(b) AS b, SUM(c) AS c, SUM(d) AS d FROM binned GROUP BY g, k
),
placed AS (
  SELECT g, k, z, a, b, c, d,
         CAST(SUM(z) OVER (PARTITION BY g ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS BIGINT) AS upto,
         CAST(SUM(z) OVER (PARTITION BY g) AS BIGINT) AS total
  FROM summed
),
edges AS (
  SELECT g AS h, k AS bin, upto - z AS below, total
  FROM placed
  WHERE upto * 100 > total * {from} AND (upto - z) * 100 < total * {to}
    AND NOT ((upto - z) * 100 >= total * {from} AND upto * 100 <= total * {to})
),
turns AS (
  SELECT g, total, a, b, c, d,
         below + CAST(ROW_NUMBER() OVER (PARTITION BY g, k ORDER BY m, s) AS BIGINT) AS place
  FROM binned JOIN edges ON g = h AND k = bin
),
within AS (
  SELECT g, total, z, a, b, c, d FROM placed
  WHERE (upto - z) * 100 >= total * {from} AND upto * 100 <= total * {to}
  UNION ALL
  SELECT g, total, CAST(1 AS BIGINT) AS z, a, b, c, d FROM turns
  WHERE place * 100 > total * {from} AND place * 100 <= total * {to}
)
SELECT g AS user_group, MIN(total) AS among, CAST(SUM(z) AS BIGINT) * 100 AS weight,
       SUM(a) * 100 AS goodput, SUM(b) * 100 AS open_rate, SUM(c) * 100 AS flight, SUM(d) * 100 AS win
FROM within
GROUP BY g
ORDER BY user_group
