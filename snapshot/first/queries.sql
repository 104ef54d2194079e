-- What the first snapshot asks of the source. Every name is written out: sessions have search_path=pg_catalog.
-- Those in upper case are replication commands: known so only, and not behind a comment.

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
