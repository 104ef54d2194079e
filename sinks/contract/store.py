"""Shared by all sinks: floors first, then the newest of each key, then what the store itself has to do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import orjson
import pyarrow as pa

from cdc.process.crash_points import crash_point, declare
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.envelope import missing
from cdc.wire.format import POS
from sinks.contract.batch import Event, conform, pc
from sinks.contract.batch_plan import IncompleteRows, TableBatch, event_rows, floor_marks, plan, reason
from sinks.contract.history_rows import require_free
from sinks.contract.missing_values import Unheld, fill_from_earlier, fill_from_stored, patterns
from sinks.contract.newest import ordered_mask
from sinks.contract.port import READ_BYTES, Applied, CannotCarry, PlaceMissing, Refused, Schemas, StoredRow
from sinks.contract.store_notes import Floors, Notes
from sinks.contract.table_places import Places

declare("table_prepared", "table_written", "writes_shown", "floor_noted", "floor_enforced")


class TableStore(Protocol):
    """The operations of one kind of store on one table. Connection faults are retried inside.

    Each method raises StoreAway, PlaceMissing or CannotCarry, as :class:`sinks.contract.port.Sink` says, and no other
    SinkError for what was done to the table in the store.
    """

    def prepare(self, schema: TableSchema, *, older: bool) -> None:
        """Make room for the table or evolve it, as :meth:`sinks.contract.port.Sink.prepare`."""

    def write(self, batch: TableBatch) -> Applied:
        """Write each row and each delete that is at or above what the store holds for its key."""

    def stored(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        """The stored rows of some keys, those included that were written a moment ago. Absent keys are left out."""

    def remove_below(self, schema: TableSchema, floor: str) -> None:
        """Remove every row below the floor, also rows that do not show yet. Repeatable."""


class StoreSession(Protocol):
    """A store's connections."""

    def show(self) -> None:
        """Make visible what was written."""

    def close(self) -> None:
        """Close the connections. Never raises."""


