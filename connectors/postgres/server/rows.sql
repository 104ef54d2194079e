-- Rows asked again: all of a table at one state of the source, with a fence in the log behind it, and values that a change
-- left out because they are stored out of line and did not change. Sessions have search_path=pg_catalog.

-- name: shape
-- How a table can be asked now, wherever it was renamed to. One row per key column of the replica identity.
select n.nspname::text as schema, c.relname::text as name,
       c.relkind = 'p' as partitioned,
       (select quote_ident(n.nspname) || '.' || quote_ident(c.relname) || ' '
               || string_agg(a.attnum || ' ' || a.atttypid || ' ' || a.attname, ',' order by a.attnum)
        from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as fingerprint,
       -- A domain has the category of its base type.
       (select jsonb_object_agg(a.attnum, jsonb_build_array(a.attname, a.atttypid::int8, y.typcategory = 'S'))
        from pg_attribute a join pg_type y on y.oid = a.atttypid
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
       -- The equality of the key's index, by its schema: an extension's would not be found in pg_catalog. In a B-tree it
       -- has the number 3. That is && in the GiST index of a key WITHOUT OVERLAPS (18), whose columns are equal by =.
       (select jsonb_object_agg(k.attnum, jsonb_build_array(format_type(a.atttypid, a.atttypmod), on_.nspname, o.oprname))
        from pg_index i
        cross join lateral unnest(i.indkey::int2[], i.indclass::oid[]) as k (attnum, opclass)
        join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
        join pg_opclass oc on oc.oid = k.opclass
        join pg_am m on m.oid = oc.opcmethod
        join pg_amop ao on ao.amopfamily = oc.opcfamily
                       and ao.amoplefttype = oc.opcintype and ao.amoprighttype = oc.opcintype
        join pg_operator o on o.oid = ao.amopopr
                          and case m.amname when 'btree' then ao.amopstrategy = 3 else o.oprname = '=' end
        join pg_namespace on_ on on_.oid = o.oprnamespace
        where i.indrelid = c.oid and i.indisvalid
          and (i.indisreplident or i.indisprimary)) as operators
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.oid = %(oid)s::int8::oid

-- name: snapshot
select pg_current_snapshot()::text

-- name: insert_lsn
select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8

-- name: kept_lsn
-- What the standbys have received that keep the slot; null where none does.
select (least(pg_current_wal_flush_lsn(), (
           select min(b.restart_lsn)
           from pg_replication_slots b
           join pg_replication_slots s on s.slot_name = %(slot)s and (to_jsonb(s) ->> 'failover')::bool
           where b.slot_name = any (regexp_split_to_array(current_setting('synchronized_standby_slots', true), '[ ,"]+')))
       ) - '0/0'::pg_lsn)::int8

-- name: nudge
-- A commit that is no change, and waits for no standby: what was written before it is sent to them.
select pg_logical_emit_message(true, 'cdc', '')

-- name: column
-- The length is that of the text, and is looked at only where much is stored: of a text it is known without reading it.
, case when pg_column_size(t.{field}) > {stored} and octet_length(t.{field}::text) > {limit}
       then octet_length(t.{field}::text) end
, case when pg_column_size(t.{field}) > {stored} and octet_length(t.{field}::text) > {limit}
       then null else t.{field} end

-- name: rows
-- Everything in one statement, so that snapshot, shape and values are of one moment. The cast is of a text.
-- The name is part of the shape: after a swap by renames the table asked is another one.
select pg_current_snapshot()::text,
       (select quote_ident(n.nspname) || '.' || quote_ident(c.relname) || ' '
               || (select string_agg(a.attnum || ' ' || a.atttypid || ' ' || a.attname, ',' order by a.attnum)
                   from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = {oid}::int8::oid),
       -- Behind the snapshot: whatever it sees was committed below.
       (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8,
       w.place, t.tableoid is not null{columns}
from unnest({keys}) with ordinality as w ({names}, place)
left join {only}{table} t on {match}
order by w.place

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
