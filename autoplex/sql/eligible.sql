  -- Eligible sessions of the window, with their sort key.
  SELECT user_group AS g, session AS s, CAST({metric} AS BIGINT) AS m,
         goodput_kbps AS a, open_kbps AS b, in_flight AS c, cwnd AS d
  FROM sessions
  WHERE ended >= {begin} AND ended < {end} AND ({filter})
