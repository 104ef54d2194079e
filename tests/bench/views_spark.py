"""A view whose state executors keep: time and bytes of its first build and of batches, on Spark of this machine.

A shop: for each ten orders one customer, and three lines for each order. Its topics are made up by a formula where a
task reads them, so no broker is measured, and what is published goes into memory. After the first build come
batches in which a share of all rows has changed: of hundred changes 59 of lines, 40 of orders, and one of customers,
who has ten documents. ``--scale 10`` takes 4 million rows in place of 400,000. Times are of the clock on the wall.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from cdc.clock import SYSTEM_CLOCK
from cdc.jvm.java import java_home
from cdc.position import Position
from cdc.progress import Progress
from cdc.views.memory_views import MemoryViewInput, MemoryViewOutput, MemoryViewTopic
from cdc.views.state_reach import Bound
from cdc.views.view_plan import planned
from cdc.wire.records import Lot, Span
from connectors.view_bucketed import opened_session
from spark.spark_session import SessionSpec
from spark.views.bucket_files import DOCUMENTS as STAGED
from spark.views.bucket_keeper import BucketKeeper
from spark.views.delta_tables import DeltaTables
from spark.views.keeper_parts import BucketKeeperParts
from spark.views.spark_exchange import SparkExchange
from spark.views.view_batches import STATE_TABLES, ViewBatches
from spark.views.view_parts import ShippedView
from tests.bench.setting import Bench
from tests.bench.views import DOCUMENTS, SHAPES

_PARTITIONS = 4
_LOT = 5_000
_PER_ORDER = {"b.orders": 1.0, "b.customers": 0.1, "b.lines": 3.0}
_CHANGES = {"b.orders": 0.40, "b.customers": 0.01, "b.lines": 0.59}


@dataclass(frozen=True)
class ShopLog:
    """The topics by a formula. ``orders``: how many rows that table has. Each partition has its rows first, and changes
    of rows behind them. Implements :class:`cdc.wire.records.ReaderOpener`, and its reader."""

    orders: int

    def open(self) -> ShopLog:
        return self

    def close(self) -> None:
        """Nothing is open."""

    def rows(self, topic: str) -> int:
        """Of a partition."""
        return int(self.orders * _PER_ORDER[topic]) // _PARTITIONS

    def read(self, spans: Iterable[Span]) -> Iterator[Lot]:
        for span in spans:
            begin = max(span.start, 0)
            while begin < span.end:
                end = min(begin + _LOT, span.end)
                yield self._lot(span.topic, span.partition, begin, end)
                begin = end

    def _lot(self, topic: str, partition: int, begin: int, end: int) -> Lot:
        count = end - begin
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        pos: list[bytes | None] = []
        for offset in range(begin, end):
            there = self.rows(topic)
            place = offset if offset < there else offset * 2_654_435_761 % there
            number = place * _PARTITIONS + partition
            keys.append(orjson.dumps({"id": number}))
            values.append(orjson.dumps({"before": None, "after": self._row(topic, number, offset)}))
            pos.append(Position(1, 8 * (offset + 1), 1).text().encode())
        ops: list[bytes | None] = [b"u"] * count
        versions: list[bytes | None] = [b"1"] * count
        now_ms = SYSTEM_CLOCK.now_ns() // 1_000_000
        return Lot(topic, partition, list(range(begin, end)), [now_ms] * count, keys, values, pos, ops, versions, {})

    def _row(self, topic: str, number: int, offset: int) -> dict[str, Any]:
        if topic == "b.customers":
            return {"id": number, "name": f"n{number} {offset}"}
        if topic == "b.orders":
            customer = (number + offset) % max(1, self.orders // 10)
            return {"id": number, "customer_id": customer, "status": f"s{offset % 5}", "total": offset}
        return {"id": number, "order_id": number % self.orders, "sku": f"sku{offset % 999}", "quantity": offset % 9}


@dataclass
class _Input(MemoryViewInput):
    log: ShopLog = field(default_factory=lambda: ShopLog(1))

    def beyond(self, offsets: Any) -> bool:
        return False


class _Topic(MemoryViewOutput):
    """Counts what is published, and keeps none of it."""

    def publish(self, records: Any, claim: Any, closed: Any = None) -> dict[int, int]:
        if claim is not None:
            super().publish([], claim, closed)
        return {}


class _Kept:
    """One view over such a log on a session."""

    def __init__(self, session: Any, log: ShopLog, folder: Path, buckets: int) -> None:
        self._log = log
        plan = planned(DOCUMENTS, SHAPES)
        shapes = tuple(shape.to_json().decode() for shape in SHAPES)
        shipped = ShippedView(DOCUMENTS, shapes, ("public",), str(folder / "state"), buckets)
        forms = [*(form.entries for form in shipped.parts().forms.values()), *STATE_TABLES, STAGED]
        self.tables = DeltaTables(folder / "state", forms, SYSTEM_CLOCK)
        self._input = _Input({shape.topic: shape for shape in SHAPES}, log=log)
        self._behind = 0
        parts = BucketKeeperParts(
            shipped=shipped,
            bound=Bound.to(plan),
            generation=1,
            tables=self.tables,
            batches=ViewBatches(shipped, SparkExchange(session, "v")),
            input=self._input,
            opener=log,
            output=_Topic(MemoryViewTopic()),
            topics={shape.table: shape.topic for shape in SHAPES},
            view="v",
            topic="b.view.v.1",
            topic_id="",
            partitions=_PARTITIONS,
            name="b",
            database="b",
        )
        self.keeper = BucketKeeper(parts, clock=SYSTEM_CLOCK)
        self.keeper.begin()

    def keep(self, changes: int) -> tuple[float, float, int, int]:
        """So many changes more. Seconds of the cut and of the documents, bytes that were read, and documents."""
        self._behind += changes
        ends: dict[str, dict[int, int]] = {}
        for topic, share in _CHANGES.items():
            end = self._log.rows(topic) + int(self._behind * share) // _PARTITIONS
            ends[topic] = dict.fromkeys(range(_PARTITIONS), end)
        self._input.newest = Progress(epoch=1, lsn=8 * (max(e[0] for e in ends.values()) + 2), offsets=ends)
        self._input.progress_ms = SYSTEM_CLOCK.now_ns() // 1_000_000
        begun = time.monotonic()
        self.keeper.turn()
        cut_s = time.monotonic() - begun
        documents = read = 0
        while not self.keeper.level:
            turn = self.keeper.turn()
            documents += turn.documents
        read = self.keeper.read_bytes
        return cut_s, time.monotonic() - begun - cut_s, read, documents


def bench(bench: Bench) -> None:
    rows = bench.rows(400_000, 40_000)
    cores, buckets = 2, 64 if rows <= 1_000_000 else 256
    spec = SessionSpec(
        name="bench", master=f"local[{cores}]", driver_memory="2g", log_folder=bench.folder, java_home=java_home()
    )
    with ExitStack() as stack:
        session = stack.enter_context(opened_session(spec))
        kept = _Kept(session, ShopLog(int(rows / 4.1)), bench.folder, buckets)
        stack.callback(shutil.rmtree, bench.folder / "state", ignore_errors=True)
        cut_s, made_s, read, documents = kept.keep(0)
        size = kept.tables.size_bytes()
        bench.say(f"{rows:,} rows on {cores} cores: loaded in {cut_s:.0f} s, {documents:,} documents in {made_s:.0f} s")
        bench.say(f"state of {size / 1e6:.0f} MB in {buckets} buckets, {read / 1e6:.0f} MB read by the build")
        for changes in (100, 1_000, rows // 100, rows // 100, rows // 100):
            cut_s, made_s, read, documents = kept.keep(changes)
            said = f"{changes:,} changes: {cut_s:.1f} s, and {documents:,} documents in {made_s:.1f} s"
            bench.say(f"{said}; {read / 1e6:.1f} MB read")
