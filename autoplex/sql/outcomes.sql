-- Sums the outcomes of viewers by group and arm, for the guard. Products use whole seconds played,
-- so that their sums fit 64 bits.
WITH reported AS (
  SELECT user_group AS g, arm AS p,
         CASE WHEN played_ms > 0 THEN 1 ELSE 0 END AS plays_one,
         CASE WHEN played_ms > 0 THEN freezes ELSE 0 END AS f,
         CASE WHEN played_ms > 0 THEN played_ms ELSE 0 END AS t,
         CASE WHEN played_ms > 0 THEN frozen_ms ELSE 0 END AS z,
         CASE
           WHEN played_ms > 0 THEN CAST(FLOOR(CAST(played_ms AS DOUBLE) / 1000) AS BIGINT) ELSE 0
         END AS q,
         CASE WHEN first_frame_ms >= 0 THEN 1 ELSE 0 END AS first_one,
         CASE WHEN first_frame_ms >= 0 THEN first_frame_ms ELSE 0 END AS x
  FROM sessions
  WHERE ended >= {begin} AND ended < {end} AND arm >= 2
)
SELECT g AS user_group, p AS part, CAST(SUM(plays_one) AS BIGINT) AS plays,
       SUM(f) AS freezes_sum, SUM(t) AS played_ms_sum, SUM(z) AS frozen_ms_sum,
       SUM(f * f) AS freezes_squares, SUM(f * q) AS freezes_by_seconds,
       SUM(q * q) AS seconds_squares,
       CAST(SUM(first_one) AS BIGINT) AS first_frames, SUM(x) AS first_frame_ms_sum,
       SUM(x * x) AS first_frame_squares
FROM reported
GROUP BY g, p
ORDER BY user_group, part
