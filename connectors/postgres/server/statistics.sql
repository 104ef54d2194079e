-- What the planner knows of tables. Statistics are read, and no table is locked.

-- name: tables
-- Rows of a table, about. Those of its leaves where it is partitioned.
with recursive tree (root, oid) as (
    select c.oid, c.oid
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where (n.nspname, c.relname) in (select * from unnest(%(schemas)s::text[], %(names)s::text[]))
    union
    select t.root, i.inhrelid from tree t join pg_inherits i on i.inhparent = t.oid
)
select n.nspname, r.relname, coalesce(sum(greatest(c.reltuples, 0)) filter (where c.relkind = 'r'), 0)::float8
from tree t
join pg_class r on r.oid = t.root
join pg_namespace n on n.oid = r.relnamespace
join pg_class c on c.oid = t.oid
group by 1, 2

-- name: columns
select distinct on (schemaname, tablename, attname) schemaname, tablename, attname, n_distinct::float8,
       coalesce(most_common_freqs[1], 0)::float8, avg_width::float8
from pg_stats
where (schemaname, tablename) in (select * from unnest(%(schemas)s::text[], %(names)s::text[]))
order by schemaname, tablename, attname, inherited desc
