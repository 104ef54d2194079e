-- What the planner knows of tables, and the catalog as cdc view import reads it. No table is locked or read.

-- name: table_statistics
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

-- name: column_statistics
select distinct on (schemaname, tablename, attname) schemaname, tablename, attname, n_distinct::float8,
       coalesce(most_common_freqs[1], 0)::float8, avg_width::float8
from pg_stats
where (schemaname, tablename) in (select * from unnest(%(schemas)s::text[], %(names)s::text[]))
order by schemaname, tablename, attname, inherited desc

-- name: columns
select n.nspname, c.relname, a.attname, t.typname,
       coalesce(array_position(k.indkey::int2[], a.attnum), -1)::int4
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
join pg_type t on t.oid = a.atttypid
left join pg_index k on k.indrelid = c.oid and k.indisprimary
where c.relkind in ('r', 'p') and n.nspname not in ('pg_catalog', 'information_schema')
order by c.oid, a.attnum

-- name: foreign_keys
select format('%s.%s', n.nspname, c.relname),
       array(select a.attname::text from unnest(f.conkey) with ordinality u (num, place)
             join pg_attribute a on a.attrelid = f.conrelid and a.attnum = u.num order by u.place),
       format('%s.%s', tn.nspname, tc.relname),
       array(select a.attname::text from unnest(f.confkey) with ordinality u (num, place)
             join pg_attribute a on a.attrelid = f.confrelid and a.attnum = u.num order by u.place)
from pg_constraint f
join pg_class c on c.oid = f.conrelid
join pg_namespace n on n.oid = c.relnamespace
join pg_class tc on tc.oid = f.confrelid
join pg_namespace tn on tn.oid = tc.relnamespace
where f.contype = 'f' and f.conparentid = 0
order by f.conrelid, f.conname

-- name: reserved
select word from pg_get_keywords() where catcode in ('R', 'T')
