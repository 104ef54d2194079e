-- name: send_signal
insert into {table} (id, type, data) values (%s, %s, %s);

-- name: compared_tables
-- What explains differences between two captures: defaults, the primary key, and which tables are partitions.
select n.nspname::text as schema,
       c.relname::text as name,
       c.relispartition as leaf,
       array(select a.attname::text from pg_attribute a
             where a.attrelid = c.oid and a.attnum > 0 and a.atthasdef and a.attgenerated = '' order by a.attnum) as defaults,
       coalesce((select array(select a.attname::text from unnest(i.indkey::int2[]) with ordinality k (attnum, position)
                              join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
                              where k.position <= i.indnkeyatts order by k.position)
                 from pg_index i where i.indrelid = c.oid and i.indisprimary and i.indisvalid), '{}') as primary_key
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and n.nspname not in ('pg_catalog', 'information_schema')
  and n.nspname !~ '^pg_(toast|temp)'
