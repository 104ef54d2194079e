-- The users of a SQL store on Postgres, run by an administrator, in the warehouse's own database:
--   psql -d warehouse -f warehouse.sql
-- [sinks.*] url names the first of them, without db_schema: its tables are made in its own schema.
-- Give both a password by \password afterwards, or a line in pg_hba.conf.
create role shop_sink login;
create schema shop authorization shop_sink;
alter role shop_sink set search_path = shop;

-- Programs and people that read. Tables that are made later are theirs to read as well.
create role shop_reader login;
grant usage on schema shop to shop_reader;
alter default privileges for role shop_sink in schema shop grant select on tables to shop_reader;
alter role shop_reader set search_path = shop;
