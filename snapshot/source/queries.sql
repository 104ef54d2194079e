-- What snapshots and the catalog watch ask of the source. Every name is written out: sessions have search_path=pg_catalog.
-- Those in upper case are replication commands: known so only, and not behind a comment.

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

-- name: create_slot
CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT

-- name: create_slot_alone
CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT

-- name: import_snapshot
set transaction snapshot {snapshot}

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
-- Whom a session waits for. Prepared transactions have no pid: pg_blocking_pids says 0 for them. "age_s" is null where
-- our role may not see the session.
select b.pid, coalesce(nullif(a.application_name, ''), 'no application_name') as name, coalesce(a.usename, '')::text as role,
       extract(epoch from clock_timestamp() - a.xact_start)::float8 as age_s
from unnest(pg_blocking_pids(%(pid)s)) b (pid)
left join pg_stat_activity a on a.pid = b.pid
group by 1, 2, 3, 4
order by 4 desc nulls last

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

-- name: see
select pg_current_snapshot()::text

-- name: read_keys
copy (select {columns} from {table} where {condition} and ({key}) in (select {typed} from unnest({values}) k ({names}))) to stdout

-- name: canonical_keys
copy (select distinct {typed} from unnest({values}) k ({names})) to stdout

-- name: check_condition
select from {table} where {wanted} limit 0

-- name: key_types
-- How the catalog writes the types of these columns; what a topic says of them reaches no statement.
select a.attnum::int4 as attnum, format_type(a.atttypid, a.atttypmod) as type
from pg_attribute a
where a.attrelid = %(oid)s::int8::oid and a.attnum > 0 and not a.attisdropped

-- name: kept_lsn
-- What lies below it no crash undoes; nor a failover, where the slot is kept on standbys: they have received it.
select (least(pg_current_wal_flush_lsn(), (
           select min(b.restart_lsn)
           from pg_replication_slots b
           join pg_replication_slots s on s.slot_name = %(slot)s and (to_jsonb(s) ->> 'failover')::bool
           where b.slot_name = any (regexp_split_to_array(current_setting('synchronized_standby_slots', true), '[ ,]+')))
       ) - '0/0'::pg_lsn)::int8

-- name: nudge
-- A commit of our own: it is flushed, and the stream passes it. It waits for no standby.
select pg_logical_emit_message(true, 'cdc', '')

-- name: fingerprint
-- One number over everything that the watch compares; a change of it is worth a closer look. Rows that can be changed
-- and changed back between two looks count with the transaction that wrote them.
with pub as materialized (
    select p.oid, p.xmin::text as born from pg_publication p where p.pubname = %(publication)s
)
select coalesce(sum(hashtextextended(x.line, 0)::numeric), 0)::text
from (
    select concat_ws(',', 'c', c.oid, c.relname, c.relnamespace, c.relfilenode, c.relreplident) as line
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
    union all
    select concat_ws(',', 'a', a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attisdropped, a.atthasmissing,
                     case when c.relkind = 'c' then a.xmin::text end)
    from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'c') and a.attnum > 0
      and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
    union all
    select concat_ws(',', 'i', i.inhrelid, i.inhparent, i.xmin) from pg_inherits i
    union all
    select concat_ws(',', 'p', pub.oid, pub.born) from pub
    union all
    select concat_ws(',', 'r', r.oid, r.xmin) from pub join pg_publication_rel r on r.prpubid = pub.oid
    union all
    -- The publication's schemas, in PostgreSQL 15 and later.
    select concat_ws(',', 's', d.objid, d.xmin)
    from pub join pg_depend d on d.refclassid = 'pg_publication'::regclass and d.refobjid = pub.oid
                             and d.classid = to_regclass('pg_catalog.pg_publication_namespace')
    union all
    -- Which schema a relation is in: one that was moved away and back.
    select concat_ws(',', 'n', d.objid, d.refobjid, d.xmin)
    from pg_depend d
    where d.classid = 'pg_class'::regclass and d.objsubid = 0 and d.refclassid = 'pg_namespace'::regclass
    union all
    select concat_ws(',', 'e', e.oid, e.xmin) from pg_enum e
    union all
    select concat_ws(',', 'd', t.oid, t.xmin) from pg_type t where t.typtype = 'd' and t.oid >= 16384
) x

-- name: columns
-- "filled": rows from before the column have a value for it, which no event brings. "born": the transaction that
-- last changed the column, and "filenode" by the same snapshot; whatever gives rows other values changes both.
select a.attrelid::int8 as oid, a.attnum::int4 as attnum, a.attname::text as name, a.atttypid::int8 as type_oid,
       a.atttypmod::int4 as typmod, a.atthasmissing as filled,
       a.xmin::text::int8 as born, c.relfilenode::int8 as filenode
from pg_attribute a
join pg_class c on c.oid = a.attrelid
where a.attrelid = any (%(oids)s::int8[]::oid[]) and a.attnum > 0 and not a.attisdropped
order by a.attrelid, a.attnum
