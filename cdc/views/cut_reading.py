"""One cut of the log as it is read: changes of rows in pieces, and what floors it sets. No I/O of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import orjson

from cdc.position import Position
from cdc.progress import Progress
from cdc.topic import TableName
from cdc.views.fences import Fence, LogCut, TopicRecord, fence_of, spans_to
from cdc.views.record_changes import read_below
from cdc.views.row_changes import RowChange
from cdc.views.state_reach import Reached
from cdc.wire.floors import read_floor
from cdc.wire.format import SOURCE, TRUNCATE_OP, member
from cdc.wire.records import Lot


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
        self, lots: Iterable[Lot], read: Callable[[TopicRecord], RowChange], most: int | None
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
