-- What init and drop do with a publication. Every name is written out: sessions have search_path=pg_catalog. Each table
-- has ONLY before it: without it, those that inherit from it would be published as well, with or without a key.

-- name: lock_timeout
set local lock_timeout = '3s'

-- name: create
create publication {publication} for table {tables}
with (publish = 'insert, update, delete, truncate', publish_via_partition_root = true)

-- name: create_18
create publication {publication} for table {tables}
with (publish = 'insert, update, delete, truncate', publish_via_partition_root = true, publish_generated_columns = stored)

-- name: add
alter publication {publication} add table {tables}

-- name: via_root
alter publication {publication} set (publish_via_partition_root = true)

-- name: every_operation
alter publication {publication} set (publish = 'insert, update, delete, truncate')

-- name: drop
drop publication if exists {publication}
