-- name: database_exists
select from pg_database where datname = %s
