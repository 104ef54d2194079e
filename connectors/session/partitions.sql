-- What is asked about a partition whose changes the stream brings.

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
