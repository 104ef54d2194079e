"""From records of the tables' topics, and from letters of rows that stand in none, to changes of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from cdc.dead import CAPTURE, DeadLetter, Why
from cdc.position import Position
from cdc.schema import TableSchema
from cdc.topic import TableName
from cdc.views.fences import BEFORE_ALL, Fence, TopicRecord
from cdc.views.record_rows import StateRows
from cdc.views.row_changes import NO_PLACES, Places, RowChange, lost_row
from cdc.views.view_plan import ViewPlan
from cdc.wire.format import (
    AFTER,
    CREATE_OP,
    DELETE_OP,
    HEADERS,
    OP,
    POS,
    RESELECTED,
    RESELECTED_COLUMNS,
    SEEN_LSN,
    SOURCE,
    VER,
    member,
)

_SEEN = SEEN_LSN.encode()


class RecordChanges:
    """``tables``: the table of each topic. ``shape``: a version of a topic's table."""

    def __init__(
        self, plan: ViewPlan, tables: Mapping[str, TableName], shape: Callable[[str, int], TableSchema]
    ) -> None:
        self._plan = plan
        self._tables = tables
        self._shape = shape
        self._readers: dict[tuple[str, int], StateRows] = {}

    def of(self, record: TopicRecord, sure_ms: float) -> RowChange:
        """The change that a record brings. ``sure_ms``: the cleaner took nothing for the sake of a record as young.

        ValueError, KeyError, TypeError or AttributeError where the bytes are none of ours.
        """
        table = self._tables[record.topic]
        reader = self._reader(record.topic, record.version)
        # A row that a create leaves out values of has come from another key: what is stored at its own is none of its.
        key, sure = reader.key(record.key), record.time_ms > sure_ms and record.op != CREATE_OP
        if record.value is None:
            note = {SEEN_LSN: int(record.seen_lsn)} if record.seen_lsn else None
            return RowChange(table, key, None, record.pos, read_below(note, record.pos), sure=sure)
        if record.op == DELETE_OP:
            later = _SEEN in record.value
            ripe = self._ripe(table, record.pos, orjson.loads(record.value))[0] if later else BEFORE_ALL
            return RowChange(table, key, None, record.pos, ripe, sure=sure)
        document = orjson.loads(record.value)
        ripe, places = self._ripe(table, record.pos, document) if _SEEN in record.value else (BEFORE_ALL, NO_PLACES)
        return RowChange(table, key, reader.row(document[AFTER]), record.pos, ripe, places, sure)

    def lost(self, letter: DeadLetter) -> RowChange | None:
        """The change that capture put aside. None for a letter of another kind, and for a delete.

        It holds behind its own commit, as a record would: a letter has no place among the records of its topic.
        """
        table = self._tables.get(letter.topic)
        headers = {name: (text or b"").decode() for name, text in letter.headers if name in HEADERS}
        if table is None or letter.key is None or (letter.sink, letter.why) != (CAPTURE, Why.OVERSIZED):
            return None
        try:
            key = self._reader(letter.topic, int(headers[VER])).key(letter.key)
            epoch, commit_lsn, _ = Position.parse(headers[POS])
        except (ValueError, KeyError, TypeError):
            return None  # None of ours: no row waits for it.
        if headers[OP] == DELETE_OP:
            return None
        row = lost_row(key, len(self._plan.relations[table].columns))
        return RowChange(table, key, row, headers[POS], Fence(epoch, commit_lsn + 1))

    def _reader(self, topic: str, version: int) -> StateRows:
        reader = self._readers.get((topic, version))
        if reader is None:
            reader = StateRows(self._shape(topic, version), self._plan.relations[self._tables[topic]])
            self._readers[topic, version] = reader
        return reader

    def _ripe(self, table: TableName, pos: str, document: Any) -> tuple[Fence, Places]:
        """From which fence on the record holds, and the places of the values of which that is said."""
        source = member(document, SOURCE)
        note = member(source, RESELECTED)
        if note is None:
            return read_below(source, pos), NO_PLACES
        names = set(note[RESELECTED_COLUMNS])
        columns = self._plan.relations[table].columns
        places = frozenset(i for i, column in enumerate(columns) if column in names)
        return (read_below(note, pos), places) if places else (BEFORE_ALL, NO_PLACES)


def read_below(note: Any, pos: str) -> Fence:
    """The fence that a ``seen_lsn`` stands for. Below all where there is none. ValueError where it is no LSN."""
    seen_lsn = member(note, SEEN_LSN)
    if seen_lsn is None:
        return BEFORE_ALL
    if type(seen_lsn) is not int or not 0 <= seen_lsn < 1 << 63:
        raise ValueError("seen_lsn is no LSN")
    return Fence(Position.parse(pos).epoch, seen_lsn)
