"""Databases that tests are done with, for the next ones: to make one and to drop it takes ten times what a look takes.

One is used again if nothing in it tells it from a new one, once what stands in ``public`` is dropped.
"""

from __future__ import annotations

from contextlib import suppress

import psycopg
from psycopg import sql

_DROP = """
do $$
declare
    one text;
begin
    -- Each list is whole before the first of it goes: others go with that.
    for one in select unnest(array(select format('drop publication %I', pubname) from pg_publication)) loop
        execute one;
    end loop;
    for one in
        select unnest(array(
            select format('drop %s if exists public.%I cascade',
                case relkind when 'v' then 'view' when 'm' then 'materialized view' when 'S' then 'sequence'
                    when 'f' then 'foreign table' else 'table' end, relname)
            from pg_class
            where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'S', 'f')
        ))
    loop
        execute one;
    end loop;
    for one in
        select unnest(array(
            select format('drop routine if exists %s cascade', oid::regprocedure)
            from pg_proc where pronamespace = 'public'::regnamespace
        ))
    loop
        execute one;
    end loop;
    for one in
        select unnest(array(
            select format('drop type if exists public.%I cascade', typname)
            from pg_type
            where typnamespace = 'public'::regnamespace and typtype in ('d', 'e', 'c', 'r')
        ))
    loop
        execute one;
    end loop;
    for one in
        select unnest(array(
            select format('drop schema %I cascade', nspname) from pg_namespace
            where oid >= 16384 and nspname !~ '^pg_(toast_)?temp_'
        ))
    loop
        execute one;
    end loop;
end
$$
"""
_MADE = " union all ".join(
    f"select '{catalog} ' || oid from pg_catalog.{catalog} where oid >= 16384"
    for catalog in (
        "pg_am", "pg_attrdef", "pg_cast", "pg_class", "pg_collation", "pg_constraint", "pg_conversion",
        "pg_default_acl", "pg_event_trigger", "pg_extension", "pg_foreign_data_wrapper", "pg_foreign_server",
        "pg_language", "pg_largeobject_metadata", "pg_opclass", "pg_operator", "pg_opfamily", "pg_policy", "pg_proc",
        "pg_publication", "pg_statistic_ext", "pg_transform", "pg_trigger", "pg_ts_config", "pg_ts_dict", "pg_type",
    )
)  # fmt: skip
_STATE = f"""
select string_agg(what, ',' order by what) from (
    {_MADE}
    union all select 'schema ' || nspname || coalesce(nspacl::text, '') || nspowner from pg_namespace
        where nspname !~ '^pg_(toast_)?temp_'
    union all select 'right ' || oid || proacl::text from pg_proc where proacl is not null
    union all select 'right ' || oid || relacl::text from pg_class where relacl is not null
    union all select 'right ' || attrelid || attname || attacl::text from pg_attribute
        where attacl is not null
    union all select 'database ' || (to_jsonb(d) - '{{oid,datname,datfrozenxid,datminmxid}}'::text[])::text
        from pg_database d where datname = current_database()
    union all select 'setting ' || setconfig::text from pg_db_role_setting
        where setdatabase = (select oid from pg_database where datname = current_database())
    union all select 'label ' || label from pg_seclabel
    union all select 'subscription ' || subname from pg_subscription
        where subdbid = (select oid from pg_database where datname = current_database())
) found(what)
"""

_left: dict[str, list[str]] = {}
_new: dict[str, object] = {}
"""Of each server: what a new database is like."""


def note(server: str, name: str) -> None:
    """This database of the server is a new one."""
    if server not in _new:
        with psycopg.connect(server, dbname=name, autocommit=True) as session:
            _new[server] = _state(session)


def leave(server: str, name: str) -> None:
    """Somebody may have this database of the server next, which nobody uses any more. Where it cannot be made as new
    ones are, it is dropped."""
    if _is_as_new(server, name):
        _left.setdefault(server, []).append(name)
    else:
        _drop(server, name)


def take(server: str) -> str | None:
    """A database of the server that is as new ones are; None where there is none."""
    left = _left.get(server)
    return left.pop() if left else None


def drop_all(server: str) -> None:
    """Drop those that are left."""
    for name in _left.pop(server, []):
        _drop(server, name)


def _drop(server: str, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


def _is_as_new(server: str, name: str) -> bool:
    with suppress(psycopg.Error), psycopg.connect(server, autocommit=True) as admin:
        admin.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s", [name])
        with psycopg.connect(server, dbname=name, autocommit=True) as inside:
            inside.execute(_DROP)
            return _state(inside) == _new[server]
    return False


def _state(session: psycopg.Connection[tuple[object, ...]]) -> object:
    session.execute("set jit = off")
    row = session.execute(_STATE).fetchone()
    assert row is not None
    return row[0]
