"""The queue of a table that waits: what it counts, whom it tells, what it asks for, and what stands on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cdc.process.errors import SourceError
from cdc.record.ports import Record
from cdc.record.position import Position
from cdc.record.schema import Column, TableSchema
from cdc.record.tables_aside import CannotFollow
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.assembly.pending_records import (
    GONE,
    HELD_ROWS,
    LATER,
    Answer,
    Entry,
    Pending,
    PendingRecords,
    Selected,
    WantedRow,
    commit_of,
    completed,
    placeholder,
    size_of,
)
from connectors.postgres.assembly.waiting_tables import Bounds, WaitingTables
from connectors.postgres.encoding.encoder import TableEncoder, compile_table
from connectors.postgres.protocol.messages import UNCHANGED
from tests.unit.connectors.postgres import written as w

SCHEMA = w.table(w.column("id", "int4", 0), w.column("doc", "text"))
OTHER = w.table(*SCHEMA.columns, name="others", oid=20000)
PORTION = 1000
TAIL = b',"source":{"lsn":1},"transaction":null,"op":"u"}'
ROW_BYTES = 400


@dataclass
class Source:
    """Answers with ``value`` for each row, or with LATER while ``locked``."""

    locked: bool = True
    value: bytes = b"v"
    seen_lsn: int = 0x7000
    asked: list[tuple[list[bytes], bool]] = field(default_factory=list)

    def rows(self, wanted: Sequence[WantedRow], xids: Collection[int], *, brief: bool = False) -> Sequence[Selected]:
        self.asked.append(([one.key[0] for one in wanted], brief))
        return [LATER if self.locked else (self.value,) for _ in wanted]


@dataclass
class Kept:
    """Waiting tables, what they told and what they emitted."""

    source: Source = field(default_factory=Source)
    memory_bytes: int = 1 << 20
    limit_bytes: int = 1 << 20
    folder: str | None = None
    told: list[tuple[TableName, bool]] = field(default_factory=list)
    refused: list[CannotFollow] = field(default_factory=list)
    out: list[Record] = field(default_factory=list)
    tables: WaitingTables = field(init=False)

    def __post_init__(self) -> None:
        self.tables = WaitingTables(
            self.source, Bounds(self.memory_bytes, self.limit_bytes, self.folder), self._tell, self.refused.append
        )

    def _tell(self, table: TableName, waits: bool) -> None:
        self.told.append((table, waits))

    def begin(self, *entries: Pending) -> None:
        for entry in entries:
            self.tables.begin(entry, entry)

    def resume(self) -> list[bytes]:
        """The keys of what came."""
        before = len(self.out)
        self.tables.resume(self.out.append)
        return [record[1] for record in self.out[before:]]


def encoder(schema: TableSchema = SCHEMA) -> TableEncoder:
    return compile_table(schema, name="shop", database="app", masks=NO_MASKS)


ORDERS, OTHERS = encoder(), encoder(OTHER)


def pending(number: int, *, lsn: int = 800, of: TableEncoder = ORDERS, lane: int = 0) -> Pending:
    return Pending(
        lane=lane, lanes=range(lane, lane + 1), xid=7, key=b"%d" % number, headers=headers(lsn), encoder=of,
        before=b"null", values=[b"%d" % number, UNCHANGED], tail=TAIL,
    )  # fmt: skip


def record(number: int, *, lsn: int = 800, value: bytes | None = b"v", lane: int = 0) -> Record:
    return lane, b"%d" % number, value, headers(lsn)


def headers(lsn: int) -> list[tuple[str, bytes]]:
    return [("pos", Position(1, lsn, 1).text().encode()), ("op", b"u")]


def test_who_listens_is_told_of_each_beginning_and_end_once() -> None:
    kept = Kept()
    kept.begin(pending(1), pending(2), pending(3, of=OTHERS, lane=1))
    assert kept.told == [(SCHEMA.table, True), (OTHER.table, True)]
    assert kept.resume() == []
    kept.source.locked = False
    assert kept.resume() == [b"1", b"2", b"3"]
    assert kept.told[2:] == [(SCHEMA.table, False), (OTHER.table, False)]
    assert not kept.tables


def test_the_oldest_of_all_tables_is_reported() -> None:
    kept = Kept()
    assert Kept().tables.oldest is None
    kept.begin(pending(1, lsn=900), pending(2, of=OTHERS, lane=1, lsn=800))
    kept.tables.add(record(3, lsn=1000))
    assert kept.tables.oldest == 800
    assert kept.tables.counts() == {SCHEMA.table: 2, OTHER.table: 1}


def test_a_table_is_waited_for_no_longer_than_milliseconds() -> None:
    kept = Kept()
    kept.begin(pending(1))
    kept.resume()
    assert [brief for _, brief in kept.source.asked] == [True]


def test_above_the_limit_the_largest_table_is_set_aside() -> None:
    first, second = pending(1), record(2)
    kept = Kept(limit_bytes=size_of(first) + size_of(second) + size_of(pending(3)))
    kept.begin(first, pending(3, of=OTHERS, lane=1))
    kept.tables.add(second)
    assert not kept.refused
    kept.source.locked = False
    kept.resume()
    kept.source.locked = True
    kept.begin(first, pending(3, of=OTHERS, lane=1))
    kept.tables.add(second)
    assert not kept.refused, "what went is counted no more"
    kept.tables.add(record(4, lane=1, value=b""))
    assert [one.tables for one in kept.refused] == [(SCHEMA.table,)]


@pytest.mark.parametrize(("room", "spilled"), [(0, False), (-1, True)])
def test_memory_takes_what_fits_to_the_byte(tmp_path: Path, room: int, spilled: bool) -> None:
    entries = [pending(1), pending(2)]
    missing = tmp_path / "none"
    kept = Kept(memory_bytes=sum(map(size_of, entries)) + room, folder=str(missing))
    kept.begin(entries[0])
    if spilled:
        with pytest.raises(SourceError, match="which waits, cannot be kept in"):
            kept.begin(entries[1])
    else:
        kept.begin(entries[1])
        assert sum(kept.tables.counts().values()) == 2


def test_one_that_is_larger_than_memory_is_kept_in_it() -> None:
    kept = Kept(memory_bytes=1, folder="/none")
    kept.begin(pending(1))
    kept.source.locked = False
    assert kept.resume() == [b"1"]


def test_behind_what_is_on_disk_everything_goes_there(tmp_path: Path) -> None:
    large = record(2, value=b"x" * 1000)
    kept = Kept(memory_bytes=size_of(pending(1)) + ROW_BYTES + 50, folder=str(tmp_path))
    kept.begin(pending(1))
    for entry in (large, record(3), record(4), record(5)):
        kept.tables.add(entry)
    kept.source.locked = False
    came: list[list[bytes]] = []
    while kept.tables:
        came.append(kept.resume())
    assert [key for part in came for key in part] == [b"1", b"2", b"3", b"4", b"5"]
    # Of the files no more is read at once than memory takes: one that is too large alone, then two small ones.
    assert came == [[b"1"], [b"2"], [b"3", b"4", b"5"]]


def test_a_question_is_repeated_until_it_is_answered() -> None:
    kept = Kept()
    kept.begin(*(pending(n) for n in range(HELD_ROWS + 1)))
    kept.resume()
    kept.begin(pending(999))
    kept.resume()
    kept.source.locked = False
    assert len(kept.resume()) == HELD_ROWS
    assert kept.resume() == [b"%d" % HELD_ROWS, b"999"]
    assert [len(keys) for keys, _ in kept.source.asked] == [HELD_ROWS, HELD_ROWS, HELD_ROWS, 2]


def test_a_question_is_not_made_longer_by_what_came_since() -> None:
    kept = Kept()
    kept.begin(pending(1))
    kept.resume()
    kept.begin(pending(2))
    kept.resume()
    assert [keys for keys, _ in kept.source.asked] == [[b"1"], [b"1"]]


def test_one_turn_emits_so_many_records_of_a_table() -> None:
    kept = Kept()
    kept.begin(pending(0))
    for number in range(1, PORTION + 1):
        kept.tables.add(record(number))
    kept.source.locked = False
    assert len(kept.resume()) == PORTION
    assert kept.resume() == [b"%d" % PORTION]


@pytest.mark.parametrize(
    ("entry", "size_bytes"),
    [
        (record(1, value=b"four"), 1 + 4 + ROW_BYTES),
        (record(1, value=None), 1 + ROW_BYTES),
        (pending(1), 1 + 4 + len(TAIL) + ROW_BYTES),
    ],
)
def test_what_an_entry_costs(entry: Entry, size_bytes: int) -> None:
    assert size_of(entry) == size_bytes


@pytest.mark.parametrize("lsn", [0x800000000000000F, 0x0FFFFFFFFFFFFFF0])
def test_the_commit_of_an_entry_is_its_whole_lsn(lsn: int) -> None:
    assert commit_of(record(1, lsn=lsn)) == commit_of(pending(1, lsn=lsn)) == lsn


def held(source: Source, *entries: Pending) -> tuple[PendingRecords, list[Record]]:
    queue = PendingRecords(source)
    out: list[Record] = []
    for entry in entries:
        queue.wait(entry)
    return queue, out


def never(entry: Entry, example: Pending) -> None:
    raise AssertionError(entry)


def test_what_is_held_is_counted_until_it_is_released() -> None:
    queue, out = held(Source(locked=False), pending(1))
    queue.follow(record(2))
    assert queue.size_bytes == size_of(pending(1)) + size_of(record(2))
    queue.release(out.append, never)
    assert [found[1] for found in out] == [b"1", b"2"]
    assert queue.size_bytes == 0
    assert not queue


def test_the_oldest_that_is_held_of_a_table() -> None:
    queue, _ = held(Source(), pending(1, lsn=900), pending(2, lsn=800), pending(3, of=OTHERS, lane=1, lsn=700))
    assert [queue.oldest_of(lanes) for lanes in (range(1), range(1, 2), range(2), range(2, 3))] == [800, 700, 700, None]


def test_h119_what_is_dropped_of_a_table_is_counted_no_more() -> None:
    queue, out = held(Source(locked=False), *(pending(n) for n in range(HELD_ROWS)), pending(1, of=OTHERS, lane=1))
    queue.follow(record(2, lane=1))
    full = [queue.full]
    queue.leave(range(1))
    assert [*full, queue.full] == [True, False]
    assert queue.size_bytes == size_of(pending(1)) + size_of(record(2))
    queue.release(out.append, never)
    assert [(lane, key) for lane, key, _, _ in out] == [(1, b"1"), (1, b"2")]


def test_a_row_that_is_gone_is_written_as_what_took_its_place() -> None:
    entry = pending(1)
    place = (id(entry.encoder), entry.key)
    entry.gone = (record(8, value=TAIL), record(9, value=None))
    delete, tombstone = completed(entry, {place: Answer((1,), GONE, 7)})
    assert b'"source":{"lsn":1,"seen_lsn":7}' in (delete[2] or b"")
    assert tombstone == (0, b"9", None, [*headers(800), ("seen_lsn", b"7")])
    found = Answer((1,), (b"v",), 7)
    assert completed(entry, {place: found}) == (entry.record(found),)


def test_a_row_the_stream_waits_for_is_looked_up_for_longer() -> None:
    source = Source(locked=False)
    queue, out = held(source, pending(1))
    queue.release(out.append, never)
    assert source.asked == [([b"1"], False)]


@pytest.mark.parametrize(("value_bytes", "rows"), [(8 << 20, 1), (32 << 20, 1), (4 << 20, 2)])
def test_after_wide_values_fewer_rows_are_looked_up(value_bytes: int, rows: int) -> None:
    queue, out = held(Source(locked=False, value=b"x" * value_bytes), pending(1))
    queue.release(out.append, never)
    for number in range(rows):
        assert not queue.full
        queue.wait(pending(number))
    assert queue.full


@pytest.mark.parametrize(
    ("kind", "array", "written"),
    [
        ("int2", True, b"[95,"),
        ("int4", True, b"[95,"),
        ("int8", True, b"[95,"),
        ("int4", False, b'"__debezium'),
        ("text", True, b'["__debezium'),
    ],
)
def test_a_placeholder_of_numbers_stands_in_arrays_alone(kind: str, array: bool, written: bytes) -> None:
    column = Column(name="a", attnum=1, type=kind, type_oid=1, kind=kind, array=array)
    assert placeholder(column).startswith(written)


def test_h95_one_byte_above_the_limit_is_too_much_at_once() -> None:
    kept = Kept(limit_bytes=size_of(pending(1)) + size_of(record(2)) - 1)
    kept.begin(pending(1))
    kept.tables.add(record(2))
    assert [one.tables for one in kept.refused] == [(SCHEMA.table,)]


def test_h119_nothing_is_kept_of_a_table_that_is_set_aside() -> None:
    kept = Kept(limit_bytes=2 * size_of(pending(1)))
    kept.begin(pending(1), pending(2, of=OTHERS, lane=1))
    assert kept.tables.lanes == {0, 1}
    kept.tables.leave(range(1))
    assert (kept.tables.lanes, kept.tables.counts()) == (frozenset({1}), {OTHER.table: 1})
    kept.begin(pending(3))
    kept.tables.add(record(4))
    kept.begin(pending(5, of=OTHERS, lane=1))
    assert kept.tables.counts() == {OTHER.table: 2}
    assert not kept.refused, "what was dropped is counted no more"


def test_h119_records_of_a_table_aside_are_dropped_for_a_while() -> None:
    kept = Kept()
    kept.begin(pending(1))
    kept.tables.leave(range(1))
    assert (bool(kept.tables), 0 in kept.tables) == (True, True)
    kept.tables.arrived()
    assert (bool(kept.tables), 0 in kept.tables) == (False, False)


def test_h95_what_is_on_disk_counts_too(tmp_path: Path) -> None:
    kept = Kept(memory_bytes=1, limit_bytes=2000, folder=str(tmp_path))
    kept.begin(pending(1))
    kept.tables.add(record(2, value=b"x" * 1000))
    assert not kept.refused
    kept.tables.add(record(3, value=b"x" * 1000))
    assert [one.tables for one in kept.refused] == [(SCHEMA.table,)]
    kept.tables.leave(range(1))


@dataclass
class Locked(Source):
    """Has every table locked but ``free``, and counts how often it was asked for each."""

    free: TableName | None = None
    count: Counter[TableName] = field(default_factory=Counter)

    def rows(self, wanted: Sequence[WantedRow], xids: Collection[int], *, brief: bool = False) -> Sequence[Selected]:
        table = wanted[0].schema.table
        self.count[table] += 1
        return [(self.value,) if table == self.free else LATER for _ in wanted]


def test_h152_a_hundred_locked_tables_have_one_budget_a_turn() -> None:
    source = Locked()
    kept = Kept(source=source)
    shapes = [w.table(*SCHEMA.columns, name=f"t{n}", oid=20000 + n) for n in range(100)]
    kept.begin(*(pending(n, of=encoder(shape), lane=n) for n, shape in enumerate(shapes)))
    for turn in range(1, 35):
        kept.resume()
        assert source.count.total() == 3 * turn
    assert set(source.count) == {shape.table for shape in shapes}, "each has its turn"
    source.free = shapes[50].table
    turns = next(turn for turn in range(1, 40) if kept.resume())
    assert turns <= 34
    assert len(kept.tables.counts()) == 99
