  -- Eligible sessions, limited per network to a share of the number of networks, rounded up.
  SELECT g, s, m, a, b, c, d
  FROM (
    SELECT user_group AS g, session AS s, CAST({metric} AS BIGINT) AS m,
           goodput_kbps AS a, open_kbps AS b, in_flight AS c, cwnd AS d,
           ROW_NUMBER() OVER (PARTITION BY user_group, prefix ORDER BY session) AS seq
    FROM sessions
    WHERE ended >= {begin} AND ended < {end} AND ({filter})
  ) AS numbered
  JOIN (
    SELECT user_group AS h,
           CAST(FLOOR(
             CAST(COUNT(DISTINCT prefix) * {prefix_share} + 99 AS DOUBLE) / 100
           ) AS BIGINT) AS max_seq
    FROM sessions
    WHERE ended >= {begin} AND ended < {end} AND ({filter})
    GROUP BY user_group
  ) AS networks ON g = h
  WHERE seq <= max_seq
