-- What both snapshots ask of the source. Every name is written out: sessions have search_path=pg_catalog.

-- name: begin_read
begin isolation level repeatable read read only

-- name: lock_table
-- With its partitions.
lock table {table} in access share mode

-- name: lock_leaf
lock table only {table} in access share mode

-- name: leaf_form
-- "seen": as the transaction's snapshot shows the catalog; the others: as it is under the lock, whatever that shows.
-- "belongs": it is the captured table, or one of its partitions.
select c.relfilenode::int8 as seen_filenode, pg_relation_filenode(c.oid)::int8 as filenode,
       to_regclass(%(table)s)::oid::int8 as oid,
       c.oid = %(root)s::int8::oid or exists (
           select from pg_partition_ancestors(c.oid) a where a.relid = %(root)s::int8::oid) as belongs
from pg_class c
where c.oid = %(oid)s::int8::oid

-- name: columns_seen
-- As the transaction's snapshot shows them. "shown_oid": the type that the description of a result has to name; it
-- names the type below a domain, and which that is we do not follow.
select a.attname::text as name, a.attnum::int4 as attnum, a.atttypid::int8 as type_oid,
       case when t.typtype = 'd' then null else a.atttypid::int8 end as shown_oid
from pg_attribute a
join pg_type t on t.oid = a.atttypid
where a.attrelid = %(oid)s::int8::oid and a.attnum > 0 and not a.attisdropped

-- name: columns_now
select {columns} from only {table} limit 0

-- name: copy_blocks
copy (select {columns} from only {table} where {rows}) to stdout

-- name: insert_lsn
select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8

-- name: leaves
-- File and size of the tables that hold rows, the size as of the last VACUUM or ANALYZE: the catalog needs no lock.
-- A table that goes away meanwhile has no row, or no file.
select c.oid::int8 as oid, n.nspname::text as schema, c.relname::text as name,
       pg_relation_filenode(c.oid)::int8 as filenode,
       greatest(c.relpages, 0)::int8 as heap_blocks,
       (greatest(c.relpages, 0) + coalesce(greatest(t.relpages, 0), 0)) * current_setting('block_size')::int8 as size_bytes,
       greatest(c.reltuples, 0)::int8 as row_estimate, has_table_privilege(c.oid, 'select') as by_range
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_class t on t.oid = c.reltoastrelid
where c.oid = any (%(oids)s::int8[]::oid[])

-- name: size_lock_timeout
set local lock_timeout = '50ms'

-- name: sizes
-- The size now. Waits for whoever has a table locked, so it is asked with a lock timeout.
select c.oid::int8 as oid,
       (pg_relation_size(c.oid) / current_setting('block_size')::int8)::int8 as heap_blocks,
       (pg_relation_size(c.oid) + coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0))::int8 as size_bytes
from pg_class c
where c.oid = any (%(oids)s::int8[]::oid[])

-- name: row_filters
-- Rows outside a publication's filter are never streamed, so they are not read either. From PostgreSQL 15 on.
select c.oid::int8 as oid, pg_get_expr(r.prqual, r.prrelid) as condition
from pg_publication p
join pg_publication_rel r on r.prpubid = p.oid
join pg_class c on c.oid = r.prrelid
where p.pubname = %(publication)s and c.oid = any (%(oids)s::int8[]::oid[]) and r.prqual is not null
  and not exists (select from pg_publication_namespace s where s.pnpubid = p.oid and s.pnnspid = c.relnamespace)

-- name: links
-- What makes a partition one of its table, on every level, with the transaction that attached it.
with recursive tree (root, oid, born) as (
    select c.oid, c.oid, null::xid from pg_class c where c.oid = any (%(oids)s::int8[]::oid[]) and c.relkind = 'p'
    union
    select t.root, i.inhrelid, i.xmin
    from tree t
    join pg_inherits i on i.inhparent = t.oid and not i.inhdetachpending
)
select t.root::int8 as root, t.oid::int8 as oid, t.born::text::int8 as born from tree t where t.oid <> t.root

-- name: types
-- What the text of a table's values hangs on beside its columns: an enum's labels ("e"), a composite's attributes
-- ("c") and a domain ("d"), however deep in arrays, ranges and one another, each with the transaction that wrote it.
with recursive used (relation, type) as (
    select a.attrelid, a.atttypid
    from pg_attribute a
    where a.attrelid = any (%(oids)s::int8[]::oid[]) and a.attnum > 0 and not a.attisdropped and a.atttypid >= 16384
    union
    select u.relation, x.type
    from used u
    join pg_type t on t.oid = u.type
    cross join lateral (
        select t.typelem
        union all
        select t.typbasetype
        union all
        select r.rngsubtype from pg_range r where t.oid in (r.rngtypid, r.rngmultitypid)
        union all
        select a.atttypid from pg_attribute a where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
    ) x (type)
    where x.type >= 16384
)
select u.relation::int8 as oid, 'e' || e.enumtypid || '.' || e.oid as member, e.xmin::text::int8 as born
from used u join pg_enum e on e.enumtypid = u.type
union all
select u.relation::int8, 'c' || t.oid || '.' || a.attnum, a.xmin::text::int8
from used u join pg_type t on t.oid = u.type join pg_attribute a on a.attrelid = t.typrelid
where a.attnum > 0
union all
select u.relation::int8, 'd' || t.oid || '.0', t.xmin::text::int8
from used u join pg_type t on t.oid = u.type
where t.typtype = 'd'
