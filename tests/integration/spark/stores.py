"""Stores with faults at command, for applications that run in the test's own process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from cdc.process.errors import SinkError
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.memory_store import MemoryStore
from sinks.contract.port import Applied, OpenSink, Schemas, Watermarks
from sinks.contract.sink_spec import SinkSpec


@dataclass
class FaultyStore:
    """A store in memory that can be away, and can hold whoever calls it."""

    memory: MemoryStore = field(default_factory=MemoryStore)
    away: bool = False
    free: threading.Event = field(default_factory=threading.Event)
    calls: int = 0
    fails: SinkError | None = None

    def __post_init__(self) -> None:
        self.free.set()

    def open(self) -> OpenSink:
        self.reach()
        opened = self.memory.open()
        return replace(opened, sink=_Sink(opened, self), watermarks=_Watermarks(opened.watermarks, self))

    def reach(self) -> None:
        """SinkError while the store is away; waits while it holds."""
        self.calls += 1
        self.free.wait()
        if self.fails is not None:
            raise self.fails
        if self.away:
            raise SinkError("the store is away", hint="wait for it")


def connecting(stores: dict[str, FaultyStore]) -> Callable[[SinkSpec], OpenSink]:
    """For :attr:`spark.runner.application.SinkApplication.connect`: a store by the prefix of its sink."""
    return lambda spec: stores[spec.prefix].open()


class _Sink:
    def __init__(self, opened: OpenSink, faults: FaultyStore) -> None:
        self._sink = opened.sink
        self._faults = faults

    def prepare(self, schema: TableSchema, *, older: bool = False) -> None:
        self._faults.reach()
        self._sink.prepare(schema, older=older)

    def apply(self, events: pa.Table, schemas: Schemas) -> Applied:
        self._faults.reach()
        return self._sink.apply(events, schemas)

    def show(self) -> None:
        self._faults.reach()

    def close(self) -> None:
        """Nothing is open."""


class _Watermarks:
    def __init__(self, watermarks: Watermarks, faults: FaultyStore) -> None:
        self._watermarks = watermarks
        self._faults = faults

    def read(self) -> Watermark | None:
        self._faults.reach()
        return self._watermarks.read()

    def write(self, watermark: Watermark) -> None:
        self._faults.reach()
        self._watermarks.write(watermark)
