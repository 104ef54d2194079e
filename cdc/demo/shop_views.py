"""The chapter on views: their texts, and a renamed customer who is followed into each of his documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import psycopg
from rich.text import Text

from cdc.clock import Clock
from cdc.errors import CdcError
from cdc.lsn import Lsn
from cdc.settings import Settings
from cdc.sql import load
from cdc.topic import TableName
from cdc.wire.events import text
from cdc.wiring.freshness import Freshness
from connectors.view_topics import known_shapes
from sinks.stores import open_store

ORDER_SEARCH = TableName("view", "order_search")
TAKEN = {"search": ["public.*", str(ORDER_SEARCH)], "warehouse": ["public.*", "view.sales_by_product"]}
"""The ``tables`` of the stores that take a view."""
NEW_NAME = "Customer of the demo"
_VIEWS = ("order_search", "sales_by_product")
_STORE = "search"
_TIMEOUT_S = 60.0


def write_views(folder: Path) -> str:
    """Write the views' texts below ``folder``, where their state will be. Returns their sections of the settings."""
    texts = load("cdc.demo", "views.sql")
    folder = folder / "views"
    folder.mkdir()
    sections = []
    for name in _VIEWS:
        file = folder / f"{name}.sql"
        file.write_text(texts[name] + "\n", encoding="utf-8")
        paths = f"sql = {_quoted(file)}\nstate = {_quoted(folder / 'state')}\n"
        sections.append(f"[views.{name}]\n{paths}")
    return "".join(sections)


def _quoted(path: Path) -> str:
    return orjson.dumps(str(path)).decode()


def order_search_text() -> str:
    """The text of ``order_search``, to be shown."""
    return load("cdc.demo", "views.sql")["order_search"]


def renamed_customer(dsn: str, settings: Settings, clock: Clock) -> Iterator[Text]:
    """Rename the customer with the most orders, wait for his documents, and show them.

    CdcError when a document that the store shows by then has the old name.
    """
    texts = load("cdc.demo", "views.sql")
    with Freshness(settings) as freshness, psycopg.connect(dsn, autocommit=True) as connection:
        freshness.wait(_STORE, _token(connection), timeout_s=_TIMEOUT_S, table=str(ORDER_SEARCH))
        found = connection.execute(texts["best_customer"]).fetchone()
        if found is None:
            raise CdcError("there is no customer to rename")
        customer, orders = found
        yield Text(f"update customers set name = '{NEW_NAME}' where id = {customer}", style="cyan")
        began_s = clock.monotonic()
        connection.execute(texts["rename_customer"], {"name": NEW_NAME, "customer": customer})
        token = _token(connection)
        freshness.wait(_STORE, token, timeout_s=_TIMEOUT_S, table=str(ORDER_SEARCH))
        passed_s = clock.monotonic() - began_s
    documents = list(_documents(settings, orders))
    renamed = [one for one in documents if (one.get("customer") or {}).get("name") == NEW_NAME]
    if len(renamed) < len(orders):
        raise CdcError(f"{len(orders) - len(renamed)} of {len(orders)} documents have the old name")
    yield Text(f"{len(renamed)} of {len(orders)} documents in {_STORE} show it {passed_s:.1f} s after the commit")
    yield Text.assemble((f"{_STORE:<10}", "bold"), f"{ORDER_SEARCH} {orders[0]}  {text(renamed[0])}")


def _token(connection: psycopg.Connection) -> int:
    found = connection.execute(load("cdc.demo", "views.sql")["written"]).fetchone()
    return Lsn.parse(found[0]) if found is not None else 0


def _documents(settings: Settings, keys: list[int]) -> Iterator[dict[str, Any]]:
    """The stored documents of these orders."""
    shape = known_shapes(settings).latest(ORDER_SEARCH)
    if shape is None:
        raise CdcError("the view order_search is not published yet")
    with closing(open_store(_STORE, settings)) as store:
        for key in keys:
            stored = store.reader.get(shape, str(key))
            if stored is not None and stored.row is not None:
                yield orjson.loads(stored.row)
