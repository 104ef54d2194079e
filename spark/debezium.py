"""Debezium's records as records of ours: with the three headers, before anything else looks at them.

A record that cannot be read keeps its bytes and gets a header that says why; :mod:`spark.source` sets it aside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.debezium.read import Change, PartitionReader, Settled, Unreadable
from cdc.epochs import EpochsState
from cdc.records import REASON_HEADER
from cdc.schema import TableSchema
from spark.source import RECORD_SCHEMA

Register = Callable[[str, TableSchema | None], int]
"""(topic, embedded shape or None) -> the version that the schema topic knows it by; 0 for none."""


class Translation:
    """Translates the batches of one run of a query, in their order. ``register`` and ``epochs`` may raise LogError.

    ``epochs`` is asked anew for each batch: a new epoch is noted before its first record is written.
    ``compaction_lag_s``: how old a record is at least before the cleaner may take it.
    """

    def __init__(
        self,
        register: Register,
        epochs: Callable[[], EpochsState],
        *,
        compaction_lag_s: float = 0.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._register = register
        self._epochs = epochs
        self._lag_ms = int(compaction_lag_s * 1000)
        self._clock = clock
        self._readers: dict[tuple[str, int], PartitionReader] = {}
        self._versions: dict[tuple[str, int], int] = {}

    def __call__(self, records: pa.Table) -> pa.Table:
        """The same columns (:data:`spark.source.RECORD_SCHEMA`); settled tombstones are left out."""
        if records.column("pos").null_count == 0:
            return records  # all of them ours
        ordered = records.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
        epochs = self._epochs() if records.num_rows else EpochsState()
        kept_ms = self._clock.now_ns() // 1_000_000 - self._lag_ms
        rows = [found for row in ordered.to_pylist() if (found := self._row(row, epochs, kept_ms)) is not None]
        return pa.Table.from_pylist(rows, schema=RECORD_SCHEMA)

    def _row(self, row: dict[str, Any], epochs: EpochsState, kept_ms: int) -> dict[str, Any] | None:
        if row["pos"] is not None:
            return row  # a record of ours, from before a handover
        headers = row["headers"] or []
        place = (row["topic"], row["partition"])
        reader = self._readers.get(place)
        if reader is None:
            reader = self._readers[place] = PartitionReader(*place)
        reader.epochs = epochs
        kept = row["time_ms"] is not None and row["time_ms"] > kept_ms
        match reader.read(row["offset"], row["key"], row["value"], kept=kept):
            case Settled():
                return None
            case Unreadable(reason):
                return row | {"headers": [*headers, {"key": REASON_HEADER, "value": reason.encode()}]}
            case Change() as change:
                told = {
                    "pos": change.pos.text(),
                    "op": change.op,
                    "ver": str(self._version(row["topic"], change)),
                }
                own = {name: text.encode() for name, text in told.items()}
                listed = [{"key": name, "value": value} for name, value in own.items()]
                return row | own | {"key": change.key, "value": change.value, "headers": [*headers, *listed]}

    def _version(self, topic: str, change: Change) -> int:
        known = self._versions.get((topic, change.ver)) if change.schema is not None else None
        if known is None:
            # Without an embedded schema the newest version counts, which may be another one by now.
            known = self._register(topic, change.schema)
            self._versions[topic, change.ver] = known
        return known
