-- What later snapshots and the catalog watch ask of the source. Every name is written out: search_path=pg_catalog.

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
