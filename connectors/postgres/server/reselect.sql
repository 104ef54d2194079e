-- Values that a change left out because they are stored out of line and did not change.

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
