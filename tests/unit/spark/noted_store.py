"""A store in memory whose clock is set by hand, and which notes what is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from cdc.process.clock import ManualClock
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.port import Applied, OpenSink, Schemas, Sink, Watermarks
from sinks.contract.table_places import TablePlace
from spark.figures.sink_metrics import SinkFigures
from spark.stores.store_thread import Store, Surroundings
from tests.unit.spark.records import TOPIC
from tests.unit.spark.test_store import TABLE, Bench


@dataclass
class Noted(Bench):
    """A bench; ``calls``: what its sinks were asked for. ``on_show`` may raise in place of a refresh,
    ``on_written`` behind a watermark that arrived."""

    clock: ManualClock = field(default_factory=ManualClock)
    calls: list[str] = field(default_factory=list)
    on_show: Callable[[], None] = lambda: None
    on_written: Callable[[], None] = lambda: None

    def store(self, name: str = "cache") -> Store:
        around = Surroundings(
            facts=self.facts,
            dead=self.dead,
            view=self.view,
            metrics=self.metrics,
            clock=self.clock,
        )
        self.stores.append(Store(name, self._connect, around))
        return self.stores[-1]

    @property
    def figures(self) -> SinkFigures:
        return self.metrics.sink("cache")

    def shows(self, watermark: Watermark) -> None:
        """The store was filled before, up to here."""
        self.memory.rows.setdefault(TABLE, {})
        place = TablePlace(topic_id="id1", offsets=watermark.offsets.get(TOPIC, {}), level_ms=watermark.level_ms)
        self.memory.places[TABLE] = place.to_json()
        self.memory.open().watermarks.write(watermark)

    def rest(self, store: Store, seconds: float = 0.0) -> None:
        """So much time passes, and the store is looked at as it is between two batches."""
        self.clock.advance(seconds)
        store.idle()
        store.run(lambda: None)

    def _connect(self) -> OpenSink:
        opened = super()._connect()
        marks = _NotedWatermarks(opened.watermarks, self)
        return replace(opened, sink=_NotedSink(opened.sink, self), watermarks=marks)


class _NotedWatermarks:
    def __init__(self, marks: Watermarks, bench: Noted) -> None:
        self._marks, self._bench = marks, bench
        self.read = marks.read

    def write(self, watermark: Watermark) -> None:
        self._marks.write(watermark)
        self._bench.on_written()


class _NotedSink:
    def __init__(self, sink: Sink, bench: Noted) -> None:
        self._sink, self._bench = sink, bench

    def prepare(self, schema: TableSchema, *, older: bool = False) -> None:
        self._bench.calls.append(f"prepare {schema.table}")
        self._sink.prepare(schema, older=older)

    def apply(self, events: pa.Table, schemas: Schemas) -> Applied:
        self._bench.calls.append("apply")
        return self._sink.apply(events, schemas)

    def show(self) -> None:
        self._bench.calls.append("show")
        self._bench.on_show()
        self._sink.show()

    def close(self) -> None:
        self._bench.calls.append("close")
        self._sink.close()
