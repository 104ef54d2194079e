-- What the snapshot asks of the source. Every name is written out: sessions have search_path=pg_catalog.
-- Those in upper case are replication commands: known so only, and not behind a comment.

-- name: create_slot
CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT

-- name: create_slot_alone
CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT

-- name: leaves
-- File and size of the tables that hold rows, the size as of the last VACUUM or ANALYZE: the catalog needs no lock
-- (H95). A table that goes away meanwhile has no row, or no file.
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

-- name: begin_chunk
begin isolation level repeatable read read only

-- name: lock_leaf
lock table only {leaf} in access share mode

-- name: import_snapshot
set transaction snapshot {snapshot}

-- name: leaf_form
-- "cut": as the imported snapshot sees the catalog; "now": as it is under the lock, whatever the snapshot sees.
select c.relfilenode::int8 as cut_filenode, pg_relation_filenode(c.oid)::int8 as filenode,
       to_regclass(%(leaf)s)::oid::int8 as oid
from pg_class c
where c.oid = %(oid)s::int8::oid

-- name: columns_in_cut
-- Domains are reported by the type they stand on, which the description of a result names too.
select a.attname::text as name, a.attnum::int4 as attnum,
       case when t.typtype = 'd' then null else a.atttypid::int8 end as type_oid
from pg_attribute a
join pg_type t on t.oid = a.atttypid
where a.attrelid = %(oid)s::int8::oid and a.attnum > 0 and not a.attisdropped

-- name: columns_now
select {columns} from only {leaf} limit 0

-- name: copy_all
copy (select {columns} from only {leaf} where {condition}) to stdout

-- name: copy_range
copy (select {columns} from only {leaf} where ctid >= {low}::tid and ctid < {high}::tid and {condition}) to stdout

-- name: copy_rest
copy (select {columns} from only {leaf} where ctid >= {low}::tid and {condition}) to stdout

-- name: keep_slot
select pg_copy_logical_replication_slot(%(making)s, %(slot)s, false)

-- name: keep_on_standbys
ALTER_REPLICATION_SLOT {slot} (FAILOVER true)

-- name: drop_slot
select pg_drop_replication_slot(%(slot)s)

-- name: slot_holder
select s.active_pid, coalesce(a.application_name, '') as application
from pg_replication_slots s
left join pg_stat_activity a on a.pid = s.active_pid
where s.slot_name = %(slot)s

-- name: end_session
select pg_terminate_backend(%(pid)s)

-- name: blockers
-- Whom a session waits for. Prepared transactions have no pid: pg_blocking_pids says 0 for them.
select b.pid, coalesce(nullif(a.application_name, ''), 'no application_name') as name, coalesce(a.usename, '')::text as role,
       coalesce(extract(epoch from clock_timestamp() - a.xact_start), 0)::float8 as age_s
from unnest(pg_blocking_pids(%(pid)s)) b (pid)
left join pg_stat_activity a on a.pid = b.pid
group by 1, 2, 3, 4
order by 4 desc

-- name: prepared
select p.gid, p.owner::text as role, extract(epoch from clock_timestamp() - p.prepared)::float8 as age_s
from pg_prepared_xacts p
order by p.prepared

-- name: export_cut
-- The LSN is read after the snapshot was taken: every commit that the cut sees lies below it.
select pg_export_snapshot() as snapshot, (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8 as lsn

-- name: cut_time
select pg_snapshot_xmax(pg_current_snapshot())::text::int8 as xmax,
       (extract(epoch from transaction_timestamp()) * 1000000)::int8 as taken_us

-- name: insert_lsn
select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8

-- name: take_lock
select pg_try_advisory_lock(%(class)s, %(number)s)

-- name: share_lock
select pg_try_advisory_lock_shared(%(class)s, %(number)s)

-- name: give_lock_back
select pg_advisory_unlock(%(class)s, %(number)s)

-- name: lock_holders
select a.pid, coalesce(nullif(a.application_name, ''), 'no application_name') as name
from pg_locks l
join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'advisory' and l.granted and l.classid = %(class)s::int8::oid and l.objid = (%(number)s::int8 & 4294967295)::oid
  and l.objsubid = 2 and l.database = (select d.oid from pg_database d where d.datname = current_database())
  and l.pid <> pg_backend_pid()
order by a.pid
