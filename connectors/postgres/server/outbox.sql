-- The outbox: a table's columns, and whether everyone may write logical messages. Every name is written out: sessions have
-- search_path=pg_catalog.

-- name: columns
select attname::text, format_type(atttypid, null) from pg_attribute
where attrelid = %(oid)s and attnum > 0 and not attisdropped

-- name: open_functions
select coalesce(array_agg(oid::regprocedure::text order by oid), '{}') from pg_proc
where proname = 'pg_logical_emit_message' and pronamespace = 'pg_catalog'::regnamespace
  and has_function_privilege('public', oid, 'execute')