class StoreSink:
    """:class:`sinks.contract.port.Sink` over a table store. ``shared``: other processes write to the store too.
    ``moved``: asked before each batch whether the tables are elsewhere now. ``places``: of its tables.
    ``side_by_side``: so many tables are written at once, by a thread each. Room for them is made one after the
    other."""

    def __init__(
        self,
        store: TableStore,
        notes: Notes,
        session: StoreSession,
        *,
        shared: bool,
        places: Places,
        moved: Callable[[], bool] = lambda: False,
        side_by_side: int = 1,
    ) -> None:
        self._moved = moved
        self._side_by_side = SideBySide(side_by_side)
        self._store = store
        self._notes = notes
        self._places = places
        self._floors = Floors(notes, shared=shared)
        self._shared = shared
        self._written: dict[TableName, tuple[TableSchema, str]] = {}
        self._session = session
        self._prepared: set[tuple[str, int, bool]] = set()
        self._row_bytes: dict[str, int] = {}

    def prepare(self, schema: TableSchema, *, older: bool = False) -> None:
        shape = (schema.topic, schema.version, older)
        if shape not in self._prepared:
            require_free(schema)
            self._store.prepare(schema, older=older)
            crash_point("table_prepared")
            self._prepared.add(shape)

    def _prepare_for(self, schema: TableSchema, schemas: Schemas) -> None:
        """The newest shape first, since it says what the columns are: rows of older ones come in any order."""
        newest = schemas.newest(schema.topic)
        self.prepare(newest)
        if schema.version != newest.version:
            self.prepare(schema, older=True)

    def apply(self, events: pa.Table, schemas: Schemas) -> Applied:
        if events.num_rows == 0:
            return Applied()
        try:
            return self._apply(events, schemas)
        except (CannotCarry, PlaceMissing):
            # The known state of the tables is not true any more.
            self._prepared.clear()
            raise

    def _apply(self, events: pa.Table, schemas: Schemas) -> Applied:
        batch = conform(events)
        if self._moved():
            self._prepared.clear()
        self._floors.refresh()
        done = self._enforce(batch, schemas)
        todo = plan(batch, schemas, self._floors.of)
        done += Applied(stale=todo.stale, refused=todo.refused)
        of_tables = by_table(todo.batches)
        if len(of_tables) > 1 and self._side_by_side.most > 1:
            for readable in todo.batches:
                self._prepare_for(readable.batch.schema, schemas)
        for readable in todo.batches:
            shape = readable.batch.schema
            self._written[shape.table] = shape, self._floors.of(shape.table)
        strange = {one.topic for one in done.refused}
        done = sum(self._side_by_side.each(partial(self._apply_table, schemas, strange), of_tables), done)
        if self._shared:
            self.sweep_late()
        return done

    def _apply_table(self, schemas: Schemas, strange: Collection[str], versions: Sequence[IncompleteRows]) -> Applied:
        """``strange``: topics with a record that is refused already: what stood before it is applied later."""
        done = Applied()
        table = versions[0].batch.schema.table
        for readable in versions:
            for portion in Filler(partial(self._stored, schemas), self._row_bytes).portions(readable):
                done += Applied(stale=portion.stale, refused=portion.refused)
                # Whole, it is the last portion.
                last = readable is versions[-1] and len(portion.batch) == len(readable.batch)
                whole = last and not done.refused and portion.batch.schema.topic not in strange
                place = self._places.due(table) if whole else None
                done += self._write(replace(portion.batch, place=place), schemas)
                if place is not None and not done.refused:
                    self._places.written(table)
        return done

    def _write(self, rows: TableBatch, schemas: Schemas) -> Applied:
        if not len(rows):
            return Applied()
        self._prepare_for(rows.schema, schemas)
        done = self._store.write(rows)
        crash_point("table_written")
        return done

    def sweep_late(self) -> None:
        """Remove what was written below floors that others have raised since, as of a process that stood still for a
        while. Before, nobody knows of it. SinkError as for :meth:`apply`."""
        floors = Floors(self._notes)
        for table, (shape, before) in self._written.items():
            floor = floors.of(table)
            if floor > before:
                self._store.remove_below(shape, floor)
                self._written[table] = shape, floor

    def show(self) -> None:
        self._session.show()
        crash_point("writes_shown")

    def close(self) -> None:
        self._side_by_side.close()
        self._session.close()

    def _enforce(self, events: pa.Table, schemas: Schemas) -> Applied:
        marks, shapes, refused = floor_marks(events, schemas)
        for table, floor in self._floors.tell(marks).items():
            crash_point("floor_noted")
            self._prepare_for(shapes[table], schemas)
            self._store.remove_below(shapes[table], floor)
            crash_point("floor_enforced")
        return Applied(refused=refused)

    def _stored(self, schemas: Schemas, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        self._prepare_for(schema, schemas)
        found = self._store.stored(schema, keys)
        # A row that another writer put there without a position fills nothing.
        return {key: row for key, row in found.items() if row.pos}


T = TypeVar("T")
R = TypeVar("R")


class SideBySide:
    """Does something for several, ``most`` at once. The threads stay until :meth:`close`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._threads: ThreadPoolExecutor | None = None

    def each(self, act: Callable[[T], R], some: Sequence[T]) -> list[R]:
        """The results, in the order of ``some``. All are done, or have failed, when this returns or raises: the error
        of the first one in this order that failed."""
        if len(some) < 2 or self.most < 2:
            return [act(one) for one in some]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.most, thread_name_prefix="table")
        # How often a store is tried is a matter of the caller's context.
        running: list[Future[R]] = [self._threads.submit(copy_context().run, act, one) for one in some]
        wait(running)
        return [one.result() for one in running]

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None


def by_table(batches: Iterable[IncompleteRows]) -> list[list[IncompleteRows]]:
    """The versions of each table together, in the order in which they come: they share a place in the store."""
    found: dict[str, list[IncompleteRows]] = {}
    for readable in batches:
        found.setdefault(str(readable.batch.schema.table), []).append(readable)
    return list(found.values())


# Rows that lack values, made whole a portion at a time: what the store holds may be far larger than the records.
#
# An update of some bytes lacks the value beside it that did not change, of 100 kB or of 100 MB. So stored rows are
# read some at a time, by the size of those before them, and each portion is written and freed before the next.

Stored = Callable[[TableSchema, Sequence[str]], Mapping[str, StoredRow]]
PORTION_BYTES = 4 * READ_BYTES
"""About as many bytes of stored rows are in memory at once."""
_FIRST_ROWS, _MOST_ROWS, _GROWTH = 64, 1_000, 8
"""How many stored rows are asked for at first, at most, and more than those before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSlice:
    """A part of a batch, each row whole. ``stale``: how many rows the store has newer already, or needs not."""

    batch: TableBatch
    stale: int = 0
    refused: tuple[Refused, ...] = ()


@dataclass(slots=True)
class Filler:
    """Fills the rows of batches from earlier events and from what the store holds.

    ``stored``: what the store holds for some keys. ``row_bytes``: topic -> how large the last rows were that were read,
    kept by the caller from batch to batch.
    """

    stored: Stored
    row_bytes: dict[str, int] = field(default_factory=dict)

    def portions(self, readable: IncompleteRows) -> Iterator[BatchSlice]:
        """All of a batch: first what lacks nothing, then the others by the bytes that the store holds for them."""
        batch = readable.batch
        lacking = _lacking(batch)
        if not lacking:
            yield BatchSlice(batch=batch)
            return
        if len(lacking) < len(batch):
            lacks = set(lacking)
            yield BatchSlice(batch=batch.of([number for number in range(len(batch)) if number not in lacks]))
        histories = _histories(batch, readable.every, lacking)
        for numbers, stored_rows in self._portions(batch, lacking):
            yield _filled(batch.of(numbers), [histories[number] for number in numbers], stored_rows)

    def _portions(self, batch: TableBatch, lacking: Sequence[int]) -> Iterator[tuple[list[int], dict[str, StoredRow]]]:
        """Numbers of rows, with what the store has for them, a portion at a time."""
        topic, at = batch.schema.topic, 0
        most = _MOST_ROWS if topic in self.row_bytes else _FIRST_ROWS
        numbers: list[int] = []
        stored_rows: dict[str, StoredRow] = {}
        left = PORTION_BYTES
        while at < len(lacking):
            row_bytes = self.row_bytes.get(topic, 0)
            some = lacking[at : at + max(1, min(most, left // max(1, row_bytes)))]
            found = self.stored(batch.schema, [batch.keys[number] for number in some])
            sizes = [len(row.row or b"") for row in found.values()]
            # Large rows are not forgotten at once: the next ones may be as large.
            self.row_bytes[topic] = max([row_bytes // 2, *sizes])
            at, most, left = at + len(some), min(_MOST_ROWS, _GROWTH * len(some)), left - sum(sizes)
            numbers, stored_rows = [*numbers, *some], {**stored_rows, **found}
            if left < PORTION_BYTES // 4:
                yield numbers, stored_rows
                numbers, stored_rows, left = [], {}, PORTION_BYTES
        if numbers:
            yield numbers, stored_rows


def _filled(
    batch: TableBatch, histories: Sequence[Sequence[Event]], stored_rows: Mapping[str, StoredRow]
) -> BatchSlice:
    """Rows with their unavailable values filled. Rows that cannot be filled are refused."""
    filled: dict[int, dict[str, Any]] = {}
    bad: dict[int, str] = {}
    behind: dict[int, str] = {}
    for number, history in enumerate(histories):
        before = stored_rows.get(batch.keys[number])
        if before is not None and before.pos > batch.pos[number]:
            behind[number] = ""
            continue
        try:
            found = fill_from_earlier(history, batch.schema)
            older = before.row if before is not None and found.from_store else None
            filled[number] = fill_from_stored(found.row, older, batch.plain)
        except Unheld:
            behind[number] = ""
        except ValueError as error:
            bad[number] = reason(error)
    kept, _ = replace(batch, filled=filled).without({**bad, **behind})
    return BatchSlice(batch=kept, stale=len(behind), refused=batch.refused(bad))


def _lacking(batch: TableBatch) -> list[int]:
    """Numbers of the rows that lack a value."""
    lacking: set[int] = set()
    for pattern in patterns(batch.schema):
        suspects = [number for number, row in enumerate(batch.rows) if row is not None and pattern in row]
        lacking.update(number for number in suspects if _lacks(batch.rows[number], batch.schema))
    return sorted(lacking)


def _lacks(row: bytes | None, schema: TableSchema) -> bool:
    try:
        after = orjson.loads(row or b"")
    except orjson.JSONDecodeError:
        return False
    return isinstance(after, dict) and bool(missing(after, schema))


def _histories(batch: TableBatch, every: pa.Table, lacking: Sequence[int]) -> dict[int, list[Event]]:
    """All events of the batch of the keys that lack a value, oldest first, up to the newest."""
    keys = batch.events["key"].take(lacking)
    same_topic = pc.equal(every["topic"], batch.schema.topic)
    wanted = every.filter(pc.and_(pc.fill_null(same_topic, False), pc.is_in(every["key"], value_set=pc.unique(keys))))
    by_key: dict[bytes | None, list[Event]] = {}
    for event in event_rows(wanted.filter(ordered_mask(wanted[POS]))):
        by_key.setdefault(event.key, []).append(event)
    for history in by_key.values():
        history.sort(key=lambda event: (event.pos or "", event.offset))
    return {number: by_key[key] for number, key in zip(lacking, keys.to_pylist(), strict=True)}
