"""A history has each record once, from wherever the stream begins again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.capture.history import HistoryCopies, common_tail, gaps
from cdc.record.ports import Record, Withheld
from cdc.record.position import CHUNK_SEQ, Position
from cdc.wire.format import GAP_OP

TABLE, HISTORY, OTHER = 0, 4, 9


def record(lsn: int, lane: int = TABLE, value: bytes | None = b"v", seq: int = 1) -> Record:
    return lane, b"k", value, [("pos", Position(1, lsn, seq).text().encode()), ("op", b"u")]


def copies(limit_bytes: int = 10_000) -> HistoryCopies:
    made = HistoryCopies(limit_bytes)
    made.keep(TABLE, HISTORY, 4)
    return made


def test_a_copy_stands_behind_its_record_but_of_tombstones() -> None:
    records = [record(1), record(2, value=None), record(3, lane=OTHER), record(4, lane=TABLE + 3)]
    found = copies().of(records)
    assert [(one[0], one[3][0]) for one in found] == [
        (TABLE, records[0][3][0]), (HISTORY, records[0][3][0]), (TABLE, records[1][3][0]),
        (OTHER, records[2][3][0]), (TABLE + 3, records[3][3][0]), (HISTORY + 3, records[3][3][0]),
    ]  # fmt: skip


def test_without_histories_nothing_is_looked_at() -> None:
    assert not HistoryCopies(1)
    assert copies()


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_e1_whatever_each_of_the_two_holds_both_end_with_all(table: int, history: int, again_from: int) -> None:
    held = {TABLE: list(range(1, table + 1)), HISTORY: list(range(1, history + 1))}
    made = copies()
    for lane, lsns in held.items():
        if lsns:
            made.hold(lane, Position(1, lsns[-1], 1).text().encode())
    tail = common_tail([Position(1, table, 1) if table else None, Position(1, history, 1) if history else None])
    first = min(again_from, table, history) + 1
    for lsn in range(first, 13):
        # The assembler leaves out what both hold.
        if tail is None or Position(1, lsn, 1) > tail:
            for one in made.of([record(lsn)]):
                held[one[0]].append(Position.parse(one[3][0][1].decode()).commit_lsn)
    assert held == {TABLE: list(range(1, 13)), HISTORY: list(range(1, 13))}


def test_a_row_of_a_snapshot_is_taken_as_it_comes() -> None:
    made = copies()
    made.hold(TABLE, Position(1, 9, 1).text().encode())
    made.hold(HISTORY, Position(1, 9, 1).text().encode())
    assert len(made.of([record(5, seq=CHUNK_SEQ), record(5)])) == 2


def test_e2_a_record_that_no_topic_takes_is_a_gap_of_its_key() -> None:
    made = copies(limit_bytes=2000)
    found = made.of([record(1, value=b"x" * 990), record(2, value=Withheld(9_000)), record(3)])
    ops = [(one[0], dict(one[3])["op"]) for one in found]
    gap = GAP_OP.encode()
    assert ops == [(TABLE, b"u"), (HISTORY, gap), (TABLE, b"u"), (HISTORY, gap), (TABLE, b"u"), (HISTORY, b"u")]
    assert found[3][2] == b'{"gap":{"bytes":9001,"why":"the record is larger than its topic takes"}}'


def test_e2_a_gap_stands_in_every_partition() -> None:
    found = gaps(range(4, 7), 2, 0x16B3D48)
    assert [one[0] for one in found] == [4, 5, 6]
    assert not Position.parse(found[0][3][0][1].decode()).streamed
    assert found[0][2] == b'{"gap":{"to":"0/16B3D48","why":"the changes before this were not kept"}}'


def test_up_to_the_lower_tail_both_hold_everything() -> None:
    low, high = Position(1, 5, 1), Position(1, 6, 1)
    assert common_tail([high, low]) == low
    assert common_tail([high, None]) is None
