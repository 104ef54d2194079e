"""A store's notes about itself, beside its rows: the watermark, and the floor of each table."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from cdc.process.errors import DamagedError
from cdc.record.documents import FIRST, FORMAT, dumped, read_members, reading
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.records import read_floor
from sinks.contract.attempt_limits import is_look

log = logging.getLogger("headrace.sinks")

WATERMARK = "watermark"


class Notes(Protocol):
    """A handful of small named JSON texts, kept in the store. A write replaces one by name."""

    def read(self) -> Mapping[str, bytes]:
        """All of them. Empty in a store that has none."""

    def write(self, name: str, text: bytes) -> None:
        """Durable when this returns, together with what the store's transaction has, if it has them."""


def read_watermark(notes: Mapping[str, bytes]) -> Watermark | None:
    """The watermark that is in these notes. None in a store that has none. DamagedError and FormatError where it cannot
    be understood."""
    text = notes.get(WATERMARK)
    return Watermark.from_json(text) if text is not None else None


class NotedWatermarks:
    """:class:`sinks.contract.port.Watermarks` over notes."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def read(self) -> Watermark | None:
        found = self._notes.read()
        try:
            return read_watermark(found)
        except DamagedError:
            if is_look():
                raise  # a reader hears why, and the sink is who fills the store anew
            # Somebody else's hand: nothing that it claims can be relied on.
            log.warning("watermark_unreadable")
            return None

    def write(self, watermark: Watermark) -> None:
        self._notes.write(WATERMARK, watermark.to_json())


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorMark:
    """A floor as one partition has it. ``partitions``: how many marks have to arrive. 1 for a TRUNCATE."""

    table: TableName
    partition: int
    floor: str
    partitions: int = 1

    @classmethod
    def of(cls, table: TableName, partition: int, key: bytes, value: bytes | None, pos: str) -> FloorMark:
        """Read a floor record: a truncate or a sweep mark. ValueError when it is neither."""
        floor, partitions = read_floor(key, value, pos)
        return cls(table=table, partition=partition, floor=floor, partitions=partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFloor:
    """One table's floor (empty: none) and the sweeps whose marks have not arrived from every partition yet."""

    floor: str = ""
    sweeps: Mapping[str, tuple[int, frozenset[int]]] = field(default_factory=dict)
    """floor -> (partitions in all, partitions seen)."""

    def told(self, mark: FloorMark) -> TableFloor:
        """With one more mark. A sweep counts only when all partitions have brought theirs: live rows of the others may
        still be on their way.

        A partition whose mark is of a higher floor has passed the lower one too. Compaction keeps a partition's last
        mark alone, so where a later sweep was cut short, the earlier one is whole only that way.
        """
        if mark.floor <= self.floor:
            return self
        _, seen = self.sweeps.get(mark.floor, (0, frozenset[int]()))
        sweeps = {**self.sweeps, mark.floor: (mark.partitions, seen | {mark.partition})}
        whole = [floor for floor in sweeps if _everywhere(floor, sweeps)]
        floor = max(whole, default=self.floor)
        return TableFloor(floor=floor, sweeps={f: s for f, s in sweeps.items() if f > floor})

    def to_json(self) -> bytes:
        """The floor as a store keeps it."""
        sweeps = {floor: {"partitions": n, "seen": sorted(seen)} for floor, (n, seen) in self.sweeps.items()}
        return dumped({FORMAT: FIRST, "floor": self.floor, "sweeps": sweeps})

    @classmethod
    def from_json(cls, text: bytes) -> TableFloor:
        """Read :meth:`to_json` back. FormatError for another format, DamagedError for what none has."""
        about = "a table's floor in the store"
        document = read_members(text, about)
        with reading(about):
            sweeps = {f: (int(s["partitions"]), frozenset(map(int, s["seen"]))) for f, s in document["sweeps"].items()}
            return cls(floor=str(document["floor"]), sweeps=sweeps)


def _everywhere(floor: str, sweeps: Mapping[str, tuple[int, frozenset[int]]]) -> bool:
    told = frozenset[int]().union(*(seen for other, (_, seen) in sweeps.items() if other >= floor))
    return len(told) >= sweeps[floor][0]


class Floors:
    """The floors of all tables, as the store keeps them.

    ``shared``: another process may raise one, so they are read anew before each batch.
    """

    def __init__(self, notes: Notes, *, shared: bool = False) -> None:
        self._notes = notes
        self._shared = shared
        self._tables: dict[str, TableFloor] | None = None

    def refresh(self) -> None:
        """Read the notes if need be. Call before each batch."""
        if self._tables is None or self._shared:
            found = self._notes.read().items()
            self._tables = {name: TableFloor.from_json(text) for name, text in found if name.startswith("floor:")}

    def of(self, table: TableName) -> str:
        """A table's floor as text of a position. Empty when it has none."""
        return self._known().get(_note(table), TableFloor()).floor

    def tell(self, marks: Iterable[FloorMark]) -> dict[TableName, str]:
        """Note marks, durably. Returns the floors to enforce now: again, when a mark comes again."""
        known = self._known()
        enforced: dict[TableName, str] = {}
        for mark in marks:
            name = _note(mark.table)
            before = known.get(name, TableFloor())
            after = before.told(mark)
            if after != before:
                self._notes.write(name, after.to_json())
                known[name] = after
            if mark.floor == after.floor or after.floor > before.floor:
                enforced[mark.table] = after.floor
        return enforced

    def _known(self) -> dict[str, TableFloor]:
        if self._tables is None:
            self.refresh()
        return self._tables if self._tables is not None else {}


class KeptColumns:
    """The source's columns for which each table's place was last made ready. They distinguish a column that was removed
    by hand from one that is new in the source."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._known: dict[str, frozenset[str]] | None = None

    def of(self, table: TableName) -> frozenset[str]:
        """Empty for a table of which nothing is known."""
        return self._all().get(_note(table, "columns"), frozenset())

    def keep(self, schema: TableSchema) -> None:
        """Note the columns of a newest shape, if they are others than those that are known."""
        self._put(schema.table, frozenset(column.name for column in schema.columns))

    def drop(self, table: TableName) -> None:
        """Nothing is known of a table any more: another state of it stands there."""
        if self.of(table):
            self._put(table, frozenset())

    def _put(self, table: TableName, columns: frozenset[str]) -> None:
        name = _note(table, "columns")
        if self._all().get(name) != columns:
            self._notes.write(name, dumped(sorted(columns)))
            self._all()[name] = columns

    def _all(self) -> dict[str, frozenset[str]]:
        if self._known is None:
            found = self._notes.read().items()
            with reading("what the store has noted of a table's columns"):
                self._known = {name: frozenset(orjson.loads(t)) for name, t in found if name.startswith("columns:")}
        return self._known


def _note(table: TableName, what: str = "floor") -> str:
    return f"{what}:" + orjson.dumps([table.schema, table.table]).decode()
