-- name: send_signal
insert into {table} (id, type, data) values (%s, %s, %s);
