select window.start as minute,
       count(*) as requests,
       count_if(status >= 500) as errors
  from requests
 group by window(at, '1 minute')
having count_if(status >= 500) > 0.05 * count(*)
