"""CPU of a view: its first documents, and documents and groups that change; no server.

A shop of 20,000 orders of 2,000 customers, with 60,000 lines, in topics in memory, and the view's state in a file.
First all documents are made. Then 10,000 lines change, each of one document, in cuts of 1,000, then 200 customers, each
of ten documents. A view of three figures by customer takes 10,000 changes of orders in the same way. CPU time of the
runner alone, publishing into memory included. Lines change twice, to show the noise.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from cdc.clock import SYSTEM_CLOCK
from cdc.position import Position
from cdc.progress import Progress
from cdc.schema import Column, Identity, TableSchema
from cdc.topic import TableName, partition_of
from cdc.views.keeper import Keeper, KeeperParts
from cdc.views.memory_views import MemoryViewInput, MemoryViewOutput, MemoryViewTopic
from cdc.views.view_plan import planned
from cdc.views.view_records import ViewRecords
from cdc.views.view_state import ViewState
from tests.bench.setting import Bench

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
        self._keeper = Keeper(KeeperParts(plan, self.state, self._log, output, records, topics), clock=SYSTEM_CLOCK)
        self._keeper.begin()

    def write(self, table: str, rows: Iterable[dict[str, Any]]) -> None:
        """Each row in a transaction of its own."""
        topic = f"b.{table}"
        for row in rows:
            self._lsn += 8
            key = orjson.dumps({"id": row["id"]})
            partition = partition_of(key, _PARTITIONS)
            pos = Position(1, self._lsn, 1).text().encode()
            value = orjson.dumps({"before": None, "after": row})
            offset = self._ends[topic][partition]
            self._log.partitions.setdefault((topic, partition), []).append((offset, (key, value, pos, b"u", b"1")))
            self._ends[topic][partition] = offset + 1

    def keep(self) -> float:
        """Seconds of CPU until everything that was written is published."""
        self._log.progress_ms = SYSTEM_CLOCK.now_ns() // 1_000_000
        ends = {topic: dict(parts) for topic, parts in self._ends.items()}
        self._log.newest = Progress(epoch=1, lsn=self._lsn + 4, offsets=ends)
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
    orders = bench.rows(20_000, 2 * _CUT)
    shop = _Shop(DOCUMENTS, bench.folder / "documents")
    _fill(shop, orders)
    shop.write("lines", (_line(number, orders) for number in range(3 * orders)))
    taken = shop.keep()
    bench.say(f"first documents: {taken / orders * 1e6:.0f} us CPU each, {orders / taken:,.0f}/s")
    for again in ("", ", again"):
        found = [_lines(shop, orders, first, again) for first in range(0, orders // 2, _CUT)]
        bench.say(f"a line of one document{again}: {sum(found) / len(found) / _CUT * 1e6:.0f} us CPU a change")
    renamed = orders // 100
    shop.write("customers", ({"id": number, "name": f"renamed {number}"} for number in range(renamed)))
    taken = shop.keep()
    bench.say(f"a customer of ten documents: {taken / renamed / 10 * 1e6:.0f} us CPU a document")
    shop.state.close()
    figures = _Shop(FIGURES, bench.folder / "figures")
    _fill(figures, orders)
    figures.keep()
    found = []
    for first in range(0, orders // 2, _CUT):
        figures.write("orders", (_order(number, orders, 7) for number in range(first, first + _CUT)))
        found.append(figures.keep())
    bench.say(f"an order in a group of three figures: {sum(found) / len(found) / _CUT * 1e6:.0f} us CPU a change")
    figures.state.close()


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
