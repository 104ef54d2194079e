"""The masks that the settings want, and the notes of those under which tables were read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import ClassVar

from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ConfigError
from cdc.record.documents import dumped
from cdc.record.ports import CompactedTopic
from cdc.record.schema import TableSchema
from cdc.record.state import Document, find_all
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import MaskKey, MaskRule, Masks
from cdc.settings.model import Settings
from cdc.settings.secret_reference import reveal

declare("masks_noted")

NOTHING: Mapping[bytes, bytes] = MappingProxyType({})


def masks_of(settings: Settings) -> Masks:
    """The masks that the settings want. ConfigError where their key cannot be read or is too short."""
    masks, reference = rules_of(settings), settings.source.mask_key
    keyed = any(rule.kind == "hmac" for rules in masks.tables.values() for rule in rules.values())
    return replace(masks, key=_key(reference.reference)) if keyed and reference is not None else masks


def rules_of(settings: Settings) -> Masks:
    """The same without the key, for those who mask nothing and have no key."""
    return Masks(
        {
            name: {column: MaskRule.parse(text) for column, text in table.columns.items()}
            for name, table in settings.tables.items()
            if table.columns
        }
    )


def as_masked(
    settings: Settings, shape: Callable[[TableName], TableSchema | None]
) -> Callable[[TableName], TableSchema | None]:
    """The shape of a table with the masks of the settings noted, too: they may be newer than the log's shape."""

    def found(table: TableName) -> TableSchema | None:
        known = shape(table)
        return None if known is None else rules_of(settings).marked(known)

    return found


@cache
def _key(reference: str) -> MaskKey:
    """Read once in a process: under another key of a file that changed meanwhile, a reading would differ from the
    stream. The next start finds it, and has the tables read again."""
    return MaskKey(reveal(reference))


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskState(Document):
    """The masks under which the rows of each table were read, or are to be: table -> column -> rule as noted.

    ``versions``: of each of these tables the shape that the stream has passed with these masks. Written by capture
    alone.
    """

    WHAT = "masks"

    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedPartState(Document):
    """A relation that is or was a part of ``table``, which has masks, or that the table was a partition of."""

    WHAT: ClassVar[str] = "masked_part"
    oid: int
    table: str

    def key(self) -> bytes:
        return dumped({"what": self.WHAT, "oid": self.oid, "table": self.table})


class MaskNotes:
    """The state topic's notes of tables with masks. Any thread. Raises LogError where it writes.

    ``masks``: those of the settings. ``state``: where it is noted, None to note it in memory alone. ``documents``: the
    state topic's records.
    """

    def __init__(
        self, masks: Masks, state: CompactedTopic | None = None, documents: Mapping[bytes, bytes] = NOTHING
    ) -> None:
        self.masks = masks
        self._state = state
        self._lock = threading.Lock()
        self._note = MaskState.find(documents) or MaskState()
        self._parts: Mapping[int, frozenset[str]] = {}
        self._know(find_all(documents, MaskedPartState))

    @property
    def parts(self) -> Mapping[int, frozenset[str]]:
        """Oid -> the tables with masks of which that relation is or was a part. Never changed: ask again."""
        return self._parts

    def saw(self, parts: Mapping[str, Iterable[int]]) -> None:
        """Note parts of tables with masks for good: oids by table."""
        with self._lock:
            seen = {(oid, table) for table, oids in parts.items() for oid in oids}
            new = [
                MaskedPartState(oid=oid, table=table)
                for oid, table in sorted(seen)
                if table not in self._parts.get(oid, ())
            ]
            if new:
                if self._state is not None:
                    self._state.write([(one.key(), one.to_json()) for one in new])
                self._know(new)

    def lacking(self, schema: TableSchema, more: Callable[[str], Collection[str]]) -> list[tuple[str, str]]:
        """The masks of the tables of which a relation is or was a part, and that it has not itself: the table and the
        column of each. ``more``: columns that a table masks, beside those of the settings."""
        own, masked = str(schema.table), schema.noted_masks.keys()
        others = self._parts.get(schema.oid, frozenset()) - {own}
        return [(other, column) for other in others for column in {*self.masks.of(other), *more(other)} - masked]

    def passed(self, table: str) -> int:
        """The version of the shape that the stream has passed under the table's masks. 0 where it has none."""
        return self._note.versions.get(table, 0) if self.masks.of(table) else 0

    def pass_by(self, shape: TableSchema) -> None:
        """Note that the stream is past everything from before the table had this shape."""
        with self._lock:
            self._write(replace(self._note, versions={**self._note.versions, str(shape.table): shape.version}))

    def changed(self, tables: Collection[str], shapes: Collection[TableSchema]) -> dict[str, list[str]]:
        """The captured tables whose masks are others than their rows were written under, with the columns that differ.

        ``shapes``: every version of every table's, older ones first. ConfigError for masks of a table that is not
        captured: its name is likely to be meant for another one, which would be written as it is.
        """
        for name in sorted(self.masks.tables.keys() - set(tables)):
            raise ConfigError(
                f'[tables."{name}"] is no captured table',
                hint="name it as [source] tables does, a partitioned table by its own name and not by its partitions'; "
                "of a table that is new, cdc init first",
            )
        was = {table: shape.noted_masks for table, shape in _first(shapes).items()} | self._note.tables
        differing: dict[str, set[str]] = {}
        for table in tables:
            now = self.masks.noted_of(table)
            differing[table] = _differing(was.get(table, now), now)
        for shape in shapes:
            table = str(shape.table)
            if table in differing and shape.version > self._note.versions.get(table, 0):
                differing[table] |= _differing(shape.noted_masks, self.masks.noted_among(shape))
        return {table: sorted(columns) for table, columns in sorted(differing.items()) if columns}

    def note(self, tables: Collection[str], shapes: Collection[TableSchema], changed: Collection[str]) -> None:
        """Note the masks of now, once the tables whose masks changed are set aside."""
        newest = {str(shape.table): shape.version for shape in shapes}
        wanted = {table: self.masks.noted_of(table) for table in tables}
        with self._lock:
            kept = {t: now for t, now in wanted.items() if now or t in self._note.tables or t in changed}
            # Of a table that is new here the stream may bring everything since its first shape.
            known = {table: shape.version for table, shape in _first(shapes).items()} | self._note.versions
            known |= {table: newest[table] for table in changed if table in newest}
            self._write(MaskState(tables=kept, versions={t: known[t] for t in kept if t in known}))

    def _write(self, note: MaskState) -> None:
        if note != self._note and self._state is not None:
            self._state.write([(note.key(), note.to_json())])
            crash_point("masks_noted")
        self._note = note

    def _know(self, parts: Iterable[MaskedPartState]) -> None:
        found = dict(self._parts)
        for one in parts:
            found[one.oid] = found.get(one.oid, frozenset()) | {one.table}
        self._parts = found


def _first(shapes: Iterable[TableSchema]) -> dict[str, TableSchema]:
    """Of each table the first shape of the relation that it is."""
    found: dict[str, TableSchema] = {}
    for shape in shapes:
        known = found.setdefault(str(shape.table), shape)
        if known.oid != shape.oid:
            found[str(shape.table)] = shape
    return found


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    return {column for column in {*one, *other} if one.get(column) != other.get(column)}
