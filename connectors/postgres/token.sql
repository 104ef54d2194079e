-- name: token
-- One column, so that it reads the same through every driver and every row factory. The functions may be called by every
-- role. The names are qualified, because an application's connection has its own search_path.
-- A standby writes no WAL of its own: there the text is null. The control file has a promoted server's new timeline only
-- from its next checkpoint on.
select control.system_identifier::pg_catalog.text || '/'
       || ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(written.lsn), 8))::pg_catalog.bit(32)::pg_catalog.int8 || ':'
       || written.lsn::pg_catalog.text as token
from pg_catalog.pg_control_system() as control,
     (select case when pg_catalog.pg_is_in_recovery() then null
                  else pg_catalog.pg_current_wal_insert_lsn() end as lsn offset 0) as written
