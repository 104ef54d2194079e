-- One state of the source, with a fence in the log behind it. Sessions have search_path=pg_catalog.

-- name: insert_lsn
select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8

-- name: snapshot
select pg_current_snapshot()::text

-- name: newest_xid
-- An id of one's own, above every one that was given out. Not the xmax of a snapshot: that is the newest id that has
-- *ended*, plus one, and one that runs behind it, its commit in the log already, is not among the snapshot's.
select pg_current_xact_id()::text::int8

-- name: ended
-- Whether every transaction below that id has ended, so that each commit so far is visible.
select pg_snapshot_xmin(pg_current_snapshot()) >= %(xid)s::text::xid8

-- name: fence
-- Transactional, so that its commit is flushed and wakes the walsender: an idle server sends nothing else (H93).
select (pg_logical_emit_message(true, 'cdc.fence', '') - '0/0'::pg_lsn)::int8

-- name: estimate
-- Rows of a table, about; its leaves' where it is partitioned, -1 where it was never analyzed.
select coalesce(sum(case when c.reltuples < 0 then pg_relation_size(c.oid) / 60 else c.reltuples end), 0)::int8
from pg_class c
where c.oid in (select t.relid from pg_partition_tree(%(oid)s::int8::oid) t where t.isleaf
                union all select %(oid)s::int8::oid)
  and c.relkind = 'r'

-- name: filter
-- The publication's row filter for a table; no row where there is none, or before PostgreSQL 15.
select to_jsonb(t) ->> 'rowfilter'
from pg_publication_tables t
join pg_class c on c.relname = t.tablename
join pg_namespace n on n.oid = c.relnamespace and n.nspname = t.schemaname
where t.pubname = %(publication)s and c.oid = %(oid)s::int8::oid and to_jsonb(t) ->> 'rowfilter' is not null

-- name: copy_rows
copy (select {columns} from {only} {table} where {filter}) to stdout

-- name: copy_keys
copy (select {columns} from {only} {table} where ({key}) in ({keys}) and {filter}) to stdout
