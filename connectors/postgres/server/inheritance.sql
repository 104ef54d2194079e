-- What is a part of what, as the catalog has it. Takes no lock of a table.

-- name: parts
-- What inherits from these tables and relations, on any level, and of what they are partitions, on any level.
with recursive masked (oid, name) as (
    select c.oid, n.nspname || '.' || c.relname
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname || '.' || c.relname = any (%(tables)s::text[]) or c.oid = any (%(oids)s::int8[]::oid[])
), down (root, oid) as (
    select m.oid, i.inhrelid
    from masked m
    join pg_inherits i on i.inhparent = m.oid
    union
    select d.root, i.inhrelid
    from down d
    join pg_inherits i on i.inhparent = d.oid
), up (root, oid) as (
    select m.oid, i.inhparent
    from masked m
    join pg_class c on c.oid = m.oid and c.relispartition
    join pg_inherits i on i.inhrelid = m.oid
    union
    select u.root, i.inhparent
    from up u
    join pg_class c on c.oid = u.oid and c.relispartition
    join pg_inherits i on i.inhrelid = u.oid
)
select m.oid::int8, m.name, found.oid::int8
from (select root, oid from down union select root, oid from up) found
join masked m on m.oid = found.root
order by 1, 3
