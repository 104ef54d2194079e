"""The source's rows for a comparison: what decides where Debezium's value does not."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.comparison.commit_window import position_of
from cdc.comparison.compared_record import ComparedRecord
from cdc.comparison.lossless import Json, parse, show
from cdc.comparison.ports import ComparisonSource
from cdc.comparison.witness import Witness
from cdc.cuts import Cut, VerifiedTable
from cdc.wire.format import TRUNCATE_OP
from cdc.wire.plain import PlainTable

_ASKED = 1000
"""Keys that a TRUNCATE took away, of which the source is asked."""


class RowsAtCut:
    """The source's rows at one cut, for records that are the last of their key there."""

    def __init__(self, source: ComparisonSource, cut: Cut) -> None:
        self._source, self._cut = source, cut
        self._tables = source.tables()

    def of(self, table: str, topic: Sequence[ComparedRecord]) -> Witness | None:
        """For one table, whose whole topic is given. None where its rows cannot be read."""
        known = self._tables.get(table)
        return None if known is None or not self._cut.certain else _TableRows(self._source, self._cut, known, topic)


class _TableRows:
    def __init__(
        self, source: ComparisonSource, cut: Cut, table: VerifiedTable, topic: Sequence[ComparedRecord]
    ) -> None:
        self._source, self._table = source, table
        last = {show(record.key): record for record in topic}
        truncated = max((_lsn(record) for record in topic if record.op == TRUNCATE_OP), default=-1)
        # A key whose last record a truncation took away, or that may lie behind the cut, is not asked for.
        self._last = {key: r.place for key, r in last.items() if truncated < _lsn(r) < cut.settled}
        self._gone = [key for key, r in last.items() if _lsn(r) < truncated and r.op not in (TRUNCATE_OP, None)]
        self._truncated = truncated if truncated < cut.settled else -1

    def rows(self, records: Sequence[ComparedRecord]) -> dict[tuple[int, int], Json]:
        """As :class:`cdc.comparison.witness.Witness` has it. A TRUNCATE has a row where one that it took is left."""
        return self._last_rows(records) | self._taken_away(records)

    def _taken_away(self, records: Sequence[ComparedRecord]) -> dict[tuple[int, int], Json]:
        newest = [r for r in records if r.op == TRUNCATE_OP and _lsn(r) == self._truncated]
        if not newest or not self._gone:
            return {}
        keys = PlainTable(self._table.shape).keys([text.encode() for text in self._gone[:_ASKED]])
        found = (row for rows in self._source.records_of(self._table, keys) for row in rows.values())
        left = next((parse(row.after) for row in found if row.after is not None), None)
        return {record.place: left for record in newest}

    def _last_rows(self, records: Sequence[ComparedRecord]) -> dict[tuple[int, int], Json]:
        asked = {show(r.key): r for r in records if self._last.get(show(r.key)) == r.place}
        if not asked:
            return {}
        keys = PlainTable(self._table.shape).keys([text.encode() for text in asked])
        found = {key: row for rows in self._source.records_of(self._table, keys) for key, row in rows.items()}
        return {
            record.place: parse(row.after) if (row := found.get(key)) is not None and row.after is not None else None
            for key, record in zip(keys, asked.values(), strict=True)
        }


def _lsn(record: ComparedRecord) -> int:
    position = position_of(record)
    return position.commit_lsn if position is not None else 0
