-- What the checks and the status read of a server. Every name is written out: sessions have search_path=pg_catalog.

-- name: server
select current_setting('server_version_num')::int4 as version,
       current_setting('server_version') as version_text,
       current_database()::text as database,
       d.oid::int8 as database_oid,
       current_user::text as role,
       -- Amazon's way is a role to be a member of.
       r.rolreplication or r.rolsuper or exists (
           select from pg_roles m where m.rolname = 'rds_replication' and pg_has_role(m.oid, 'member')) as granted_replication,
       pg_is_in_recovery() as in_recovery,
       pg_encoding_to_char(d.encoding)::text as encoding,
       current_setting('wal_level') as wal_level,
       current_setting('max_replication_slots')::int4 as slots_max,
       (select count(*) from pg_replication_slots)::int4 as slots_used,
       current_setting('max_wal_senders')::int4 as senders_max,
       -- Every role sees that there is one, and some see no more of it.
       (select count(*) from pg_stat_replication)::int4 as senders_used,
       (select case when setting::int8 < 0 then null else setting::int8 * 1024 * 1024 end
        from pg_settings where name = 'max_slot_wal_keep_size') as max_slot_wal_keep_bytes,
       current_setting('synchronous_standby_names') as synchronous_standby_names,
       coalesce(current_setting('synchronized_standby_slots', true), '') as synchronized_standby_slots,
       array(select name
             from regexp_split_to_table(current_setting('synchronized_standby_slots', true), '[ ,"]+') with ordinality as named(name, place)
             where name <> '' and not exists (
               select from pg_replication_slots r where r.slot_name = name and r.slot_type = 'physical' and r.active)
             order by place) as standbys_away,
       array(select distinct split_part(name, '.', 1) from pg_settings
             where split_part(name, '.', 1) = any (%(marks)s::text[])) as settings,
       array(select rolname::text from pg_roles where rolname = any (%(marks)s::text[])) as roles
from pg_database d, pg_roles r
where d.datname = current_database() and r.rolname = current_user

-- name: system_identifier
select system_identifier::text from pg_control_system()

-- name: wal_lsn
select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8

-- name: timeline
-- The control file has a promoted server's new timeline only from its next checkpoint on.
select ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int4

-- name: noted_timeline
select timeline_id from pg_control_checkpoint()

-- name: slot
-- Columns newer than PostgreSQL 14 are read through jsonb, so that one statement serves all versions.
select s.slot_name::text as slot,
       s.plugin::text as plugin,
       s.database::text as database,
       s.active_pid,
       s.wal_status,
       (s.restart_lsn - '0/0'::pg_lsn)::int8 as restart_lsn,
       (s.confirmed_flush_lsn - '0/0'::pg_lsn)::int8 as confirmed_flush_lsn,
       case when pg_is_in_recovery() then null
            else greatest(pg_current_wal_insert_lsn() - s.restart_lsn, 0)::int8 end as retained_bytes,
       s.safe_wal_size as safe_wal_bytes,
       to_jsonb(s) ->> 'invalidation_reason' as invalidation_reason,
       coalesce((to_jsonb(s) ->> 'failover')::bool, false) as failover,
       coalesce((to_jsonb(s) ->> 'synced')::bool, false) as synced,
       s.temporary,
       age(s.xmin) as xmin_age,
       age(s.catalog_xmin) as catalog_xmin_age,
       s.catalog_xmin::text::int8 as catalog_xmin
from pg_replication_slots s
where s.slot_name = %(slot)s

-- name: publishing
-- What making a publication needs: the right to create in the database, and to own each table.
select has_database_privilege(current_database(), 'create') as may_create,
       array(select format('%%I.%%I', n.nspname, c.relname)
             from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where format('%%s.%%s', n.nspname, c.relname) = any(%(tables)s::text[]) and not pg_has_role(c.relowner, 'usage')
             order by 1) as of_others

-- name: publication
select p.pubname::text as publication,
       array_remove(array[case when p.pubinsert then 'insert' end, case when p.pubupdate then 'update' end,
                          case when p.pubdelete then 'delete' end, case when p.pubtruncate then 'truncate' end], null) as operations,
       p.pubviaroot as via_root
from pg_publication p
where p.pubname = %(publication)s

