-- What capture and drop do with a slot, who sees a commit already, and the walsender session. Every name is written out:
-- sessions have search_path=pg_catalog. START_REPLICATION takes no parameters: names are quoted on the way in. Its grammar
-- knows upper case only.

-- name: drop
select pg_drop_replication_slot(%(slot)s)

-- name: try_lock
select pg_try_advisory_lock(%(space)s::int4, %(number)s::int4)

-- name: holders
select l.pid, coalesce(a.application_name, '')::text as application, l.mode = 'ExclusiveLock' as exclusive
from pg_locks l
left join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'advisory' and l.granted and l.objsubid = 2
  and l.database = (select oid from pg_database where datname = current_database())
  and l.classid::int8 = %(space)s::int8 & 4294967295 and l.objid::int8 = %(number)s::int8 & 4294967295
  and l.pid <> pg_backend_pid()
order by l.pid

-- name: written_lsn
select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8

-- name: take_xid
select pg_current_xact_id()

-- name: see
select pg_current_snapshot()::text

-- name: timeout
select setting::int8 as timeout_ms from pg_settings where name = 'wal_sender_timeout'

-- name: gss_encrypted
select encrypted from pg_stat_gssapi where pid = pg_backend_pid()

-- name: start
START_REPLICATION SLOT {slot} LOGICAL {lsn} (proto_version '1', publication_names {publications}, messages 'true')
