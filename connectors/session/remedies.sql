-- What is asked about tables that are set aside.

-- name: snapshot
select pg_current_snapshot()::text

-- name: brief
-- Whoever has the lock is not waited for: the next look asks again.
set local lock_timeout = '50ms'

-- name: probe
-- Takes the table's lock and checks the rights. Reads no row.
select {columns} from {table} limit 0
