"""CPU of a view: its first documents, and documents and groups that change; no server.

A shop of 20,000 orders of 2,000 customers, with 60,000 lines, in topics in memory, and the view's state in a file.
First all documents are made. Then 10,000 lines change, each of one document, in cuts of 1,000, then 200 customers, each
of ten documents, and 1,000 orders come to one customer, who is renamed. Last is a mix, in cuts of 1,000 and of 10,000:
of a hundred changes 40 are of lines, 25 of orders, 15 new lines, 8 lines deleted, 4 lines moved to another order, 5 new
orders, 2 orders deleted and 1 a customer renamed. A view of three figures by customer takes 10,000 changes of orders,
in cuts of 1,000 and all at once. CPU time of the runner alone, publishing into memory included. Lines change twice, to
show the noise. The state's size is that of its file beside the JSON of all columns that the view uses.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.position import Position
from cdc.record.progress import Progress
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName, partition_of
from cdc.views.view_plan import planned
from cdc.views.view_records import ViewRecords
from cdc.views.view_runner import KeeperParts, ViewRunner
from cdc.views.view_state import ViewState
from tests.bench.setting import Bench
from tests.memory_views import MemoryViewInput, MemoryViewOutput, MemoryViewTopic

_PARTITIONS, _CUT = 4, 1000
DOCUMENTS = """
select o.id, o.status, json_build_object('id', c.id, 'name', c.name) as customer,
       (select json_agg(json_build_object('sku', l.sku, 'quantity', l.quantity) order by l.id)
          from lines l where l.order_id = o.id) as lines
  from orders o left join customers c on c.id = o.customer_id
