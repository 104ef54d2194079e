"""A table's place: how far its rows are. It stands where they stand and is written with them, so that whoever takes the
rows back to a former state, or away, takes it along. A store's claim holds for a table whose place is as far.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cdc.process.errors import DamagedError
from cdc.record.documents import FIRST, FORMAT, dumped, read_members, record_of
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName

log = logging.getLogger("headrace.sinks")

PLACE = "%place"
"""The key of a place. Behind a percent sign a row's key has two digits, or one of a few other words."""
_NONE: frozenset[bytes | None] = frozenset((None,))
NEWEST = "f" * 32
"""Its position: no floor and no row is above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """The table shows all below these offsets of a topic. ``topic_id``: Kafka's id of that. ``level_ms``: when, in ms
    since 1970, its store was last known to be level with the log as this was written."""

    topic_id: str
    offsets: Mapping[int, int]
    level_ms: int = 0

    def to_json(self) -> bytes:
        """The place as a store keeps it. :meth:`from_json` reads it back."""
        offsets = {str(partition): offset for partition, offset in sorted(self.offsets.items())}
        return dumped({FORMAT: FIRST, "topic_id": self.topic_id, "offsets": offsets, "level_ms": self.level_ms})

    @classmethod
    def from_json(cls, text: bytes) -> TablePlace:
        """Read :meth:`to_json` back. FormatError for another format, DamagedError for what none has."""
        about = "a table's place in the store"
        return record_of(cls, read_members(text, about), about)


class PlaceStep(NamedTuple):
    """A step of a table's place. ``upon``: the texts of which the batch began from one, None for none. A
    batch that was broken off may have written its own. ``after``: the one that it leads to."""

    schema: TableSchema
    upon: frozenset[bytes | None]
    after: bytes

    @property
    def fit(self) -> list[bytes]:
        """The texts that may be replaced: a batch may be repeated."""
        return sorted({text for text in self.upon if text is not None} | {self.after})

    def fits(self, found: bytes | None) -> bool:
        """Whether what stands in the store may be replaced."""
        return found in self.upon or found == self.after


class PlaceStore(Protocol):
    """The places in one kind of store. Faults are those of :class:`sinks.contract.store.TableStore`."""

    def place(self, schema: TableSchema) -> bytes | None:
        """The text of a table's place as it stands there now. None where there is none, or no table."""

    def put_places(self, steps: Sequence[PlaceStep]) -> None:
        """Replace places, each where :meth:`PlaceStep.fits`. PlaceMissing otherwise."""

    def taken_back(self, schema: TableSchema, *, empty: bool) -> None:
        """A table is in a former state: what is known of its columns counts no more. ``empty``: remove all of its rows,
        and its place. Nothing happens where there is no table."""


class Places:
    """The places of an opened store's tables, as they were last read, or written beside a watermark. ``with_rows``:
    whether the store writes one in the commit of the last rows of a batch. ``reads_on``: whether a table that went back
    may be read on from its place."""

    def __init__(self, store: PlaceStore, *, with_rows: bool = False, reads_on: bool = True) -> None:
        self._store = store
        self.reads_on = reads_on
        self._with_rows = with_rows
        self._known: dict[TableName, frozenset[bytes | None]] = {}
        self._led: dict[TableName, PlaceStep] = {}
        self._apart: Collection[TableName] = ()
        self._written: set[TableName] = set()

    def read(self, schema: TableSchema) -> TablePlace | None:
        """A table's place, from which the next batch begins. None where there is none. One by somebody else's hand is
        of no topic: nothing that it says can be relied on."""
        text = self._store.place(schema)
        self._known[schema.table] = frozenset((text,))
        try:
            return TablePlace.from_json(text) if text is not None else None
        except DamagedError:
            log.warning("place_unreadable", extra={"table": str(schema.table)})
            return TablePlace(topic_id="", offsets={})

    def stands(self, schema: TableSchema) -> bool:
        """Whether a table's place is what was read or written last."""
        found, step = self._store.place(schema), self._led.get(schema.table)
        return step.fits(found) if step is not None else found in self._of(schema.table)

    def lead(
        self, places: Iterable[tuple[TableSchema, TablePlace]], apart: Collection[TableName] = frozenset()
    ) -> None:
        """A batch leads tables to these places. Of those that are ``apart`` some rows come later than with the
        batch."""
        for table, step in self._led.items():
            self._known[table] = step.upon | {step.after}
        self._led, self._apart, self._written = {}, apart, set()
        for schema, place in places:
            self._led[schema.table] = PlaceStep(schema, self._of(schema.table), place.to_json())

    def leave(self, table: TableName) -> None:
        """The batch leads a table nowhere after all."""
        self._led.pop(table, None)

    def due(self, table: TableName) -> PlaceStep | None:
        """The step to be written with the last rows of a table that the batch has. None for none."""
        later = not self._with_rows or table in self._apart or table in self._written
        return None if later else self._led.get(table)

    def written(self, table: TableName) -> None:
        """It was."""
        self._written.add(table)

    def finish(self) -> None:
        """Write the places that did not go with rows. All of these show. PlaceMissing as
        :meth:`PlaceStore.put_places`."""
        steps = [step for table, step in self._led.items() if table not in self._written]
        if steps:
            self._store.put_places(steps)
            self._written.update(step.schema.table for step in steps)

    def settle(self) -> None:
        """All that was written is durable: the next batch begins from there."""
        self._known.update((table, frozenset((step.after,))) for table, step in self._led.items())
        self._led = {}

    def taken_back(self, schema: TableSchema, *, empty: bool) -> None:
        """As :meth:`PlaceStore.taken_back`."""
        self._store.taken_back(schema, empty=empty)
        if empty:
            self._known[schema.table] = _NONE

    def _of(self, table: TableName) -> frozenset[bytes | None]:
        return self._known.get(table, _NONE)


class SchemaBook:
    """Every shape known, by topic and version: :class:`sinks.contract.port.Schemas` as plain data, which pickles."""

    def __init__(self, versions: Iterable[TableSchema] = ()) -> None:
        self._shapes: dict[tuple[str, int], TableSchema] = {(shape.topic, shape.version): shape for shape in versions}
        self._newest = {topic: self._shapes[topic, version] for topic, version in sorted(self._shapes)}
        self.histories = {topic: shape.version for topic, shape in self._newest.items() if shape.history}
        """Topic -> its newest version, of those that are histories."""

    def __call__(self, topic: str, version: int) -> TableSchema:
        return self._shapes[(topic, version)]

    def __contains__(self, shape: tuple[str, int]) -> bool:
        return shape in self._shapes

    def newest(self, topic: str) -> TableSchema:
        return self._newest[topic]

    def tables(self) -> list[list[TableSchema]]:
        """Every version of each table, the newest first: it says what a store's columns are."""
        found: dict[str, list[TableSchema]] = {topic: [] for topic in self._newest}
        for topic, version in sorted(self._shapes, reverse=True):
            found[topic].append(self._shapes[topic, version])
        return list(found.values())
