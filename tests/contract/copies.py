"""Copies of one table in each store, made and put back by somebody else's hand."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from tests.contract import damage
from tests.contract.stores import Store
from tests.contract.topics import ORDERS
from tests.lakes import foreign_table

TABLE = ORDERS.table
Back = Callable[[], None]


def copied(store: Store) -> Back:
    """Keep the table as it is now, rows and place. What puts it back: under a newer claim it is an older copy."""
    make = {
        "memory": _memory,
        "redis": _redis,
        "opensearch": _opensearch,
        "delta": lambda one: _folder(damage.delta_folder(one)),
        "folder": lambda one: _folder(damage.json_folder(one)),
        "iceberg": _iceberg,
    }
    return make.get(store.kind, _sql)(store)


def _memory(store: Store) -> Back:
    memory = store.memory
    rows, place = dict(memory.rows[TABLE]), memory.places.get(TABLE)

    def back() -> None:
        memory.rows[TABLE] = dict(rows)
        memory.places.pop(TABLE, None)
        if place is not None:
            memory.places[TABLE] = place

    return back


def _redis(store: Store) -> Back:
    assert store.spec is not None
    keys = f"{store.spec.prefix}:public.orders:*"
    with damage.redis_of(store) as client:
        kept = {key: client.dump(key) for key in client.scan_iter(keys)}

    def back() -> None:
        with damage.redis_of(store) as client:
            for key in list(client.scan_iter(keys)):
                client.delete(key)
            for key, value in kept.items():
                client.restore(key, 0, value)

    return back


def _opensearch(store: Store) -> Back:
    """In an index of its own, to which readers are led."""
    assert store.spec is not None
    url, prefix = store.spec.options["url"], store.spec.prefix
    ours, alias = f"{prefix}-public.orders-1", f"{prefix}-public.orders"

    def asked(method: str, path: str, **body: Any) -> Any:
        answer = requests.request(method, f"{url}/{path}", timeout=60, **body)
        answer.raise_for_status()
        return answer.json()

    copy = f"{prefix}-kept"
    about = asked("GET", ours)[ours]
    asked("PUT", copy, json={"mappings": about["mappings"], "settings": {"index.refresh_interval": "-1"}})
    moved = {"source": {"index": ours}, "dest": {"index": copy, "version_type": "external_gte"}}
    asked("POST", f"{ours}/_refresh")
    asked("POST", "_reindex?refresh=true", json=moved)

    def back() -> None:
        live = {"bool": {"must_not": [{"term": {"_deleted": True}}]}}
        remove = {"remove": {"index": ours, "alias": alias}}
        asked("POST", "_aliases", json={"actions": [remove, {"add": {"index": copy, "alias": alias, "filter": live}}]})

    return back


def written_back(store: Store) -> Back:
    """The documents of a search index, its place among them, written back into the same index by hand: their versions
    are above the log's."""
    assert store.spec is not None
    url, prefix = store.spec.options["url"], store.spec.prefix
    ours, copy = f"{prefix}-public.orders-1", f"{prefix}-kept"

    def move(source: str, target: str) -> None:
        body = {"source": {"index": source}, "dest": {"index": target}}
        requests.post(f"{url}/{source}/_refresh", timeout=60).raise_for_status()
        requests.post(f"{url}/_reindex?refresh=true", json=body, timeout=60).raise_for_status()

    about = requests.get(f"{url}/{ours}", timeout=60).json()[ours]
    requests.put(f"{url}/{copy}", json={"mappings": about["mappings"]}, timeout=60).raise_for_status()
    move(ours, copy)
    return lambda: move(copy, ours)


def _folder(place: Path) -> Back:
    kept = place.with_name(f"{place.name}.kept")
    shutil.copytree(place, kept)

    def back() -> None:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(kept, place)

    return back


def _iceberg(store: Store) -> Back:
    assert store.spec is not None
    with foreign_table(store.spec) as table:
        kept = table.scan().to_arrow()

    def back() -> None:
        assert store.spec is not None
        with foreign_table(store.spec) as table, warnings.catch_warnings():
            # It deletes by writing files anew, whatever the table asks for, and warns of it.
            warnings.simplefilter("ignore", UserWarning)
            table.overwrite(kept)

    return back


def _sql(store: Store) -> Back:
    table = damage.sql_table(store)
    copy = table.replace("orders", "orders_kept")
    damage.execute(store, f"create table {copy} as select * from {table}")

    def back() -> None:
        damage.execute(store, f"delete from {table}; insert into {table} select * from {copy}")

    return back
