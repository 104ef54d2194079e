"""From records of the tables' topics, and from letters of rows that stand in none, to changes of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from cdc.record.position import Position
from cdc.record.progress import Progress
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.views.log_cut import BEFORE_ALL, Fence, LogCut, TopicRecord, fence_of, spans_to
from cdc.views.row_changes import NO_PLACES, Places, RowChange, lost_row
from cdc.views.state_reach import Reached
from cdc.views.view_plan import ViewPlan
from cdc.views.view_records import StateRows
from cdc.wire.dead_letter import CAPTURE, DeadLetter, Why
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
    TRUNCATE_OP,
    VER,
    member,
)
from cdc.wire.records import RecordColumns, read_floor

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


class CutReading:
    """The records between a state and a progress record. ``tables``: the table of each topic.

    ``records``, ``floors``, ``cleared``, ``marks``, ``swept``, ``later`` and ``offsets`` are whole once :meth:`pieces`
    has ended.
    """

    def __init__(self, progress: Progress, reached: Reached, tables: Mapping[str, TableName]) -> None:
        self.fence = fence_of(progress)
        self.spans = spans_to(progress, reached.offsets, tables)
        self.most_records = sum(span.most_records for span in self.spans)
        self.records = 0
        self.floors: dict[TableName, str] = {}
        self.unreadable: list[TopicRecord] = []
        """Records with our headers whose bytes are no change of the table."""
        self.swept = dict(reached.swept)
        self.later: list[str] = []
        """Sweeps of a later fence: what the reading did not find may be there still at this one."""
        self._marks = set(reached.marks)
        self._tables = tables
        for text in reached.later:
            self._ripened(text)
        self._cut = LogCut(progress, self.spans)
        self._reached = reached

    def pieces(
        self, lots: Iterable[RecordColumns], read: Callable[[TopicRecord], RowChange], most: int | None
    ) -> Iterator[list[RowChange]]:
        """The changes of rows, in lists of about ``most``, all in one for None."""
        piece: list[RowChange] = []
        for lot in lots:
            for record in self._cut.take(lot):
                self.records += 1
                try:
                    if record.op == TRUNCATE_OP:
                        self.floor(record)
                    else:
                        piece.append(read(record))
                except (ValueError, KeyError, TypeError, AttributeError):
                    self.unreadable.append(record)
            if most is not None and len(piece) >= most:
                yield piece
                piece = []
        yield piece

    @property
    def foreign(self) -> int:
        """The number of records that somebody else wrote."""
        return self._cut.foreign

    @property
    def beyond_ms(self) -> int | None:
        """The timestamp of the oldest record seen beyond the fence. None where there was none."""
        return self._cut.beyond_ms

    @property
    def marks(self) -> tuple[str, ...]:
        """Sweep marks of which not every partition's was read."""
        return tuple(sorted(self._marks))

    @property
    def cleared(self) -> dict[str, str]:
        """The greatest floor of each table, with those of before."""
        known = self._reached.cleared
        own = {str(table): max(floor, known.get(str(table), "")) for table, floor in self.floors.items()}
        return {**known, **own}

    @property
    def offsets(self) -> dict[str, dict[int, int]]:
        """Where the next cut begins."""
        found = {topic: dict(parts) for topic, parts in self._reached.offsets.items()}
        for topic, parts in self._cut.ends.items():
            found.setdefault(topic, {}).update(parts)
        return found

    def floor(self, record: TopicRecord) -> None:
        """A floor that a record sets. A sweep mark counts when each partition's was read.

        ValueError, KeyError or TypeError where its bytes are none of ours.
        """
        table = self._tables[record.topic]
        found = read_floor(record.key, record.value, record.pos)
        if found.partitions > 1:
            begins = f"{table} {found.floor} "
            self._marks.add(f"{begins}{record.partition}")
            seen = {mark for mark in self._marks if mark.startswith(begins)}
            if len(seen) < found.partitions:
                return
            self._marks -= seen
            ripe = read_below(member(orjson.loads(record.value or b"{}"), SOURCE), record.pos)
            if ripe > self.fence:
                self.later.append(f"{table} {found.floor} {ripe.epoch} {ripe.lsn}")
                return
        if record.pos != found.floor or found.partitions > 1:
            self._sweep(table, found.floor)
        self.floors[table] = max(found.floor, self.floors.get(table, ""))

    def _sweep(self, table: TableName, floor: str) -> None:
        self.swept[str(table)] = max(self.swept.get(str(table), 0), Position.parse(floor).epoch)

    def _ripened(self, text: str) -> None:
        """A sweep that was read before, at this fence."""
        name, floor, epoch, lsn = text.rsplit(" ", 3)
        table = next((one for one in self._tables.values() if str(one) == name), None)
        if Fence(int(epoch), int(lsn)) > self.fence:
            self.later.append(text)
        elif table is not None:
            self._sweep(table, floor)
            self.floors[table] = max(floor, self.floors.get(table, ""))
