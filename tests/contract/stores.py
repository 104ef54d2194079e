"""The stores that the contract is held against: a fresh corner of each, opened any number of times."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.record.schema import TableSchema
from sinks.contract.memory_store import MemoryStore
from sinks.contract.port import OpenSink, StoredRow
from sinks.contract.sink_spec import SinkSpec, open_sink
from tests.single_rows import canonical_row

Opener = Callable[[Clock], OpenSink]


@dataclass(repr=False)
class Store:
    """A corner of a store. ``spec`` None: the one in memory."""

    kind: str
    spec: SinkSpec | None = None
    memory: MemoryStore = field(default_factory=MemoryStore)
    opened: list[OpenSink] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def __repr__(self) -> str:
        return f"<{self.kind}>"

    def open(
        self, clock: Clock = SYSTEM_CLOCK, *, replay_window_s: float = 7 * 86_400.0, parallel: bool = False
    ) -> OpenSink:
        """Connect once more: as after a restart, or as another process."""
        if self.spec is None:
            self.memory.clock, self.memory.replay_window_s = clock, replay_window_s
            sink = self.memory.open()
        else:
            options = {**self.spec.options, "replay_window_s": replay_window_s}
            sink = open_sink(replace(self.spec, options=options, parallel=parallel), clock)
        self.opened.append(sink)
        return sink

    def fresh(self) -> Store:
        """Another empty corner of the same server, closed by :meth:`close` of this one."""
        if self.spec is None:
            return Store(self.kind, opened=self.opened)
        number = next(self.numbers)
        options = dict(self.spec.options)
        if self.kind in ("delta", "folder"):
            options["path"] = f"{options['path']}/{number}"
        if self.kind.startswith("sqlite"):
            options["url"] = f"{options['url']}{number}"
        if self.kind.startswith("postgres"):
            options["db_schema"] = f"{options['db_schema']}{number}"
        spec = replace(self.spec, prefix=f"{self.spec.prefix}{number}x", options=options)
        return Store(self.kind, spec, opened=self.opened)

    def close(self) -> None:
        for sink in self.opened:
            sink.close()


@contextmanager
def closing(store: Store) -> Iterator[Store]:
    try:
        yield store
    finally:
        store.close()


def rows(sink: OpenSink, schema: TableSchema) -> dict[str, StoredRow]:
    """Everything that shows, by key."""
    sink.sink.show()
    found: dict[str, StoredRow] = {}
    for batch in sink.reader.scan(schema):
        for row in batch.to_pylist():
            assert row["key"] not in found, "a key is stored twice"
            assert row["deleted"] == (row["row"] is None)
            found[row["key"]] = StoredRow(key=row["key"], pos=row["pos"], row=row["row"])
    return found


def live(sink: OpenSink, schema: TableSchema) -> dict[str, bytes]:
    """Canonical rows that show and are not deleted, by key."""
    return {key: canonical_row(row.row, schema) for key, row in rows(sink, schema).items() if row.row is not None}
