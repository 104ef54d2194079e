-- The versions of a table's rows, of its history. For every store that speaks SQL, and for Spark: names are put in
-- quoted. Positions compare as texts, and the position is the first 32 characters of a row's key. The hint is Spark's,
-- which would send the versions to each task, and not the few marks: to other stores it is a comment.

-- name: versions
with cdc_changes as (
    select {columns}, _key, _op, _commit_ts, _xid, _pos, _seen,
           lead(_pos) over (partition by substr(_key, 34) order by _pos) as cdc_next
    from {table}
    where _op in ('c', 'u', 'd', 'r', 'gap') and substr(_key, 34) <> '%gap'
), cdc_sure as (
    -- A row that was read from the table may hold the change behind it already: that change says it itself.
    select cdc_changes.*, case when _seen > _pos then _seen else _pos end as cdc_since
    from cdc_changes where _seen is null or cdc_next is null or cdc_next >= _seen
), cdc_spans as (
    select cdc_sure.*,
           lead(_pos) over (partition by substr(_key, 34) order by _pos) as cdc_after,
           lead(cdc_since) over (partition by substr(_key, 34) order by _pos) as cdc_until,
           lead(_commit_ts) over (partition by substr(_key, 34) order by _pos) as cdc_until_ts
    from cdc_sure
), cdc_marks as (
    -- A truncate, and the end of a whole reading, end what has nothing newer than their floors.
    select case when _op = 't' then _pos else substr(_key, 41) end as cdc_floor, min(_pos) as cdc_ends
    from {table} where _op in ('t', 'sweep') group by case when _op = 't' then _pos else substr(_key, 41) end
), cdc_steps as (
    select cdc_floor, lag(cdc_floor) over (order by cdc_floor) as cdc_below,
           min(cdc_ends) over (order by cdc_floor desc rows between unbounded preceding and current row) as cdc_ends
    from cdc_marks
), cdc_closings as (
    select s.cdc_floor, s.cdc_below, s.cdc_ends, min(t._commit_ts) as cdc_ends_ts
    from cdc_steps s join {table} t on t._pos = s.cdc_ends and t._op in ('t', 'sweep')
    group by s.cdc_floor, s.cdc_below, s.cdc_ends
)
select /*+ broadcast(cdc_closings) */ substr(_key, 34) as _key, _op, _xid, cdc_since as _from,
       case when cdc_ends < coalesce(cdc_after, '~') then cdc_ends else cdc_until end as _to,
       _commit_ts as _from_ts,
       case when cdc_ends < coalesce(cdc_after, '~') then cdc_ends_ts else cdc_until_ts end as _to_ts,
       cdc_until is null and cdc_ends is null as _current, {columns}
from cdc_spans left join cdc_closings on _pos < cdc_floor and _pos >= coalesce(cdc_below, '')
where _op <> 'd' and (cdc_ends is null or cdc_ends > cdc_since or cdc_after < cdc_ends)