"""
FIGURES = "select customer_id, count(*) as orders, sum(total) as total, max(total) as largest from orders group by 1"


def _table(table: str, **kinds: str) -> TableSchema:
    columns = enumerate(kinds.items(), 1)
    return TableSchema(
        table=TableName("public", table),
        topic=f"b.{table}",
        version=1,
        oid=1,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=tuple(
            Column(name=c, attnum=n, type=kind, type_oid=0, kind=kind, key_position=0 if c == "id" else None)
            for n, (c, kind) in columns
        ),
    )


SHAPES = (
    _table("orders", id="int4", customer_id="int4", status="text", total="int4"),
    _table("customers", id="int4", name="text"),
    _table("lines", id="int4", order_id="int4", sku="text", quantity="int4"),
)


class _Shop:
    """The topics in memory, and one view that is kept over them."""

    def __init__(self, sql: str, folder: Path) -> None:
        self._log = MemoryViewInput({shape.topic: shape for shape in SHAPES})
        self._ends = {shape.topic: dict.fromkeys(range(_PARTITIONS), 0) for shape in SHAPES}
        self._lsn = 8
        plan = planned(sql, SHAPES)
        self.state = ViewState(folder, plan, 1)
        records = ViewRecords(plan, "v", "b.view.v.1", _PARTITIONS, name="b", database="b")
        topics = {shape.table: shape.topic for shape in SHAPES if shape.table in plan.relations}
        output = MemoryViewOutput(MemoryViewTopic())
        self._keeper = ViewRunner(KeeperParts(plan, self.state, self._log, output, records, topics), clock=SYSTEM_CLOCK)
        self._keeper.begin()

    def write(self, table: str, rows: Iterable[dict[str, Any]]) -> None:
        """Each row in a transaction of its own."""
        for row in rows:
            self._append(table, row["id"], orjson.dumps({"before": None, "after": row}), b"u")

    def delete(self, table: str, number: int) -> None:
        """A row goes."""
        self._append(table, number, b'{"before":{"id":%d},"after":null}' % number, b"d")

    def _append(self, table: str, number: int, value: bytes, op: bytes) -> None:
        topic = f"b.{table}"
        self._lsn += 8
        key = b'{"id":%d}' % number
        partition = partition_of(key, _PARTITIONS)
        pos = Position(1, self._lsn, 1).text().encode()
        offset = self._ends[topic][partition]
        self._log.partitions.setdefault((topic, partition), []).append((offset, (key, value, pos, op, b"1")))
        self._ends[topic][partition] = offset + 1

    def keep(self) -> float:
        """Seconds of CPU until everything that was written is published."""
        self._log.progress_ms = SYSTEM_CLOCK.now_ns() // 1_000_000
        ends = {topic: dict(parts) for topic, parts in self._ends.items()}
        self._log.newest = Progress(epoch=1, lsn=self._lsn + 4, offsets=ends)
        # The log stands in memory here, and no runner's collector would walk it.
        gc.collect()
        gc.freeze()
        begun = time.process_time()
        self._keeper.turn()
        while not self._keeper.level:
            self._keeper.turn()
        taken = time.process_time() - begun
        # The double reads a partition from its beginning each time.
        for records in self._log.partitions.values():
            del records[:-1]
        return taken


def bench(bench: Bench) -> None:
    orders = bench.rows(20_000, 10 * _CUT)
    shop = _Shop(DOCUMENTS, bench.folder / "documents")
    _fill(shop, orders)
    shop.write("lines", (_line(number, orders) for number in range(3 * orders)))
    taken = shop.keep()
    bench.say(f"first documents: {taken / orders * 1e6:.0f} us CPU each, {orders / taken:,.0f}/s")
    size, used = sum(file.stat().st_size for file in bench.folder.glob("documents*")), _used_bytes(orders)
    bench.say(f"their state: {size / 1e6:,.1f} MB, {size / used:.2f} of the columns' JSON")
    for again in ("", ", again"):
        found = [_lines(shop, orders, first, again) for first in range(0, 10 * _CUT, _CUT)]
        bench.say(f"a line of one document{again}: {sum(found) / len(found) / _CUT * 1e6:.0f} us CPU a change")
    renamed = orders // 100
    shop.write("customers", ({"id": number, "name": f"renamed {number}"} for number in range(renamed)))
    taken = shop.keep()
    bench.say(f"a customer of ten documents: {taken / renamed / 10 * 1e6:.0f} us CPU a document")
    _hot(bench, shop, orders)
    mix = _Mix(shop, orders)
    for cut in (_CUT, 10 * _CUT):
        found = [mix.keep(cut) for _ in range(10 * _CUT // cut)]
        each = sum(found) / len(found) / cut
        bench.say(f"a mix in cuts of {cut:,}: {each * 1e6:.0f} us CPU a change, {1 / each:,.0f}/s")
    shop.state.close()
    _figures(bench, orders)


def _hot(bench: Bench, shop: _Shop, orders: int) -> None:
    """A row that a twentieth of all documents show."""
    many = orders // 20
    shop.write("orders", ({**_order(number, orders, 0), "customer_id": 0} for number in range(many)))
    shop.keep()
    shop.write("customers", [{"id": 0, "name": "renamed once more"}])
    taken = shop.keep()
    bench.say(f"a customer of {many:,} documents: {taken:.2f} s CPU, {taken / many * 1e6:.0f} us a document")


def _figures(bench: Bench, orders: int) -> None:
    figures = _Shop(FIGURES, bench.folder / "figures")
    _fill(figures, orders)
    figures.keep()
    for more, cut in enumerate((_CUT, 10 * _CUT), 7):
        found = []
        for first in range(0, 10 * _CUT, cut):
            figures.write("orders", (_order(number, orders, more) for number in range(first, first + cut)))
            found.append(figures.keep())
        each = sum(found) / len(found) / cut
        bench.say(f"an order in a group of three figures, cuts of {cut:,}: {each * 1e6:.0f} us CPU a change")
    figures.state.close()


class _Mix:
    """Changes of a shop, one of each hundred as the module says, drawn by one seed."""

    def __init__(self, shop: _Shop, orders: int) -> None:
        self._shop = shop
        self._orders = orders
        self._next = {"orders": orders, "lines": 3 * orders}
        self._chance = random.Random(1)

    def keep(self, changes: int) -> float:
        """Write so many, and return the seconds of CPU until they are published."""
        for _ in range(changes):
            self._change(self._chance.randrange(100))
        return self._shop.keep()

    def _change(self, drawn: int) -> None:
        write, some = self._shop.write, self._chance.randrange
        line, order = some(3 * self._orders), some(self._orders)
        if drawn < 40:
            write("lines", [_line(line, self._orders, f"mixed {some(1000)}")])
        elif drawn < 65:
            write("orders", [{**_order(order, self._orders, 0), "status": f"state {some(1000)}"}])
        elif drawn < 80:
            write("lines", [{**_line(self._new("lines"), self._orders), "order_id": order}])
        elif drawn < 88:
            self._shop.delete("lines", line)
        elif drawn < 92:
            write("lines", [{**_line(line, self._orders), "order_id": order}])
        elif drawn < 97:
            write("orders", [_order(self._new("orders"), self._orders, 0)])
        elif drawn < 99:
            self._shop.delete("orders", order)
        else:
            write("customers", [{"id": 1 + some(self._orders // 10 - 1), "name": f"mixed {some(1000)}"}])

    def _new(self, table: str) -> int:
        self._next[table] += 1
        return self._next[table]


def _used_bytes(orders: int) -> int:
    """Of the columns that the documents are made of, as JSON."""
    customers = sum(_size({"id": n, "name": f"customer {n}"}) for n in range(orders // 10))
    rows = sum(_size({**_order(n, orders, 0), "total": None}) - len(',"total":null') for n in range(orders))
    return customers + rows + sum(_size(_line(n, orders)) for n in range(3 * orders))


def _size(row: dict[str, Any]) -> int:
    return len(orjson.dumps(row))


def _fill(shop: _Shop, orders: int) -> None:
    shop.write("customers", ({"id": number, "name": f"customer {number}"} for number in range(orders // 10)))
    shop.write("orders", (_order(number, orders, 0) for number in range(orders)))


def _lines(shop: _Shop, orders: int, first: int, again: str) -> float:
    shop.write("lines", (_line(number, orders, f"changed{again}") for number in range(first, first + _CUT)))
    return shop.keep()


def _order(number: int, orders: int, more: int) -> dict[str, Any]:
    return {"id": number, "customer_id": number % (orders // 10), "status": "open", "total": number % 1000 + more}


def _line(number: int, orders: int, sku: str = "sku") -> dict[str, Any]:
    """Each order has three lines, and neighbours are of other orders."""
    return {"id": number, "order_id": number % orders, "sku": f"{sku} {number}", "quantity": 2}
