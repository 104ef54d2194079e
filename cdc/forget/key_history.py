"""The records of one key in a table's topic, collected while the topic is read whole. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

import orjson

from cdc.forget.typed_key import TypedKey
from cdc.position import Position
from cdc.schema import TableSchema
from cdc.wire.floors import read_floor
from cdc.wire.format import DELETE_OP, KEY_HEADERS, OP, POS, SWEEP_KEY, TRUNCATE_KEY, VER
from cdc.wire.plain import PlainTable

FLOOR_KEYS = (b'{"%b"' % TRUNCATE_KEY.encode(), b'{"%b"' % SWEEP_KEY.encode())
"""The beginnings of keys that are of a whole table."""


class SeenRecord(NamedTuple):
    """One record of a topic. ``time_ms``: as the log has it, since 1970."""

    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]

    @property
    def pos(self) -> str:
        """The position. Empty where it says none."""
        return self.headers.get(POS, b"").decode(errors="replace")

    @property
    def is_delete(self) -> bool:
        """Whether it says that the row was deleted, a tombstone too."""
        return self.headers.get(OP) == DELETE_OP.encode()

    @property
    def floor(self) -> bool:
        """Whether it is of the whole table: a truncate or a sweep mark."""
        return self.key is not None and self.key.startswith(FLOOR_KEYS)


class PartitionHistory:
    """The key's records in one partition. ``values``: how many have a value. ``newest``: the last of all."""

    def __init__(self) -> None:
        self.values = 0
        self.newest: SeenRecord | None = None

    def take(self, record: SeenRecord) -> None:
        """The next record of the key."""
        self.values += record.value is not None
        self.newest = record


class KeyRecords:
    """Takes every record of a table's topic, each partition in its order.

    ``shapes``: every version of the table's shape. ``unreadable``: records with a value of which no key can be told.
    ``former``: those under a key of other columns than the newest shape's, or masked as no form of it is that is asked
    for. ``spellings``: the key's texts in stores.
    ``others``: keys, as stores have them, that the row had before or got later. ``floors``: by partition, the highest.
    """

    def __init__(
        self, key: TypedKey, shapes: Iterable[TableSchema], forms: frozenset[tuple[str, ...]] = frozenset()
    ) -> None:
        """``forms``: the masks of all forms of the key, of which others look for the other ones."""
        self._key = key
        self._shapes = {shape.version: shape for shape in shapes}
        self._plain = {version: PlainTable(shape) for version, shape in self._shapes.items()}
        form = self._shapes[max(self._shapes)].key_form
        self._other_form = {version for version, shape in self._shapes.items() if shape.key_masks != key.masks}
        self._former = {
            version
            for version, shape in self._shapes.items()
            if shape.key_form != form or shape.key_masks not in forms | {key.masks}
        }
        self._versions = {str(version).encode(): version for version in self._shapes}
        self.partitions: dict[int, PartitionHistory] = {}
        self.floors: dict[int, str] = {}
        self.spellings: set[str] = {key.text}
        self.others: set[str] = set()
        self.unreadable = self.former = 0
        self.deleted: Position | None = None

    @property
    def seen(self) -> bool:
        """Whether there is any record of the key."""
        return bool(self.partitions)

    def take(self, record: SeenRecord) -> None:
        """The next record of its partition."""
        if record.floor:
            self._raise(record)
            return
        version = self._version(record)
        if version is None or record.key is None:
            self.unreadable += record.value is not None
            return
        try:
            text = self._plain[version].key(record.key)
        except ValueError:
            self.unreadable += record.value is not None
            return
        if version in self._former:
            self.former += record.value is not None
        elif version not in self._other_form and self._key.matches(text):
            self._take(record, version, text)

    def _take(self, record: SeenRecord, version: int, text: str) -> None:
        self.spellings.add(text)
        self.partitions.setdefault(record.partition, PartitionHistory()).take(record)
        if record.is_delete or record.value is None:
            with suppress(ValueError):
                at = Position.parse(record.pos)
                self.deleted = max(at, self.deleted or at)
        for name in KEY_HEADERS:
            other = record.headers.get(name)
            if other is not None:
                with suppress(ValueError):
                    self.others.add(self._plain[version].key(other))
        self.others -= self.spellings

    def _version(self, record: SeenRecord) -> int | None:
        return self._versions.get(record.headers.get(VER, b""))

    def _raise(self, record: SeenRecord) -> None:
        with suppress(ValueError, KeyError, TypeError, orjson.JSONDecodeError):
            floor, _ = read_floor(record.key or b"", record.value, record.pos)
            self.floors[record.partition] = max(floor, self.floors.get(record.partition, ""))
