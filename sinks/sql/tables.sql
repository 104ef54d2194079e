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
