-- Where the rows of tables are, when they are not in the tables themselves, and what is a part of what, as the catalog has
-- it. Takes no lock of a table.

-- name: children
-- The tables that inherit from these, on any level, and are no partitions: they have rows, and a stream, of their own.
with recursive down (root, oid) as (
    select i.inhparent, i.inhrelid
    from pg_inherits i
    where i.inhparent = any (%(oids)s::int8[]::oid[])
    union
    select down.root, i.inhrelid
    from down
    join pg_inherits i on i.inhparent = down.oid
)
select down.root::int8 as oid, n.nspname::text as schema, c.relname::text as name
from down
join pg_class c on c.oid = down.oid
join pg_namespace n on n.oid = c.relnamespace
where not c.relispartition
order by 1, 2, 3

-- name: readable
-- The tables in which extensions note what they have spread, of those that are here. Each is asked by the query of its name.
select c.relname::text
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where (n.nspname, c.relname) in (('_timescaledb_catalog', 'hypertable'), ('pg_catalog', 'pg_dist_partition'))
  and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')

-- name: hypertable
select c.oid::int8
from _timescaledb_catalog.hypertable h
join pg_namespace n on n.nspname = h.schema_name
join pg_class c on c.relnamespace = n.oid and c.relname = h.table_name
where c.oid = any (%(oids)s::int8[]::oid[])

-- name: pg_dist_partition
select d.logicalrelid::oid::int8
from pg_catalog.pg_dist_partition d
where d.logicalrelid::oid = any (%(oids)s::int8[]::oid[])

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
