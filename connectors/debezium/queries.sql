-- name: primary_keys
select n.nspname::text as schema,
       c.relname::text as name,
       coalesce((select array(select a.attname::text from unnest(i.indkey::int2[]) with ordinality k (attnum, position)
                              join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
                              where k.position <= i.indnkeyatts order by k.position)
                 from pg_index i where i.indrelid = c.oid and i.indisprimary and i.indisvalid), '{}') as primary_key
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and n.nspname not in ('pg_catalog', 'information_schema')
  and n.nspname !~ '^pg_(toast|temp)'

-- name: incomparable_keys
-- The types of primary keys whose bounds Debezium sends as a text or a number. Postgres does not compare the two.
select n.nspname::text as schema, c.relname::text as name,
       string_agg(format_type(a.atttypid, null), ', ' order by a.attnum) as types
from pg_index i
join pg_class c on c.oid = i.indrelid
join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = c.oid and a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1])
join pg_type t on t.oid = a.atttypid
where i.indisprimary
  and coalesce(nullif(t.typbasetype, 0), t.oid)
      in ('timestamp'::regtype, 'timestamptz'::regtype, 'time'::regtype, 'money'::regtype)
group by 1, 2

-- name: long_columns
-- Columns of which Postgres may store a value out of line. A table whose rows are always short has no TOAST relation.
select c.oid, array(select a.attname::text from pg_attribute a
                    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                      and a.attlen = -1 and a.attstorage <> 'p' order by a.attnum) as columns
from pg_class c
where c.oid = any(%(oids)s::oid[]) and c.reltoastrelid <> 0
  and exists (select from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                and a.attlen = -1 and a.attstorage <> 'p')
order by c.oid

-- name: reading
-- Who has the slot, since when; and how often the captured tables were written. No table is locked.
with recursive captured (oid) as (
  select r.prrelid from pg_publication_rel r join pg_publication p on p.oid = r.prpubid where p.pubname = %(publication)s
  union
  select i.inhrelid from pg_inherits i join captured c on c.oid = i.inhparent
)
select s.active_pid as pid,
       extract(epoch from clock_timestamp() - r.backend_start)::float8 as age_s,
       (select coalesce(sum(pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid)
                            + pg_stat_get_tuples_deleted(oid)), 0)::int8
        from captured) as writes
from pg_replication_slots s
left join pg_stat_replication r on r.pid = s.active_pid
where s.slot_name = %(slot)s

-- name: has_rows
-- Whether a table that joined has any row that may be missing. Waits for its lock no longer than the session's timeouts.
select exists (select from {table})
