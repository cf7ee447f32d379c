-- Selects the sessions between two percentiles of each group, exactly as
-- mendcast_groups::select::choose. Only bins (of histogram.sql) that the band splits are sorted;
-- other bins count as a whole. Sums are scaled by 100, as in merge.sql.
WITH eligible AS (
{eligible}),
binned AS (
  SELECT g, s, m,
         CAST(FLOOR(8 * LOG2(CAST(GREATEST(m, 0) + 1 AS DOUBLE)) + 0.000001) AS BIGINT) AS k,
         a, b, c, d
  FROM eligible
),
summed AS (
  SELECT g, k, CAST(COUNT(*) AS BIGINT) AS z, SUM(a) AS a, SUM(b) AS b, SUM(c) AS c, SUM(d) AS d
  FROM binned
  GROUP BY g, k
),
cumulative AS (
  SELECT g, k, z, a, b, c, d,
         CAST(SUM(z) OVER (
           PARTITION BY g ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
         ) AS BIGINT) AS upto,
         CAST(SUM(z) OVER (PARTITION BY g) AS BIGINT) AS total
  FROM summed
),
split_bins AS (
  SELECT g AS h, k AS bin, upto - z AS below, total
  FROM cumulative
  WHERE upto * 100 > total * {from} AND (upto - z) * 100 < total * {to}
    AND NOT ((upto - z) * 100 >= total * {from} AND upto * 100 <= total * {to})
),
ranked AS (
  SELECT g, total, a, b, c, d,
         below + CAST(ROW_NUMBER() OVER (PARTITION BY g, k ORDER BY m, s) AS BIGINT) AS seq
  FROM binned JOIN split_bins ON g = h AND k = bin
),
selected AS (
  SELECT g, total, z, a, b, c, d FROM cumulative
  WHERE (upto - z) * 100 >= total * {from} AND upto * 100 <= total * {to}
  UNION ALL
  SELECT g, total, CAST(1 AS BIGINT) AS z, a, b, c, d FROM ranked
  WHERE seq * 100 > total * {from} AND seq * 100 <= total * {to}
)
SELECT g AS user_group, MIN(total) AS among, CAST(SUM(z) AS BIGINT) * 100 AS weight,
       SUM(a) * 100 AS goodput, SUM(b) * 100 AS open_rate, SUM(c) * 100 AS flight,
       SUM(d) * 100 AS win
FROM selected
GROUP BY g
ORDER BY user_group
