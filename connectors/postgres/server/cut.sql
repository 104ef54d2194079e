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

-- name: mark
-- Transactional, so that its commit is flushed and wakes the walsender: an idle server sends nothing else. What
-- it returns is no place of the stream where a server numbers its storage's log otherwise, as Aurora does.
select pg_logical_emit_message(true, 'cdc.fence', '')

-- name: estimate
-- Rows of a table, about; its leaves' where it is partitioned. By catalog and statistics, which need no lock.
with recursive tree (oid) as (
    select %(oid)s::int8::oid
    union
    select i.inhrelid from tree t join pg_inherits i on i.inhparent = t.oid
    where (select c.relkind from pg_class c where c.oid = t.oid) = 'p'
)
select coalesce(sum(greatest(c.reltuples, pg_stat_get_live_tuples(c.oid), 0)), 0)::int8
from tree t join pg_class c on c.oid = t.oid
where c.relkind = 'r'

-- name: filter
-- The publication's row filter for a table, as SQL. From PostgreSQL 15 on.
select pg_get_expr(r.prqual, r.prrelid)
from pg_publication p
join pg_publication_rel r on r.prpubid = p.oid
join pg_class c on c.oid = r.prrelid
where p.pubname = %(publication)s and c.oid = %(oid)s::int8::oid and r.prqual is not null
  and not exists (select from pg_publication_namespace s where s.pnpubid = p.oid and s.pnnspid = c.relnamespace)

-- name: columns_now
-- No row: which columns have these names, and they keep them until the transaction ends.
select {columns} from {only} {table} limit 0

-- name: copy_rows
copy (select {columns} from {only} {table} where {filter}) to stdout

-- name: copy_view
-- The text ends with its own line: it may end with a comment.
copy (select {columns} from (
{query}
) as kept) to stdout

-- name: copy_view_keys
copy (select {columns} from (
{query}
) as kept where ({key}) in ({keys})) to stdout

-- name: copy_view_where
copy (select {columns} from (
{query}
) as kept where {condition}) to stdout

-- name: copy_keys
copy (select {columns} from {only} {table} where ({key}) in ({keys}) and {filter}) to stdout
