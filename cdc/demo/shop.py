"""The shop's database, and its life: inserts, updates, key changes and deletes, in small transactions, from one
seed."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from cdc import outbox
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.sql_files import load


@dataclass(frozen=True, slots=True)
class ShopSize:
    """How much there is to begin with. 30,000 orders make about 128,000 rows."""

    orders: int = 30_000
    products: int = 3_000


def make_shop(dsn: str, size: ShopSize) -> dict[str, int]:
    """Make and fill the tables in an empty database. Table -> rows."""
    queries = load("cdc.demo", "shop.sql")
    with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(queries["schema"])
        connection.execute(queries["rows"], {"orders": size.orders, "products": size.products})
        connection.execute(queries["analyze"])
        return dict(connection.execute(queries["counts"]).fetchall())


TRANSACTIONS_PER_S = 150
KINDS = ("inserts", "updates", "key changes", "deletes")
"""The names under which rows are counted."""
EVENTS = "events"


class Workload(threading.Thread):
    """Runs for ``duration_s`` or until :meth:`stop`. On a machine too busy to show each kind it has ten seconds more.

    ``counts`` says what it did, ``error`` what stopped it.
    """

    def __init__(
        self, dsn: str, size: ShopSize, duration_s: float, *, seed: int = 7, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(name="workload", daemon=True)
        self.counts: Counter[str] = Counter()
        """Rows by the kinds of :data:`KINDS`, events, and transactions."""
        self.error: psycopg.Error | None = None
        self._dsn = dsn
        self._size = size
        self._duration_s = duration_s
        self._clock = clock
        self._random = random.Random(seed)
        self._queries = load("cdc.demo", "shop.sql")
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End after the transaction at hand."""
        self._stopped.set()

    def run(self) -> None:
        """Write transactions at a steady rate. Keeps a database error in ``error`` and ends with it."""
        began = self._clock.monotonic()
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                while not self._stopped.is_set() and not self._over(passed := self._clock.monotonic() - began):
                    ahead_s = self.counts["transactions"] / TRANSACTIONS_PER_S - passed
                    if ahead_s > 0:
                        self._clock.sleep(ahead_s)
                    with connection.transaction():
                        self._one(connection)
                    self.counts["transactions"] += 1
        except psycopg.Error as error:
            self.error = error

    def _over(self, passed_s: float) -> bool:
        """Whether the time is over, of which ``passed_s`` went by."""
        if passed_s < self._duration_s:
            return False
        return all(self.counts[kind] for kind in KINDS) or passed_s >= self._duration_s + 10

    def _one(self, connection: psycopg.Connection[Any]) -> None:
        kinds: list[tuple[int, Callable[[_Session], None]]] = [
            (40, self._order),
            (25, self._pay),
            (10, self._ship),
            (8, self._cancel),
            (7, self._reprice),
            (5, self._renumber),
            (5, self._tag),
        ]
        chosen = self._random.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]
        chosen(_Session(connection, self._queries, self.counts))

    def _order(self, session: _Session) -> None:
        customer = self._random.randint(1, self._size.orders * 3 // 8)
        note = self._random.choice([None, "a gift", "Größe 42, bitte"])
        placed = session.one("inserts", "place_order", customer=customer, total=0, note=note)
        for line in range(1, self._random.randint(2, 5)):
            part = {"product": self._random.randint(1, self._size.products), "quantity": self._random.randint(1, 4)}
            session.run("inserts", "order_line", order=placed, line=line, **part)
            session.run("updates", "take_stock", warehouse=self._random.choice(["north", "south"]), **part)
        session.run("updates", "sum_order", order=placed)

    def _pay(self, session: _Session) -> None:
        order = self._some_order()
        if session.run("updates", "pay", order=order):
            session.run("inserts", "payment", order=order)
            session.tell_paid(order)

    def _ship(self, session: _Session) -> None:
        session.run("updates", "ship", order=self._some_order())

    def _cancel(self, session: _Session) -> None:
        order = self._some_order()
        session.run("deletes", "drop_lines", order=order)
        session.run("deletes", "drop_order", order=order)

    def _reprice(self, session: _Session) -> None:
        session.run("updates", "reprice", product=self._random.randint(1, self._size.products))

    def _renumber(self, session: _Session) -> None:
        session.run("key changes", "renumber", order=self._some_order())

    def _tag(self, session: _Session) -> None:
        customer = self._random.randint(1, self._size.orders * 3 // 8)
        session.run("updates", "tag", customer=customer, points=self._random.randint(0, 1000))

    def _some_order(self) -> int:
        return self._random.randint(1, self._size.orders)


class _Session:
    """Runs named statements and counts the rows they touch."""

    def __init__(self, connection: psycopg.Connection[Any], queries: dict[str, str], counts: Counter[str]) -> None:
        self._connection = connection
        self._queries = queries
        self._counts = counts

    def run(self, what: str, name: str, **arguments: object) -> int:
        rows = max(0, self._connection.execute(self._queries[name], arguments).rowcount)
        self._counts[what] += rows
        return rows

    def tell_paid(self, order: int) -> None:
        """An event for others, in the same transaction."""
        for amount, at in self._connection.execute(self._queries["paid"], {"order": order}):
            outbox.emit(self._connection, "Order", order, "OrderPaid", {"at": at, "amount": amount})
            self._counts[EVENTS] += 1

    def one(self, what: str, name: str, **arguments: object) -> int:
        found = self._connection.execute(self._queries[name], arguments).fetchone()
        self._counts[what] += 1
        return int(found[0]) if found is not None else 0
