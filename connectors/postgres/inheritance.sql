-- What inherits from what, as the catalog has it. Takes no lock of a table.

-- name: parents
-- Every table from which these relations inherit, on any level.
with recursive up (oid, parent) as (
    select i.inhrelid, i.inhparent
    from pg_inherits i
    where i.inhrelid = any (%(oids)s::int8[]::oid[])
    union
    select up.oid, i.inhparent
    from up
    join pg_inherits i on i.inhrelid = up.parent
)
select up.oid::int8, n.nspname, c.relname
from up
join pg_class c on c.oid = up.parent
join pg_namespace n on n.oid = c.relnamespace
order by 1, 2, 3

-- name: parts
-- What inherits from these tables, on any level, by the table.
with recursive down (root, oid) as (
    select n.nspname || '.' || c.relname, i.inhrelid
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    join pg_inherits i on i.inhparent = c.oid
    where n.nspname || '.' || c.relname = any (%(tables)s::text[])
    union
    select down.root, i.inhrelid
    from down
    join pg_inherits i on i.inhparent = down.oid
)
select root, oid::int8
from down
order by 1, 2
