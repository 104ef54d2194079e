-- What SQLAlchemy has no construct for. Names and types are put in quoted, by the dialect's own preparer.

-- name: add_column
alter table {table} add column {column} {type};

-- name: retype_postgresql
alter table {table} alter column {column} type {type} using {expression};

-- name: lock_postgresql
lock table {table} in exclusive mode;

-- name: copy_postgresql
copy {table} ({columns}) from stdin (format csv);

-- name: stage_postgresql
create temporary table if not exists {stage} (like {table}) on commit delete rows;

-- name: clear_stage_postgresql
truncate {stage};

-- name: find_live_postgresql
select to_regclass(:view), obj_description(to_regclass(:view), 'pg_class');

-- name: reads_table
select exists (select from pg_rewrite r join pg_depend d on d.objid = r.oid and d.classid = 'pg_rewrite'::regclass
               where r.ev_class = to_regclass(:view) and d.refobjid = to_regclass(:table));

-- name: find_live_sqlite
select name, sql from sqlite_master where name = :view;

-- name: live
select {columns} from {table} where not {deleted}

-- name: live_postgresql
create or replace view {view} as {rows};

-- name: mark_live_postgresql
comment on view {view} is '{mark}';

-- name: live_sqlite
create view {view} as {rows} /* {mark} */;

-- name: drop_live
drop view {view};

-- name: live_grants
select case when a.grantee = 0 then 'public' else quote_ident(r.rolname) end, a.privilege_type
from pg_class c cross join aclexplode(c.relacl) a left join pg_roles r on r.oid = a.grantee
where c.oid = to_regclass(:view) and a.grantee <> c.relowner;

-- name: grant_live
grant {right} on {view} to {grantee};

-- name: find_labels
select a.attname, obj_description(c.oid, 'pg_constraint')
from pg_constraint c join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
where c.conrelid = to_regclass(:table) and c.contype = 'c' and obj_description(c.oid, 'pg_constraint') like :mark;

-- name: drop_labels
alter table {table} drop constraint if exists {name};

-- name: add_labels
-- Rows that are there have fewer labels, or none. Of no label at all "= any" is false for a null as well.
alter table {table} add constraint {name} check ({column} is null or {column} = any (array[{labels}]::text[])) not valid;

-- name: comment_labels
comment on constraint {name} on {table} is {comment};
