select window.start as minute,
       path,
       count(*) as requests,
       count_if(status >= 500) / count(*) as error_ratio,
       percentile_approx(ms, 0.5) as p50_ms,
       percentile_approx(ms, 0.99) as p99_ms,
       hll_sketch_estimate(hll_sketch_agg(user_id)) as users
  from requests
 group by window(at, '1 minute'), path
