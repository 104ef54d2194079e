"""Shared by all sinks: floors first, then the newest of each key, then what the store itself has to do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from cdc.crash import crash_point, declare
from cdc.schema import TableSchema
from cdc.topic import TableName
from sinks.batch import conform
from sinks.batch_plan import Readable, TableBatch, floor_marks, plan
from sinks.fill import Filler
from sinks.notes import Floors, Notes
from sinks.port import Applied, CannotCarry, PlaceMissing, Schemas, StoredRow
from sinks.side_by_side import SideBySide, by_table
from sinks.table_places import Places

declare("table_prepared", "table_written", "writes_shown", "floor_noted", "floor_enforced")


class TableStore(Protocol):
    """The operations of one kind of store on one table. Connection faults are retried inside.

    Each method raises StoreAway, PlaceMissing or CannotCarry, as :class:`sinks.port.Sink` says, and no other SinkError
    for what was done to the table in the store.
    """

    def prepare(self, schema: TableSchema, *, older: bool) -> None:
        """Make room for the table or evolve it, as :meth:`sinks.port.Sink.prepare`."""

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
    """:class:`sinks.port.Sink` over a table store. ``shared``: other processes write to the store too. ``moved``: asked
    before each batch whether the tables are elsewhere now. ``places``: of its tables. ``side_by_side``: so many tables
    are written at once, by a thread each. Room for them is made one after the other."""

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

    def _apply_table(self, schemas: Schemas, strange: Collection[str], versions: Sequence[Readable]) -> Applied:
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
