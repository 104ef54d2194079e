"""What a user's hand does to a table's place in each store, and takes back again."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import redis
import requests
import sqlalchemy as sa

from cdc.record.position import Position
from sinks.contract.port import StoredRow
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store_names import folder
from tests.contract.stores import Store
from tests.contract.topics import ORDERS
from tests.lakes import foreign_catalog, foreign_table
from tests.redis_rights import as_default

TABLE = ORDERS.table
SQL = ("sqlite", "sqlite-generic", "postgres", "postgres-generic")


def drop(store: Store) -> None:
    """Remove the place of ``public.orders``: its index, its table, its folder."""
    match store.kind:
        case "memory":
            del store.memory.rows[TABLE]
        case "opensearch":
            requests.delete(_index(store), timeout=30).raise_for_status()
        case "delta":
            shutil.rmtree(delta_folder(store))
        case "iceberg":
            with foreign_catalog(_sink_spec(store)) as catalog:
                catalog.opened.drop_table((catalog.place.namespace, "public_orders"))
        case "folder":
            shutil.rmtree(json_folder(store))
        case _:
            # The view of live rows hangs on it.
            execute(store, f"drop table {sql_table(store)}{' cascade' if store.kind.startswith('postgres') else ''}")


def close(store: Store) -> None:
    """Let the place take nothing."""
    match store.kind:
        case "memory":
            store.memory.closed = frozenset((TABLE,))
        case "opensearch":
            settings(store, {"index.blocks.write": True})
        case "delta":
            deltalake.DeltaTable(delta_folder(store)).alter.add_constraint({"mine": "id < 2"})
        case "iceberg":
            _rename_in_iceberg(store, "note", "remark")
        case "folder":
            json_folder(store).rename(json_folder(store).with_suffix(".aside"))
            json_folder(store).touch()
        case _:
            execute(store, f"alter table {sql_table(store)} rename column note to remark")


def demand(store: Store) -> None:
    """Give a table of SQL a column of the user's own that asks for a value, which we have none of."""
    table = sql_table(store)
    if store.kind.startswith("postgres"):
        execute(store, f"alter table {table} add column mine int not null default 0")
        execute(store, f"alter table {table} alter column mine drop default")
        return
    engine = sa.create_engine(_spec(store)["url"], poolclass=sa.NullPool)
    with engine.begin() as connection:
        made = connection.exec_driver_sql("select sql from sqlite_master where name = 'public_orders'").scalar_one()
        connection.exec_driver_sql("pragma legacy_alter_table = on")
        connection.exec_driver_sql(f"alter table {table} rename to before")
        head, _, tail = str(made).rpartition("PRIMARY KEY")
        connection.exec_driver_sql(f"{head}mine int not null, PRIMARY KEY{tail}")
        connection.exec_driver_sql(f"insert into {table} select *, 0 from before")
        connection.exec_driver_sql("drop table before")


def demand_no_more(store: Store) -> None:
    """Take :func:`demand` back."""
    execute(store, f"alter table {sql_table(store)} drop column mine")


def reopen(store: Store) -> None:
    """Take :func:`close` back."""
    match store.kind:
        case "memory":
            store.memory.closed = frozenset()
        case "opensearch":
            settings(store, {"index.blocks.write": None})
        case "delta":
            deltalake.DeltaTable(delta_folder(store)).alter.drop_constraint("mine")
        case "iceberg":
            _rename_in_iceberg(store, "remark", "note")
        case "folder":
            json_folder(store).unlink()
            json_folder(store).with_suffix(".aside").rename(json_folder(store))
        case _:
            execute(store, f"alter table {sql_table(store)} rename column remark to note")


def settings(store: Store, wanted: dict[str, Any]) -> None:
    requests.put(f"{_index(store)}/_settings", json=wanted, timeout=30).raise_for_status()


def execute(store: Store, statement: str) -> None:
    engine = sa.create_engine(_spec(store)["url"], poolclass=sa.NullPool)
    with engine.begin() as connection:
        for one in statement.split(";"):
            connection.exec_driver_sql(one)


def sql_table(store: Store) -> str:
    schema = _spec(store)["db_schema"]
    return f'"{schema}".orders' if schema else "public_orders"


def delta_folder(store: Store) -> Path:
    return Path(_spec(store)["path"], folder(TABLE.schema), folder(TABLE.table))


def json_folder(store: Store) -> Path:
    """Where the store of the tests' own kind keeps a table."""
    place = (folder(TABLE.schema), folder(TABLE.table))
    return Path(_spec(store)["path"], _sink_spec(store).prefix, "1", "tables", *place)


def _index(store: Store) -> str:
    assert store.spec is not None
    return f"{store.spec.options['url']}/{store.spec.prefix}-public.orders-1"


def _spec(store: Store) -> dict[str, Any]:
    return dict(_sink_spec(store).options)


def _sink_spec(store: Store) -> SinkSpec:
    assert store.spec is not None
    return store.spec


