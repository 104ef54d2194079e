"""The captured tables of one session as the stream sees them: where the records of each go and how each kind of change
is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from cdc.record.schema import Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.envelope import Headers, Stamp, may_be_unavailable
from cdc.wire.format import CREATE_OP, DELETE_OP, OP, POS, TRUNCATE_OP, UPDATE_OP, VER
from connectors.postgres.encoding.compiled import FromFrame, Made, Templates
from connectors.postgres.encoding.encoder import TableEncoder

Form = Literal["new", "pair", "old", "keyed"]
"""Which function of :class:`connectors.postgres.encoding.compiled.CompiledRows` encodes it."""
NEVER = 1 << 62
_WIDE_BYTES = 500
"""Below this no row has a value out of line: Postgres starts at about 2 kB of its own, denser, form."""


class Route:
    """One kind of change of one table.

    ``plain`` and ``loose`` are whole templates, good while ``serial`` is the transaction's. :meth:`renew` makes
    them. ``rows`` counts what was written. ``deletes``: a tombstone follows. ``more``: positions that a change takes
    beside its first. ``wide``: rows in messages of more
    bytes may hold values that a later change of this transaction leaves out.
    """

    __slots__ = (
        "_form", "_parts", "count", "deletes", "encode", "lane", "letter", "loose", "more", "op", "plain", "rows",
        "serial", "table", "tail", "ver", "wide",
    )  # fmt: skip

    def __init__(self, table: StreamTable, letter: str, form: Form) -> None:
        self.table = table
        self.letter = letter.encode()
        self.encode: FromFrame = self._first
        self.lane = table.lane
        self.count = table.lane_count
        self.op = (OP, self.letter)
        self.ver = (VER, b"%d" % table.schema.version)
        self.deletes = letter == DELETE_OP
        # Updates that the compiled functions take: those of FULL carry the old row, the others carry no old values.
        self.more = 1 if self.deletes else 2 if letter == UPDATE_OP and table.full else 0
        self.wide = NEVER if self.deletes else table.wide
        self.rows = 0
        self.serial = -1
        self.tail = self.plain = self.loose = b""
        self._form: Form = form
        self._parts: Templates | None = None

    def renew(self, stamp: Stamp, serial: int) -> None:
        """Make the templates for a transaction."""
        if self._parts is None:
            self._parts = getattr(self.table.encoder.rows, f"{self._form}_templates")
        self.serial = serial
        self.tail = self.table.encoder.envelope.tail(stamp, self.letter)
        self.plain = self._parts.plain + self.tail
        self.loose = self._parts.loose + self.tail

    def _first(self, frame: bytes, lsn: int, seq: int, plain: bytes, loose: bytes) -> Made | None:
        """Encode the first message of the session that needs the function, which is made now."""
        made: FromFrame = getattr(self.table.encoder.rows, self._form)
        self.encode = made
        return made(frame, lsn, seq, plain, loose)

    def headers(self, pos: bytes, more: Sequence[tuple[str, bytes]] = ()) -> Headers:
        """A record's headers: its position, the operation, the schema version, and ``more`` behind them."""
        return [(POS, pos), self.op, self.ver, *more]


class StreamTable:
    """A table's encoder, its lanes and its routes. ``lane``: that of partition 0. One per partition follow."""

    def __init__(
        self, encoder: TableEncoder, lane: int, lane_count: int, partition: Callable[[bytes, int], int]
    ) -> None:
        self.encoder = encoder
        self.schema: TableSchema = encoder.schema
        self.lane = lane
        self.lane_count = lane_count
        self.truncates = 0
        self._partition = partition
        self.full = self.schema.identity == Identity.FULL
        self.netted = self.schema.deferrable_key
        toasted = any(may_be_unavailable(c) for c in self.schema.columns)
        self.wide = _WIDE_BYTES if toasted and not self.full else NEVER
        self.insert = Route(self, CREATE_OP, "new")
        self.update = Route(self, UPDATE_OP, "pair" if self.full else "new")
        self.delete = Route(self, DELETE_OP, "old" if self.full else "keyed")

    def lane_of(self, key: bytes) -> int:
        """The lane of the partition to which a key belongs."""
        return self.lane + self._partition(key, self.lane_count)

    @property
    def lanes(self) -> range:
        """The lanes of all its partitions."""
        return range(self.lane, self.lane + self.lane_count)

    @property
    def routes(self) -> Sequence[Route]:
        """Its routes for insert, update and delete."""
        return self.insert, self.update, self.delete

    def hot(self) -> dict[bytes, Route]:
        """The routes by the kind and oid of a message. Nothing for a netted table."""
        if self.netted:
            return {}
        oid = self.schema.oid.to_bytes(4)
        return {b"I" + oid: self.insert, b"U" + oid: self.update, b"D" + oid: self.delete}


class CompiledTables:
    """``lanes`` gives a topic's first lane and how many it has, ``partition`` that of (key, count)."""

    def __init__(
        self,
        encoder: Callable[[TableSchema], TableEncoder],
        lanes: Callable[[str], tuple[int, int]],
        partition: Callable[[bytes, int], int],
    ) -> None:
        self._encoder = encoder
        self._lanes = lanes
        self._partition = partition
        self._tables: dict[TableSchema, StreamTable] = {}

    def counts(self) -> Counter[tuple[str, str]]:
        """Changes written so far, by table and op."""
        found: Counter[tuple[str, str]] = Counter()
        for table in self._tables.values():
            name = str(table.schema.table)
            found[(name, TRUNCATE_OP)] += table.truncates
            for route in table.routes:
                found[(name, route.letter.decode())] += route.rows
        return +found

    def lost(self) -> Counter[tuple[str, str]]:
        """Values that the encoding cannot express and that were written as null, by table and column (D4)."""
        found: Counter[tuple[str, str]] = Counter()
        for table in self._tables.values():
            for column, count in table.encoder.lost.items():
                found[(str(table.schema.table), column)] += count
        return found

    def shapes_of(self, table: TableName) -> list[StreamTable]:
        """Every shape of a table that was announced in this session."""
        return [one for one in self._tables.values() if one.schema.table == table]

    def lanes_of(self, table: TableName) -> set[int]:
        """The lanes of all partitions of a table, under every topic that its shapes name."""
        return {lane for one in self.shapes_of(table) for lane in one.lanes}

    def of(self, schema: TableSchema) -> StreamTable:
        """The table of this shape, compiled once."""
        found = self._tables.get(schema)
        if found is not None:
            return found
        lane, lane_count = self._lanes(schema.topic)
        table = self._tables[schema] = StreamTable(self._encoder(schema), lane, lane_count, self._partition)
        return table
