-- What is asked about tables that are set aside.

-- name: snapshot
select pg_current_snapshot()::text

-- name: brief
-- Whoever has the lock is not waited for: the next look asks again.
set local lock_timeout = '50ms'

-- name: probe
-- Takes the table's lock and checks the rights. Reads no row.
select {columns} from {table} limit 0

-- name: identities
-- The partitions that hold rows of a table, each with the columns by which it logs old rows.
with recursive below (oid) as (
    select i.inhrelid
    from pg_inherits i
    join pg_class c on c.oid = i.inhparent and c.relkind = 'p'
    where i.inhparent = %(oid)s::int8::oid and not i.inhdetachpending
    union all
    select i.inhrelid
    from below b
    join pg_inherits i on i.inhparent = b.oid and not i.inhdetachpending
)
select c.relreplident::text as identity,
       array(select a.attname::text
             from pg_index x
             join pg_attribute a on a.attrelid = c.oid and a.attnum = any ((x.indkey::int2[])[0:x.indnkeyatts - 1])
             where x.indrelid = c.oid
               and case c.relreplident when 'i' then x.indisreplident when 'd' then x.indisprimary and x.indimmediate end
            ) as columns
from below b
join pg_class c on c.oid = b.oid and c.relkind <> 'p'

-- name: written
-- Where the server writes: of what can be seen now, all is logged before it.
select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8
