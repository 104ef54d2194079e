-- What is asked about tables that are set aside, and about a partition whose changes the stream brings.

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

-- name: partition
-- Whether the relation is a partition of the table now, on any level; the links on the way up with the transactions that
-- made them; those of relations that were there before they were attached; and where the server writes. A relation that was
-- made as a partition has a row type from the same transaction. Takes no lock of a table.
with recursive up (parent, child, born) as (
    select i.inhparent, i.inhrelid, i.xmin
    from pg_inherits i
    where i.inhrelid = %(leaf)s::int8::oid and not i.inhdetachpending
    union all
    select i.inhparent, i.inhrelid, i.xmin
    from up
    join pg_inherits i on i.inhrelid = up.parent and not i.inhdetachpending
)
select exists (select from up where up.parent = c.oid) as below,
       coalesce((select jsonb_object_agg(up.child::text, up.born::text::int8) from up), '{}') as links,
       coalesce((select jsonb_object_agg(up.child::text, up.born::text::int8)
                 from up
                 join pg_class k on k.oid = up.child
                 join pg_type t on t.oid = k.reltype and t.xmin <> up.born), '{}') as attached,
       (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8 as insert_lsn
from pg_class c
where c.oid = %(root)s::int8::oid and c.relkind = 'p'
