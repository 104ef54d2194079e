"""The tables of one session, each shape compiled once, and what was written of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.format import TRUNCATE_OP
from connectors.postgres.assembly.routes import StreamTable
from connectors.postgres.encoding.encoder import TableEncoder


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