def plant(store: Store, key: str, pos: str | None, note: str = "foreign") -> None:
    """A row of ``public.orders`` by somebody else's hand, with or without a position."""
    match store.kind:
        case "memory":
            memory_row = b'{"id":%b,"status":"foreign","note":"%b"}' % (key.encode(), note.encode())
            store.memory.rows[TABLE][key] = StoredRow(key=key, pos=pos or "", row=memory_row)
        case "redis":
            fields = {"row": f'{{"id":{key},"status":"foreign","note":"{note}"}}', **({"pos": pos} if pos else {})}
            with redis_of(store) as client:
                client.delete(f"shop:public.orders:{key}")
                client.hset(f"shop:public.orders:{key}", mapping=fields)
        case "opensearch":
            document = {"id": int(key), "status": "foreign", "note": note, **({"_pos": pos} if pos else {})}
            version: dict[str, Any] = {}
            if pos:
                version = {"version": Position.parse(pos).document_version(), "version_type": "external_gte"}
            path = f"{_index(store)}/_doc/{key}"
            requests.put(path, json=document, params=version | {"refresh": "true"}, timeout=30).raise_for_status()
        case "delta":
            _plant_in_delta(store, key, pos, note)
        case "iceberg":
            _plant_in_iceberg(store, key, pos, note)
        case "folder":
            row = f'{{"id":{key},"status":"foreign","note":"{note}"}}'
            held = {"key": key, "row": row, **({"pos": pos} if pos else {})}
            (json_folder(store) / f"{key}_.json").write_text(json.dumps(held), encoding="utf-8")
        case _:
            if pos is None:
                execute(store, _NULLABLE[store.kind.partition("-")[0]].format(table=sql_table(store)))
            said = f"'{pos}'" if pos else "null"
            execute(store, f"delete from {sql_table(store)} where _key = '{key}'")
            execute(
                store,
                f"insert into {sql_table(store)} (id, status, note, _key, _pos, _deleted) "
                f"values ({key}, 'foreign', '{note}', '{key}', {said}, false)",
            )


_NULLABLE = {
    "postgres": "alter table {table} alter column _pos drop not null",
    # SQLite renames no table while a view reads one that is not there.
    "sqlite": "drop view if exists {table}_live;"
    "create table copied as select * from {table}; drop table {table}; alter table copied rename to {table};"
    "create unique index copied_key on {table} (_key)",
}


def _plant_in_delta(store: Store, key: str, pos: str | None, note: str) -> None:
    table = deltalake.DeltaTable(delta_folder(store))
    table.delete(f"_key = '{key}'")
    schema: Any = pa.schema
    types = {field.name: field.type for field in schema(table.schema().to_arrow())}
    given = {"id": int(key), "status": "foreign", "note": note, "_key": key, "_pos": pos}
    row: Any = pa.table({name: pa.array([given.get(name)], kind) for name, kind in types.items()})
    deltalake.write_deltalake(table, row, mode="append")


def _plant_in_iceberg(store: Store, key: str, pos: str | None, note: str) -> None:
    given = {"id": int(key), "status": "foreign", "note": note, "cdc_key": key, "cdc_pos": pos}
    with foreign_table(_sink_spec(store)) as table, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        types = {field.name: field.type for field in table.schema().as_arrow()}
        row: Any = pa.table({name: pa.array([given.get(name)], kind) for name, kind in types.items()})
        table.overwrite(row, f"cdc_key = '{key}'")


def _rename_in_iceberg(store: Store, before: str, after: str) -> None:
    with foreign_table(_sink_spec(store)) as table, table.update_schema() as change:
        change.rename_column(before, after)


def redis_of(store: Store) -> Any:
    """A client of the cache."""
    return redis.Redis.from_url(as_default(_spec(store)["url"]))


def copy_row(store: Store, key: str, *, deleted: bool = False) -> None:
    """A second row under a key of ``public.orders``, appended by another writer."""
    if store.kind == "iceberg":
        with foreign_table(_sink_spec(store)) as lake:
            found: Any = lake.scan(f"cdc_key = '{key}'").to_arrow()
            at = found.schema.get_field_index("cdc_deleted")
            lake.append(found.set_column(at, found.schema.field(at), pa.array([deleted] * found.num_rows)))
        return
    table = deltalake.DeltaTable(delta_folder(store))
    schema: Any = pa.schema
    rows = pa.table(table.scan(predicate=f"_key = '{key}'")).cast(schema(table.schema().to_arrow()))
    place = rows.schema.get_field_index("_deleted")
    rows = rows.set_column(place, rows.schema.field(place), pa.array([deleted] * rows.num_rows))
    deltalake.write_deltalake(delta_folder(store), rows, mode="append")


def remove_exact(store: Store) -> None:
    """The column ``_exact`` of ``public.orders`` goes."""
    if store.kind == "iceberg":
        with foreign_table(_sink_spec(store)) as lake, lake.update_schema(allow_incompatible_changes=True) as change:
            change.delete_column("cdc_exact")
        return
    if store.kind == "delta":
        table = deltalake.DeltaTable(delta_folder(store))
        schema: Any = pa.schema
        rows = pa.table(table.scan()).cast(schema(table.schema().to_arrow())).drop_columns(["_exact"])
        deltalake.write_deltalake(delta_folder(store), rows, mode="overwrite", schema_mode="overwrite")
        return
    execute(store, f"alter table {sql_table(store)} drop column _exact")
