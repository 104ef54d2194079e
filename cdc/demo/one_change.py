"""The first change that is looked at: an order is paid, and ``cdc events`` tells it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from rich.text import Text

from cdc.clock import Clock
from cdc.errors import CdcError
from cdc.sql import load
from cdc.up.children import Child

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
