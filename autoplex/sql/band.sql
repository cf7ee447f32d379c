-- The sessions between two percentiles of each group, exactly: what mendcast_groups::select::choose finds.
-- Sums are times 100, as those of merge.sql are.
WITH taken AS (
{taken}),
sized AS (
  SELECT g AS h, CAST(COUNT(*) AS BIGINT) AS total FROM taken GROUP BY g
),
placed AS (
  SELECT g, a, b, c, d, CAST(ROW_NUMBER() OVER (PARTITION BY g ORDER BY m, s) AS BIGINT) AS place FROM taken
)
SELECT g AS user_group, MIN(total) AS among, CAST(COUNT(*) AS BIGINT) * 100 AS weight,
       SUM(a) * 100 AS goodput, SUM(b) * 100 AS open_rate, SUM(c) * 100 AS flight, SUM(d) * 100 AS win
FROM placed JOIN sized ON g = h
WHERE place * 100 > total * {from} AND place * 100 <= total * {to}
GROUP BY g
ORDER BY user_group
