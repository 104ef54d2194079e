-- Sizes as the catalog knows them. Statistics are read, and no table is locked.

-- name: sizes
-- Rows, bytes and bytes out of line of tables, about. Those of all leaves where a table is partitioned.
with recursive tree (root, oid) as (
    select t.oid, t.oid from unnest(%(oids)s::int8[]::oid[]) as t (oid)
    union
    select t.root, i.inhrelid from tree t join pg_inherits i on i.inhparent = t.oid
)
select t.root::int8 as oid,
       (select pg_get_userbyid(r.relowner) from pg_class r where r.oid = t.root)::text as owner,
       case when bool_or(c.reltuples >= 0) filter (where c.relkind = 'r')
            then sum(greatest(c.reltuples, 0)) filter (where c.relkind = 'r') end::float8 as rows,
       (sum(greatest(c.relpages, 0)::int8 + coalesce(o.relpages, 0)) * current_setting('block_size')::int8)::int8 as size_bytes,
       (sum(coalesce(o.relpages, 0)) * current_setting('block_size')::int8)::int8 as toast_bytes
from tree t
join pg_class c on c.oid = t.oid
left join pg_class o on o.oid = c.reltoastrelid
group by t.root
