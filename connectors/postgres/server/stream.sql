-- The publication and the slot, who sees a commit already, a token, and the walsender session. Every name is written out:
-- sessions have search_path=pg_catalog. Each published table has ONLY before it: without it, those that inherit from it would
-- be published as well, with or without a key. START_REPLICATION takes no parameters: names are quoted on the way in. Its
-- grammar knows upper case only.

-- name: lock_timeout
set local lock_timeout = '3s'

-- name: create
create publication {publication} for table {tables}
with (publish = 'insert, update, delete, truncate', publish_via_partition_root = true)

-- name: create_18
create publication {publication} for table {tables}
with (publish = 'insert, update, delete, truncate', publish_via_partition_root = true, publish_generated_columns = stored)

-- name: add
alter publication {publication} add table {tables}

-- name: via_root
alter publication {publication} set (publish_via_partition_root = true)

-- name: every_operation
alter publication {publication} set (publish = 'insert, update, delete, truncate')

-- name: drop_publication
drop publication if exists {publication}

-- name: drop_slot
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

-- name: token
-- One column, so that it reads the same through every driver and every row factory. The functions may be called by every
-- role. The names are qualified, because an application's connection has its own search_path. No percent sign: drivers take
-- it for a parameter.
-- A transaction that has written is open: its commit comes later than any token of now. The server says so also where the
-- driver does not.
-- A standby writes no WAL of its own: there the text is null. The control file has a promoted server's new timeline only
-- from its next checkpoint on.
-- Behind a record that ends with its page, the place where the next one goes is behind that page's header, and no record
-- ends there while the server is quiet. The page's start is the same place: 24 bytes are the header (SizeOfXLogShortPHD),
-- 40 at the beginning of a segment (SizeOfXLogLongPHD).
select case when pg_catalog.pg_current_xact_id_if_assigned() is not null then 'a transaction is open' else
         control.system_identifier::pg_catalog.text || '/'
         || ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(written.lsn), 8))::pg_catalog.bit(32)::pg_catalog.int8 || ':'
         || case when within.segment = 40 then (written.lsn - 40::pg_catalog.numeric)::pg_catalog.text
                 when within.page = 24 and within.segment <> 24 then (written.lsn - 24::pg_catalog.numeric)::pg_catalog.text
                 else written.lsn::pg_catalog.text end
       end as token
from pg_catalog.pg_control_system() as control, pg_catalog.pg_control_init() as made,
     (select case when pg_catalog.pg_is_in_recovery() then null
                  else pg_catalog.pg_current_wal_insert_lsn() end as lsn offset 0) as written,
     lateral (select pg_catalog.mod(written.lsn - '0/0'::pg_catalog.pg_lsn, made.wal_block_size) as page,
                     pg_catalog.mod(written.lsn - '0/0'::pg_catalog.pg_lsn, made.bytes_per_wal_segment) as segment) as within
