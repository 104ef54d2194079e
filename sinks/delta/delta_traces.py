"""The traces of deleted rows in a Delta warehouse: rows, replaced files, and bounds in its log. For ``cdc forget``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from deltalake.exceptions import DeltaError

from cdc.clock import Clock
from cdc.forget.holding import Kept, Trace, moment
from cdc.position import Position
from cdc.schema import TableSchema
from cdc.sql import quote_literal
from sinks.delta.delta_leftovers import (
    DeltaLeftovers,
    Leftover,
    begins_below,
    live_keys,
    newest_ms,
    spans,
    superseded,
)
from sinks.delta.delta_storage import Storage
from sinks.delta.delta_store import table_path
from sinks.delta.delta_table import Delta
from sinks.port import StoreAway
from sinks.registry import SinkSpec
from sinks.row_traces import remembered, shown_row
from sinks.store_retry import brief
from sinks.warehouse.warehouse_columns import DELETED, DELETED_AT, KEY, POS

_EVERY = "~"
"""Above the text of any position."""


def open_traces(spec: SinkSpec, clock: Clock) -> DeltaTraces:
    """Nothing is connected to before it is used."""
    return DeltaTraces(Storage.of(spec), int(spec.replay_window_s * 1000), clock)


class DeltaTraces:
    """Implements :class:`cdc.forget.ports.KeptVersions`."""

    def __init__(self, storage: Storage, remember_ms: int, clock: Clock) -> None:
        self._storage = storage
        self._remember_ms = remember_ms
        self._clock = clock

    def of_keys(self, schema: TableSchema, keys: Sequence[str]) -> Iterable[Trace]:
        with _faults(schema):
            return list(self._of_keys(schema, keys))

    def _of_keys(self, schema: TableSchema, keys: Sequence[str]) -> Iterator[Trace]:
        table = self._table(schema)
        if not table.exists():
            return
        found = table.where(f"{KEY} in ({', '.join(map(quote_literal, keys))})").to_pylist()
        yield from (self._row(schema, row) for row in found)
        if any(not row[DELETED] for row in found):
            return
        left, path = DeltaLeftovers(self._storage, table_path(schema)), table.path
        wanted = set(keys)
        old = [one for one in left.replaced() if wanted & set(live_keys(left.rows_of(one))[KEY].to_pylist())]
        yield from _files(old, left, Kept.ROW, f"the row, in {len(old)} replaced files of {path}")
        yield from _hidden(sum(bool(wanted & set(live_keys(rows)[KEY].to_pylist())) for rows in left.hidden()), path)
        deleted_ms = max((_ms(row[DELETED_AT]) for row in found), default=self._now_ms() - self._remember_ms)
        named = self._log(left, deleted_ms, lambda stats: spans(stats, wanted))
        yield from _bounds(named, left, path)

    def before(self, schema: TableSchema, position: Position | None) -> Iterable[Trace]:
        with _faults(schema):
            return list(self._before(schema, position.text() if position is not None else _EVERY))

    def _before(self, schema: TableSchema, position: str) -> Iterator[Trace]:
        table = self._table(schema)
        if not table.exists():
            return
        now = table.columns([KEY, POS])
        current = set(zip(now[KEY].to_pylist(), now[POS].to_pylist(), strict=True))
        left, path = DeltaLeftovers(self._storage, table_path(schema)), table.path
        old = [one for one in left.replaced() if superseded(live_keys(left.rows_of(one)), current, position)]
        yield from _files(old, left, Kept.MAYBE, f"older documents, in {len(old)} replaced files of {path}")
        yield from _hidden(sum(superseded(live_keys(rows), current, position) for rows in left.hidden()), path)
        named = self._log(left, self._now_ms(), lambda stats: begins_below(stats, position))
        yield from _bounds(named, left, path)

    def _log(
        self, left: DeltaLeftovers, until_ms: int, may_hold: Callable[[Mapping[str, Any]], bool]
    ) -> list[Leftover]:
        """The files of the log from before a moment with bounds of a file that may have had the row."""
        before = [one for one in left.log_files() if one.time_ms <= until_ms]
        return [one for one in before if any(may_hold(stats) for stats in left.bounds(one))]

    def _row(self, schema: TableSchema, row: Mapping[str, Any]) -> Trace:
        place = f"{table_path(schema)}"
        if not row[DELETED]:
            return shown_row(f"the row in {place}")
        until_ms = _ms(row[DELETED_AT]) + self._remember_ms
        return remembered(f"the memory of the delete in {place}", until_ms, "when cdc sink cleans next")

    def clean(self, schema: TableSchema) -> None:
        with _faults(schema):
            if self._table(schema).exists():
                DeltaLeftovers(self._storage, table_path(schema)).clean(self._now_ms())

    def close(self) -> None:
        """Nothing is open between looks."""

    def _table(self, schema: TableSchema) -> Delta:
        return Delta(self._storage, table_path(schema), self._clock)

    def _now_ms(self) -> int:
        return self._clock.now_ns() // 1_000_000


def _files(old: Sequence[Leftover], left: DeltaLeftovers, kept: Kept, what: str) -> Iterator[Trace]:
    if old:
        until_ms = newest_ms(old) + left.file_retention_ms
        until = f"a vacuum, from {moment(until_ms)} on (delta.deletedFileRetentionDuration)"
        cure = "cdc forget and cdc sink vacuum what is due"
        yield Trace(what=what, kept=kept, until=until, until_ms=until_ms, passing=True, cure=cure)


def _hidden(count: int, path: str) -> Iterator[Trace]:
    """Rows that a deletion vector hides stand in a file of the newest version, perhaps for ever."""
    if count:
        until = f"REORG TABLE delta.`{path}` APPLY (PURGE) has written these files anew, and a vacuum an hour later"
        yield Trace(what=f"the row, behind deletion vectors in {count} files of {path}", kept=Kept.ROW, until=until)


def _bounds(named: Sequence[Leftover], left: DeltaLeftovers, path: str) -> Iterator[Trace]:
    if named:
        until_ms = newest_ms(named) + left.log_retention_ms
        until = f"a checkpoint above it is as old as delta.logRetentionDuration, {moment(until_ms)} at the earliest"
        what = f"values as bounds of columns, in {len(named)} files of the log of {path}"
        cure = "cdc forget and cdc sink make checkpoints and clean below them"
        yield Trace(what=what, kept=Kept.MAYBE, until=until, until_ms=until_ms, passing=True, cure=cure)


def _ms(at: datetime | None) -> int:
    return int(at.timestamp() * 1000) if at is not None else 0


@contextmanager
def _faults(schema: TableSchema) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError) as error:
        raise StoreAway(
            f"the Delta table of {schema.table} cannot be read: {brief(str(error))}",
            hint="was a file vacuumed meanwhile? Run the command again",
        ) from None
