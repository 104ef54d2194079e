"""The demo's last screen: one order in every store, and the commands to go on with."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import orjson
import psycopg
from rich.text import Text

from cdc.clock import SYSTEM_CLOCK
from cdc.errors import CdcError
from cdc.settings import Settings
from cdc.sql import load
from cdc.stack.local import LocalStack
from cdc.stack.postgres import install_folder
from cdc.topic import TableName
from cdc.up.children import TIMEOUT_S
from cdc.wire.events import text
from cdc.wiring import open_schemas
from sinks.stores import open_store

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
