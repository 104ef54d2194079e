"""The demo's chapters behind the first: one change looked at, one order in every store, and the views."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import orjson
import psycopg
from rich.text import Text

from cdc.cli.pipeline_processes import TIMEOUT_S, Child
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError
from cdc.process.sql_files import load
from cdc.record.position import Lsn
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings
from cdc.stack.local import LocalStack
from cdc.stack.postgres import install_folder
from cdc.wire.events import text
from cdc.wiring import open_schemas
from cdc.wiring.sinks import Freshness
from connectors.views.view_topics import known_shapes
from sinks.contract.stores import open_store

_TOLD = '"paid"}  was'
_LOOK_S = 0.25
_AGAIN_S = 2.0
_TIMEOUT_S = 60.0


def paid_order(dsn: str, events: Child, clock: Clock) -> Iterator[Text]:
    """Pay an order, and show the line that ``events``, a running ``cdc events orders``, has for it.

    It is paid again until the command, which may be starting, has heard of it. CdcError when it ends or hears nothing.
    """
    texts = load("cdc.demo", "shop.sql")
    yield Text(f"postgres=# {texts['pay_shown']};", style="cyan")
    deadline = clock.monotonic() + _TIMEOUT_S
    again = 0.0
    with psycopg.connect(dsn, autocommit=True) as connection:
        while (line := told(events.log.read_text(encoding="utf-8"))) is None:
            events.require_running()
            now = clock.monotonic()
            if now > deadline:
                raise CdcError("cdc events told of no change", hint=f"its output is in {events.log}")
            if now >= again:
                connection.execute(texts["open_shown"])
                connection.execute(texts["pay_shown"])
                again = now + _AGAIN_S
            clock.sleep(_LOOK_S)
    yield Text(line)


def told(printed: str) -> str | None:
    """The last whole line of ``printed`` that tells of a payment.

    >>> told('orders 42  update  0/1  {"status": "paid"}  was {"status": "open"}\\norders 42  upd')
    'orders 42  update  0/1  {"status": "paid"}  was {"status": "open"}'
    >>> told("") is None
    True
    """
    whole, _, _ = printed.rpartition("\n")
    return next((line for line in reversed(whole.splitlines()) if _TOLD in line), None)


ORDER_SEARCH = TableName("view", "order_search")
TAKEN = {"search": ["public.*", str(ORDER_SEARCH)], "warehouse": ["public.*", "view.sales_by_product"]}
"""The ``tables`` of the stores that take a view."""
NEW_NAME = "Customer of the demo"
_VIEWS = ("order_search", "sales_by_product")
_STORE = "search"


def write_views(folder: Path) -> str:
    """Write the views' texts below ``folder``, where their state will be. Returns their sections of the settings."""
    texts = load("cdc.demo", "shop.sql")
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
    return load("cdc.demo", "shop.sql")["order_search"]


def renamed_customer(dsn: str, settings: Settings, clock: Clock) -> Iterator[Text]:
    """Rename the customer with the most orders, wait for his documents, and show them.

    CdcError when a document that the store shows by then has the old name.
    """
    texts = load("cdc.demo", "shop.sql")
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
    found = connection.execute(load("cdc.demo", "shop.sql")["written"]).fetchone()
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


ORDERS = TableName("public", "orders")


def same_order(dsn: str, settings: Settings) -> Iterator[Text]:
    """A line per store: the newest paid order as the store has it. Raises CdcError when no order is paid yet."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute(load("cdc.demo", "shop.sql")["shown_order"]).fetchone()
    shape = open_schemas(settings).latest(ORDERS)
    if found is None or shape is None:
        raise CdcError("there is no paid order to show")
    for name in settings.sinks:
        with closing(open_store(name, settings)) as store:
            stored = store.reader.get(shape, str(found[0]))
        row = "nothing" if stored is None or stored.row is None else text(orjson.loads(stored.row))
        yield Text.assemble((f"{name:<10}", "bold"), f"order {found[0]}  {row}")


def look_around(config: Path) -> Iterator[str]:
    """Commands for a demo that was left running."""
    shown = os.path.relpath(config)
    connections = LocalStack(config.parent).connections()
    yield f"  export CDC_CONFIG={shown}"
    yield "  cdc status"
    yield "  cdc events orders                       # then, elsewhere:"
    source = f"{connections['postgres']['dsn']} dbname=shop"
    update = "update orders set note = 'hello' where id = 42"
    yield f'  {install_folder() / "bin" / "psql"} "{source}" -c "{update}"'
    yield f"  curl {connections['opensearch']['url']}/shop-public.orders/_doc/42"
    yield f"  redis-cli -u {connections['redis']['url']} hgetall shop:public.orders:42"
    yield "  cdc verify"
    yield "  cdc demo --stop                         # ends it all and removes its data"


def stop_kept(folder: Path) -> bool:
    """End a demo that was left running, and remove its data. Whether there was one."""
    pids = folder / "demo.pids"
    ended = False
    if pids.exists():
        for line in pids.read_text(encoding="utf-8").split():
            ended |= _end(int(line))
        pids.unlink()
    stack = LocalStack(folder)
    ended |= stack.running()
    stack.wipe()
    return ended


def _end(pid: int) -> bool:
    """End a process group whose leader is one of our commands. A number that is somebody else's now is let be."""
    with suppress(OSError):
        if b"cdc" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        os.killpg(pid, signal.SIGTERM)
        _wait_for_end(pid)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        return True
    return False


def _wait_for_end(pid: int) -> None:
    deadline = SYSTEM_CLOCK.monotonic() + TIMEOUT_S
    while Path(f"/proc/{pid}").exists() and SYSTEM_CLOCK.monotonic() < deadline:
        SYSTEM_CLOCK.sleep(0.05)
