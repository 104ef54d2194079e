-- What the catalog tells of tables, and where their rows are when they are not in the tables themselves. Takes no lock of a
-- table. Every name is written out: sessions have search_path=pg_catalog.

-- name: relations
select c.oid::int8 as oid,
       n.nspname as schema,
       c.relname as name,
       c.relkind::text as kind,
       c.relpersistence::text as persistence,
       c.relreplident::text as identity,
       c.relnatts > 0 and exists (select from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as has_columns,
       case when c.relispartition then array(select p.relid::oid::int8 from pg_partition_ancestors(c.oid) p where p.relid <> c.oid) else '{}' end as ancestors,
       coalesce(pk.columns, '{}') as primary_key,
       coalesce(not pk.immediate, false) as primary_key_deferrable,
       coalesce(ri.columns, '{}') as identity_index,
       u.constraint_name as unique_index_name,
       coalesce(u.nullable, '{}') as unique_index_nullable
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join lateral (
    select i.indimmediate as immediate,
           array(select a.attname::text from unnest(i.indkey::int2[]) with ordinality k (attnum, position)
                 join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
                 where k.position <= i.indnkeyatts order by k.position) as columns
    from pg_index i
    where i.indrelid = c.oid and i.indisprimary and i.indisvalid
) pk on true
left join lateral (
    select array(select a.attname::text from unnest(i.indkey::int2[]) with ordinality k (attnum, position)
                 join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
                 where k.position <= i.indnkeyatts order by k.position) as columns
    from pg_index i
    where i.indrelid = c.oid and i.indisreplident and i.indisvalid
) ri on true
left join lateral (
    -- Only for the hint: an index that could become the replica identity, at once or with NOT NULL on some columns.
    select x.relname as constraint_name, k.nullable
    from pg_index i join pg_class x on x.oid = i.indexrelid
    cross join lateral (
        select bool_or(a.attgenerated <> '') as generated,
               coalesce(array_agg(a.attname::text order by k.position) filter (where not a.attnotnull
                   or exists (select from pg_constraint n where n.conrelid = c.oid and n.contype = 'n'
                              and not n.convalidated and n.conkey[1] = a.attnum)), '{}') as nullable
        from unnest(i.indkey::int2[]) with ordinality k (attnum, position)
        join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
        where k.position <= i.indnkeyatts
    ) k
    where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indimmediate and not i.indisprimary
      and i.indpred is null and i.indexprs is null and not k.generated
    order by cardinality(k.nullable) > 0, i.indnkeyatts, x.relname
    limit 1
) u on true
where c.relkind in ('r', 'p', 'v', 'm', 'f')
  and n.nspname not in ('pg_catalog', 'information_schema')
  and n.nspname !~ '^pg_(toast|temp)'
order by n.nspname, c.relname

-- name: access
-- The rights of this session's role on tables, and whether row security would hide rows from it.
select c.oid::int8 as oid,
       coalesce(has_schema_privilege(n.oid, 'usage'), false) as usage,
       case when has_table_privilege(c.oid, 'select') then '{}'
            else array(select a.attname::text
                       from pg_attribute a
                       where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                         and not has_column_privilege(c.oid, a.attnum, 'select')
                       order by a.attnum)
       end as unreadable,
       has_any_column_privilege(c.oid, 'select') as partly,
       row_security_active(c.oid) as hidden,
       current_user::text as role
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.oid = any (%(oids)s::int8[]::oid[])

-- name: leaves
-- The partitions that hold rows, of each partitioned table. pg_partition_tree would lock every one.
with recursive tree (root, oid) as (
    select c.oid, c.oid from pg_class c where c.oid = any (%(oids)s::int8[]::oid[]) and c.relkind = 'p'
    union
    select t.root, i.inhrelid
    from tree t
    join pg_inherits i on i.inhparent = t.oid and not i.inhdetachpending
)
select t.root::int8 as root, c.oid::int8 as oid, n.nspname as schema, c.relname as name,
       c.relkind::text as kind, c.relpersistence::text as persistence, c.relreplident::text as identity,
       coalesce((select i.indimmediate from pg_index i where i.indrelid = c.oid and i.indisprimary and i.indisvalid), false)
           as has_identity_key
from tree t
join pg_class c on c.oid = t.oid
join pg_namespace n on n.oid = c.relnamespace
where c.relkind <> 'p'
order by t.root, n.nspname, c.relname

-- name: columns
-- Every live column. One whose NOT NULL is not validated yet (18) may have nulls.
select a.attname as name, a.attnum::int4 as attnum, a.atttypid::int8 as type_oid, a.atttypmod as typmod,
       format_type(a.atttypid, a.atttypmod) as type, a.attgenerated::text as generated,
       not a.attnotnull or exists (select from pg_constraint x where x.conrelid = a.attrelid and x.contype = 'n'
                                   and not x.convalidated and x.conkey[1] = a.attnum) as nullable
from pg_attribute a
where a.attrelid = %(oid)s::int8::oid and a.attnum > 0 and not a.attisdropped
order by a.attnum

-- name: unsent
-- The live columns that the publication, as it is, leaves out of the stream: those that are not in its list. Without a
-- list, generated ones, except the stored ones where the publication carries them (18). One that is not there yet will
-- be made so. What is new in 15 and 18 is read through jsonb.
select a.attrelid::int8 as oid, a.attname::text as name, a.attgenerated <> '' as generated, l.attnums is not null as listed
from pg_attribute a
cross join lateral (
    select coalesce(to_jsonb(p) ->> 'pubgencols' = 's',
                    p.oid is null and %(publication)s::text is not null and current_setting('server_version_num')::int4 >= 180000),
           nullif(to_jsonb(r) -> 'prattrs', 'null'::jsonb)
    from (select) one
    left join pg_publication p on p.pubname = %(publication)s
    left join pg_publication_rel r on r.prpubid = p.oid and r.prrelid = a.attrelid
) l (stored, attnums)
where a.attrelid = any (%(oids)s::int8[]::oid[]) and a.attnum > 0 and not a.attisdropped
  and not case when l.attnums is not null then l.attnums @> to_jsonb(a.attnum)
               else a.attgenerated = '' or a.attgenerated = 's' and l.stored end
order by a.attnum

-- name: relation
select n.nspname as schema, c.relname as name, c.relreplident::text as identity
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = %(oid)s::int8::oid

-- name: key
-- The key's columns in key order: the replica identity's index where one is chosen, else the primary key. "unvalidated":
-- the NOT NULL of the column that its rows have not been checked for (18). "alike": a type in it, however deep, of which
-- Postgres prints different values alike: those of objects' names, tsquery, which drops the brackets of a & (b & c), and
-- seg, which cuts its numbers short.
select c.oid::int8 as oid, a.attname::text as name, not i.indimmediate as deferrable,
       (select x.conname::text from pg_constraint x where x.conrelid = c.oid and x.contype = 'n'
        and not x.convalidated and x.conkey[1] = a.attnum) as unvalidated,
       (with recursive used (type) as (
            select a.atttypid
            union
            select x.type
            from used u
            join pg_type t on t.oid = u.type
            cross join lateral (
                values (t.typelem), (t.typbasetype)
                union all
                select r.rngsubtype from pg_range r where t.oid in (r.rngtypid, r.rngmultitypid)
                union all
                select m.atttypid from pg_attribute m where m.attrelid = t.typrelid and m.attnum > 0 and not m.attisdropped
            ) x (type)
            where x.type <> 0
        )
        select t.typname::text
        from used u
        join pg_type t on t.oid = u.type and t.typtype = 'b'
        where case t.typnamespace when 'pg_catalog'::regnamespace
                  then t.typname like 'reg%%' or t.typname = 'tsquery' else exists (
                  select from pg_depend d join pg_extension x on x.oid = d.refobjid
                  where d.classid = 'pg_type'::regclass and d.objid = t.oid and d.deptype = 'e'
                    and (x.extname, t.typname) = ('seg', 'seg')) end
        limit 1) as alike
from pg_class c
join pg_index i on i.indrelid = c.oid and i.indisvalid
     and case when c.relreplident = 'i' then i.indisreplident else i.indisprimary end
cross join lateral unnest(i.indkey::int2[]) with ordinality k (attnum, position)
join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
where c.oid = any (%(oids)s::int8[]::oid[]) and k.position <= i.indnkeyatts
order by k.position

-- name: types
select t.oid::int8 as oid, t.typname as name, n.nspname as schema, t.typtype::text as kind,
       t.typbasetype::int8 as base, t.typtypmod as typmod,
       case when e.typarray = t.oid then t.typelem::int8 else 0 end as element,
       (select x.extname from pg_depend d join pg_extension x on x.oid = d.refobjid
        where d.classid = 'pg_type'::regclass and d.objid = t.oid and d.deptype = 'e' limit 1) as extension
from pg_type t
join pg_namespace n on n.oid = t.typnamespace
left join pg_type e on e.oid = t.typelem
where t.oid = any (%(oids)s::int8[]::oid[])

-- name: type_names
select i.type_oid::int8, format_type(i.type_oid::oid, i.typmod)
from unnest(%(oids)s::int8[], %(typmods)s::int4[]) i (type_oid, typmod)

-- name: session
-- The settings of this session as they are, those that the server does not have as null, and its backend.
select s.setting, current_setting(s.setting, true) as value, pg_backend_pid() as pid
from unnest({names}::text[]) s (setting)

-- name: children
-- The tables that inherit from these, on any level, and are no partitions: they have rows, and a stream, of their own.
with recursive down (root, oid) as (
    select i.inhparent, i.inhrelid
    from pg_inherits i
    where i.inhparent = any (%(oids)s::int8[]::oid[])
    union
    select down.root, i.inhrelid
    from down
    join pg_inherits i on i.inhparent = down.oid
)
select down.root::int8 as oid, n.nspname::text as schema, c.relname::text as name
from down
join pg_class c on c.oid = down.oid
join pg_namespace n on n.oid = c.relnamespace
where not c.relispartition
order by 1, 2, 3

-- name: readable
-- The tables in which extensions note what they have spread, of those that are here. Each is asked by the query of its name.
select c.relname::text
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where (n.nspname, c.relname) in (('_timescaledb_catalog', 'hypertable'), ('pg_catalog', 'pg_dist_partition'))
  and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')

-- name: hypertable
select c.oid::int8
from _timescaledb_catalog.hypertable h
join pg_namespace n on n.nspname = h.schema_name
join pg_class c on c.relnamespace = n.oid and c.relname = h.table_name
where c.oid = any (%(oids)s::int8[]::oid[])

-- name: pg_dist_partition
select d.logicalrelid::oid::int8
from pg_catalog.pg_dist_partition d
where d.logicalrelid::oid = any (%(oids)s::int8[]::oid[])

-- name: parts
-- What inherits from these tables and relations, on any level, and of what they are partitions, on any level.
with recursive masked (oid, name) as (
    select c.oid, n.nspname || '.' || c.relname
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname || '.' || c.relname = any (%(tables)s::text[]) or c.oid = any (%(oids)s::int8[]::oid[])
), down (root, oid) as (
    select m.oid, i.inhrelid
    from masked m
    join pg_inherits i on i.inhparent = m.oid
    union
    select d.root, i.inhrelid
    from down d
    join pg_inherits i on i.inhparent = d.oid
), up (root, oid) as (
    select m.oid, i.inhparent
    from masked m
    join pg_class c on c.oid = m.oid and c.relispartition
    join pg_inherits i on i.inhrelid = m.oid
    union
    select u.root, i.inhparent
    from up u
    join pg_class c on c.oid = u.oid and c.relispartition
    join pg_inherits i on i.inhrelid = u.oid
)
select m.oid::int8, m.name, found.oid::int8
from (select root, oid from down union select root, oid from up) found
join masked m on m.oid = found.root
order by 1, 3
