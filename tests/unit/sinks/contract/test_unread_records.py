"""Records that a plan refuses, each with its reason; and a table's batch less the rows that a store cannot write."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import orjson
import pyarrow as pa
import pytest

from cdc.record.position import Position
from cdc.wire.format import UNAVAILABLE
from cdc.wire.plain import PlainTable
from sinks.contract.batch import Event, events_of
from sinks.contract.batch_plan import IncompleteRows, TableBatch, event_rows, floor_marks, plan
from sinks.contract.newest import newest, ordered_mask, out_of_range
from sinks.contract.port import StoredRow
from sinks.contract.store import Filler
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch

SHAPES = Shapes(ORDERS)
SOUND = Topic().upsert({"id": 1, "status": "open", "note": None}, at(2))
HIGHEST = Position(127, 2**56 - 1, 2**32 - 1).text()
_NONE_OF_OURS = "the record's position is none of a pipeline's: its epoch is over 127, or its LSN too large"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"key": None}, "the record has no key"),
        ({"op": None}, "the record has no op header"),
        ({"op": "x"}, "the record's op is none of c, u, d, r, t"),
        ({"pos": None}, "the record has no position"),
        ({"pos": ""}, "the record has no position"),
        ({"pos": "9" * 31}, "the record has no position"),
        ({"pos": "0000000100000000016B3D4800000003"}, "the record has no position"),
        ({"pos": at(2, epoch=128).text()}, _NONE_OF_OURS),
        ({"pos": "0000000101000000016b3d4800000003"}, _NONE_OF_OURS),
        ({"pos": at(2, epoch=128).text(), "op": "t"}, _NONE_OF_OURS),
        ({"ver": None}, "the record names no schema version"),
        ({"ver": 9}, "the schema topic has no version 9 of this table"),
        ({"key": b"7"}, "the key does not have the columns id"),
        ({"value": b"{"}, "the value is not JSON"),
    ],
)
def test_h67_a_record_is_refused_as_it_came_for_one_reason(changed: dict[str, Any], reason: str) -> None:
    """Two of them, behind a sound one of another row: each is refused by itself."""
    bad = [SOUND._replace(offset=offset, **{"key": b'{"id":%d}' % offset, **changed}) for offset in (7, 8)]
    made = plan(events_of([SOUND, *bad]), SHAPES, lambda _table: "")
    found = sorted(made.refused, key=lambda one: one.offset)
    kept = {name: getattr(one, name) for one in found[-1:] for name in Event._fields}
    assert [one.offset for one in found] == ([8] if changed.get("key") == b"7" else [7, 8])
    assert Event(**kept) == bad[1]
    assert {one.reason for one in found} == {reason}
    assert [one.batch.keys for one in made.batches] == [["1"]]


def test_h67_a_floor_that_cannot_be_read_is_refused_by_itself() -> None:
    topic = Topic(partitions=1)
    floor, pos = topic.truncate(at(5))[0], at(6).text()
    strange = topic.raw(b'{"__mystery":1}', None, pos, "t", 1)
    unknown = topic.raw(floor.key, None, pos, "t", 9)
    bare = topic.raw(floor.key, None, pos, "t", None)
    row = topic.upsert({"id": 1, "status": "x", "note": None}, at(7))
    last = topic.truncate(at(8))[0]
    marks, shapes, refused = floor_marks(batch(floor, strange, row, unknown, bare, last), SHAPES)
    assert [mark.floor for mark in marks] == [floor.pos, last.pos]
    assert shapes == {ORDERS.table: ORDERS}
    assert [one.offset for one in refused] == [strange.offset, unknown.offset, bare.offset]
    assert [one.reason for one in refused[1:]] == [
        "the schema topic has no version 9 of this table", "the record names no schema version",
    ]  # fmt: skip


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_h64_of_three_spellings_of_a_key_the_newest_counts(order: tuple[int, int, int]) -> None:
    topic = Topic()
    events = [
        topic.upsert({"id": 1, "status": str(lsn), "note": None}, at(lsn))._replace(key=b'{"id":%s1}' % (b" " * lsn))
        for lsn in order
    ]
    [made] = plan(batch(events), SHAPES, lambda _table: "").batches
    assert [orjson.loads(row or b"")["status"] for row in made.batch.rows] == ["3"]


def table_batch(rows: list[bytes | None], filled: dict[int, dict[str, Any]] | None = None) -> TableBatch:
    numbers = [str(number) for number in range(len(rows))]
    events = [SOUND._replace(offset=number) for number in range(len(rows))]
    return TableBatch(
        schema=ORDERS, plain=PlainTable(ORDERS), keys=numbers, pos=numbers, rows=rows, events=events_of(events),
        filled=filled or {},
    )  # fmt: skip


def converted(row: bytes) -> str:
    if row == b"bad":
        raise ValueError("the value of column note is too long")
    return row.decode()


def from_plain(row: dict[str, Any]) -> str:
    return f"filled {row['id']}"


@pytest.mark.parametrize("filled", [{}, {4: {"id": 4}}])
def test_h67_rows_that_a_store_cannot_write_are_left_out(filled: dict[int, dict[str, Any]]) -> None:
    """Deletes stay, and each row stays beside its key."""
    made = table_batch([b"a", b"bad", None, b"bad", b"c", b"d"], filled).converted(converted, from_plain)
    assert dict(zip(made.batch.keys, made.rows, strict=True)) == {
        "0": "a", "2": None, "4": "filled 4" if filled else "c", "5": "d",
    }  # fmt: skip
    assert [(one.offset, one.reason) for one in made.refused] == [
        (1, "the value of column note is too long"), (3, "the value of column note is too long"),
    ]  # fmt: skip


def test_h102_a_piece_is_as_small_as_the_bound_allows() -> None:
    whole = table_batch([b"1234", None, b"5678", b"90", b"12", b"345", b"6"])
    assert [piece.rows for piece in whole.pieces(8)] == [[b"1234", None, b"5678"], [b"90", b"12", b"345", b"6"]]
    assert [piece.rows for piece in whole.pieces(7)] == [[b"1234", None, b"5678"], [b"90", b"12", b"345"], [b"6"]]
    assert [len(piece) for piece in whole.pieces(4)] == [1, 2, 2, 2]
    for one in (whole, table_batch([])):
        [piece] = one.pieces(17)
        assert piece is one, "one piece is no copy"


def test_a_row_that_only_looks_as_if_it_lacks_a_value_is_whole() -> None:
    """Bytes that hold the placeholder and are no JSON, or hold it inside of a value: the store is not asked."""
    text = UNAVAILABLE.encode()
    rows: list[bytes | None] = [b'{"id":1,"note":"%s' % text, b'{"id":2,"note":"not %s"}' % text, text, None]

    def stored(_schema: object, _keys: object) -> dict[str, StoredRow]:
        raise AssertionError("nothing is lacking")

    one = table_batch(rows)
    [portion] = Filler(stored).portions(IncompleteRows(batch=one, every=one.events))
    assert (portion.batch, portion.stale, portion.refused) == (one, 0, ())


@pytest.mark.parametrize("part", ["e", "h", "l", "s"])
def test_h61_each_part_of_a_position_orders(part: str) -> None:
    """The epoch, both halves of the LSN, and the number in the transaction: the offset is asked last."""
    made = "".join({"e": "00000001", "h": "00000001", "l": "00000010", "s": "00000001"}.values())
    place = "ehls".index(part) * 8 + 7
    older, newer = made, f"{made[:place]}2{made[place + 1 :]}"
    events = [SOUND._replace(pos=newer, offset=3), SOUND._replace(pos=older, offset=9)]
    for order in (events, events[::-1]):
        assert newest(events_of(order))["offset"].to_pylist() == [3]


@pytest.mark.parametrize("digit", range(32))
def test_h101_eight_digits_of_a_storable_position_are_zero(digit: int) -> None:
    """Those above an epoch of 127 and an LSN of 56 bits."""
    raised = f"{'0' * digit}1{'0' * (31 - digit)}"
    too_large = digit in (0, 1, 2, 3, 4, 5, 8, 9)
    assert out_of_range(raised) is too_large
    assert ordered_mask(pa.chunked_array([[raised, HIGHEST]])).to_pylist() == [not too_large, True]
    assert not out_of_range(HIGHEST)
    assert out_of_range(Position(128, 8, 1).text())


def test_the_newest_of_keys_of_many_topics() -> None:
    """Twenty topics with a key each, which is another one in every topic."""
    events = [
        SOUND._replace(topic=f"shop.public.t{n % 20}", key=b'{"id":%d}' % (n % 20), offset=n, pos=at(n).text())
        for n in range(40)
    ]
    assert {event.offset for event in event_rows(newest(events_of(events)))} == set(range(20, 40))
