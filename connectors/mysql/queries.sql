-- The catalog of MySQL and MariaDB, and where their binlog stands. Names are given as parameters. Columns have aliases:
-- MySQL 8 gives their names in capitals.

-- name: version
select version() as version, @@global.log_bin as log_bin, @@global.server_id as server_id

-- name: mysql_gtid_mode
select @@global.gtid_mode as gtid_mode

-- name: mysql_executed
-- Only what other sessions see: the server adds a transaction once its engine has committed it.
select @@global.gtid_executed as gtids

-- name: mariadb_written
select @@global.gtid_binlog_pos as gtids

-- name: pinned
set session time_zone = '+00:00', sql_mode = '', net_write_timeout = 600, net_read_timeout = 600

-- name: repeatable
set session transaction isolation level repeatable read

-- name: snapshot
start transaction with consistent snapshot, read only

-- name: mariadb_snapshot_place
-- Where the binlog stood as the snapshot was taken: commits are ordered alike in both, so this is exact.
select max(case when variable_name = 'BINLOG_SNAPSHOT_FILE' then variable_value end) as file,
       max(case when variable_name = 'BINLOG_SNAPSHOT_POSITION' then variable_value end) as pos
from information_schema.session_status
where variable_name in ('BINLOG_SNAPSHOT_FILE', 'BINLOG_SNAPSHOT_POSITION')

-- name: end_place
show master status

-- name: end_place_84
-- From MySQL 8.4 on, which does not know the other word.
show binary log status

-- name: columns
select column_name as name, data_type as type, column_type as declared, is_nullable as nullable
from information_schema.columns
where table_schema = :database and table_name = :table
order by ordinal_position

-- name: primary_key
select column_name as name
from information_schema.key_column_usage
where table_schema = :database and table_name = :table and constraint_name = 'PRIMARY'
order by ordinal_position

-- name: estimate
select table_rows as estimate
from information_schema.tables
where table_schema = :database and table_name = :table
