-- The walsender session. START_REPLICATION takes no parameters: names are quoted on the way in. Its grammar
-- knows upper case only.

-- name: timeout
select setting::int8 as timeout_ms from pg_settings where name = 'wal_sender_timeout'

-- name: gss_encrypted
select encrypted from pg_stat_gssapi where pid = pg_backend_pid()

-- name: start
START_REPLICATION SLOT {slot} LOGICAL {lsn} (proto_version '1', publication_names {publications}, messages 'true')