-- name: published
-- The tables as the server names them in the stream. The view pg_publication_tables says the same, but opens every
-- table, and waits for whoever has one locked. "sends": column list and row filter, as stored. "born": the
-- catalog rows that publish the table, each with the transaction that wrote it; where its schema does, also what
-- says that it is in the schema. "listed": the publication names it by itself. Schemas are found in pg_depend:
-- pg_publication_namespace is new in 15. Columns that are new in 15, and in 19 the one that says that the publication of
-- all tables leaves a table out, with its partitions, are read through jsonb.
with recursive pub as materialized (
    select p.oid, p.xmin::text as born, p.puballtables, p.pubviaroot
    from pg_publication p
    where p.pubname = %(publication)s
), schemas as materialized (
    select s.refobjid as oid, s.objid || '/' || s.xmin::text as born
    from pub
    join pg_depend d on d.refclassid = 'pg_publication'::regclass and d.refobjid = pub.oid
                    and d.classid = to_regclass('pg_catalog.pg_publication_namespace')
    join pg_depend s on s.classid = d.classid and s.objid = d.objid and s.refclassid = 'pg_namespace'::regclass
), listed as materialized (
    select r.prrelid as oid, r.oid || '/' || r.xmin::text as born,
           nullif(to_jsonb(r) -> 'prattrs', 'null'::jsonb) as attnums, to_jsonb(r) ->> 'prqual' as filter
    from pub join pg_publication_rel r on r.prpubid = pub.oid
    where not coalesce((to_jsonb(r) ->> 'prexcept')::bool, false)
), excepted (oid) as (
    select r.prrelid
    from pub join pg_publication_rel r on r.prpubid = pub.oid
    where (to_jsonb(r) ->> 'prexcept')::bool
    union
    select i.inhrelid
    from excepted e
    join pg_inherits i on i.inhparent = e.oid
    join pg_class c on c.oid = i.inhrelid and c.relispartition
), named as (
    select l.oid from listed l
    union
    select c.oid from pg_class c
    where (c.relnamespace in (select s.oid from schemas s) or (select pub.puballtables from pub) and c.oid >= 16384)
      and c.relkind in ('r', 'p') and c.relpersistence = 'p' and c.oid not in (select e.oid from excepted e)
), tree (root, oid) as (
    select n.oid, n.oid from named n
    union
    select t.root, i.inhrelid
    from tree t
    join pg_inherits i on i.inhparent = t.oid and not i.inhdetachpending
    join pg_class c on c.oid = i.inhrelid and c.relispartition
)
select c.oid::int8 as oid, n.nspname::text as schema, c.relname::text as name,
       own.filter is not null as filtered,
       concat_ws(' ', coalesce(own.attnums::text, '*'), own.filter) as sends,
       exists (select from listed l where l.oid = c.oid) as listed,
       (select concat_ws(' ', pub.oid || '/' || pub.born,
                         string_agg(distinct l.born, ' ' order by l.born),
                         string_agg(distinct s.born || '/' || d.xmin::text, ' ' order by s.born || '/' || d.xmin::text))
        from tree t
        join pg_class root on root.oid = t.root
        left join listed l on l.oid = t.root
        left join schemas s on s.oid = root.relnamespace
        left join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = t.root and d.objsubid = 0
                             and d.refclassid = 'pg_namespace'::regclass and d.refobjid = s.oid
        where t.oid = c.oid) as born
from pub
cross join pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join listed own on own.oid = c.oid and c.relnamespace not in (select s.oid from schemas s)
where case when pub.pubviaroot
           then c.oid in (select n.oid from named n) and c.oid not in (select t.oid from tree t where t.root <> t.oid)
           else c.relkind <> 'p' and c.oid in (select t.oid from tree t) end

-- name: named
-- Tables by name or by oid.
select c.oid::int8 as oid, n.nspname::text as schema, c.relname::text as name
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where (c.oid = any (%(oids)s::int8[]::oid[]) or n.nspname || '.' || c.relname = any (%(tables)s::text[]))
  and c.relkind in ('r', 'p')

-- name: transactions
-- What slot creation would wait for: anything with an xid or a snapshot that has been open for long, prepared ones too.
select a.pid, coalesce(nullif(a.application_name, ''), 'no application_name') as name, coalesce(a.usename, '')::text as role,
       extract(epoch from clock_timestamp() - a.xact_start)::float8 as age_s
from pg_stat_activity a
where a.backend_type = 'client backend' and a.backend_xid is not null and a.pid <> pg_backend_pid()
  and a.xact_start < clock_timestamp() - make_interval(secs => %(age_s)s)
union all
select null, p.gid, p.owner::text, extract(epoch from clock_timestamp() - p.prepared)::float8
from pg_prepared_xacts p
where p.prepared < clock_timestamp() - make_interval(secs => %(age_s)s)
order by 4 desc
limit 5

-- name: hidden
-- Whether a transaction of another role is open that our role may not see: then it is not among those above. Its lock
-- is shown to every role.
select exists (
    select from pg_locks l
    join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted and a.backend_type is null)
