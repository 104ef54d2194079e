-- name: token
-- One column, so that it reads the same through every driver and every row factory. The functions may be called by every
-- role. The names are qualified, because an application's connection has its own search_path. No percent sign: drivers take
-- it for a parameter.
-- A transaction that has written is open: its commit comes later than any token of now. The server says so also where the
-- driver does not.
-- A standby writes no WAL of its own: there the text is null. The control file has a promoted server's new timeline only
-- from its next checkpoint on.
-- Behind a record that ends with its page, the place where the next one goes is behind that page's header, and no record
-- ends there while the server is quiet. The page's start is the same place: 24 bytes are the header (SizeOfXLogShortPHD),
-- 40 at the beginning of a segment (SizeOfXLogLongPHD).
select case when pg_catalog.pg_current_xact_id_if_assigned() is not null then 'a transaction is open' else
         control.system_identifier::pg_catalog.text || '/'
         || ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(written.lsn), 8))::pg_catalog.bit(32)::pg_catalog.int8 || ':'
         || case when within.segment = 40 then (written.lsn - 40::pg_catalog.numeric)::pg_catalog.text
                 when within.page = 24 and within.segment <> 24 then (written.lsn - 24::pg_catalog.numeric)::pg_catalog.text
                 else written.lsn::pg_catalog.text end
       end as token
from pg_catalog.pg_control_system() as control, pg_catalog.pg_control_init() as made,
     (select case when pg_catalog.pg_is_in_recovery() then null
                  else pg_catalog.pg_current_wal_insert_lsn() end as lsn offset 0) as written,
     lateral (select pg_catalog.mod(written.lsn - '0/0'::pg_catalog.pg_lsn, made.wal_block_size) as page,
                     pg_catalog.mod(written.lsn - '0/0'::pg_catalog.pg_lsn, made.bytes_per_wal_segment) as segment) as within
