-- name: take_xid
select pg_current_xact_id()

-- name: see
select pg_current_snapshot()::text
