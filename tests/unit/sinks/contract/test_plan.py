"""A batch of large records: what it is split into, and how often its bytes are copied (hazard H102)."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.position import Position
from cdc.wire.plain import PlainTable
from sinks.contract.batch import pc, where
from sinks.contract.batch_plan import BatchPlan, TableBatch, plan
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch

ROW_BYTES = 100_000


def planned(events: pa.Table) -> BatchPlan:
    return plan(events, Shapes(ORDERS), lambda _table: at(1).text())


def large(count: int) -> pa.Table:
    topic = Topic()
    return batch([topic.upsert({"id": n, "status": "x" * ROW_BYTES, "note": None}, at(n + 1)) for n in range(count)])


def test_h102_a_plan_in_which_all_rows_count_copies_no_bytes() -> None:
    events = large(40)
    before = pa.total_allocated_bytes()
    made = planned(events)
    assert len(made.batches[0].batch) == 40
    assert pa.total_allocated_bytes() - before < 4 * ROW_BYTES


def test_h102_all_rows_are_the_table_itself_and_some_are_a_copy() -> None:
    events = large(3)
    assert where(events, pc.is_valid(events["key"])) is events
    assert where(events, pc.less(events["offset"], 2)).num_rows == 2


@given(st.lists(st.none() | st.binary(max_size=9), max_size=30), st.integers(1, 40))
def test_h102_pieces_are_the_whole_in_its_order_and_bounded(rows: list[bytes | None], most_bytes: int) -> None:
    keys = [str(number) for number in range(len(rows))]
    filled = {number: {"id": number} for number in range(0, len(rows), 3)}
    whole = TableBatch(
        schema=ORDERS,
        plain=PlainTable(ORDERS),
        keys=keys,
        pos=keys,
        rows=rows,
        events=pa.table({"n": keys}),
        filled=filled,
    )
    pieces = list(whole.pieces(most_bytes))
    assert [row for piece in pieces for row in piece.rows] == rows
    assert [key for piece in pieces for key in piece.events["n"].to_pylist()] == keys
    assert [row for piece in pieces for _, row in sorted(piece.filled.items())] == list(filled.values())
    assert all(piece.keys[number] == str(row["id"]) for piece in pieces for number, row in piece.filled.items())
    assert all(sum(len(row or b"") for row in piece.rows[:-1]) < most_bytes for piece in pieces)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("first", "second"), [(at(1), at(1)), (at(1), at(2)), (at(2), at(1))])
def test_h64_of_two_spellings_of_a_key_the_newest_counts(
    first: Position, second: Position, order: tuple[int, int]
) -> None:
    """By position, and where that is equal by offset: two windows may read a row at one position (hazard H77)."""
    topic = Topic()
    events = [
        topic.upsert({"id": 1, "status": "first", "note": None}, first),
        topic.upsert({"id": 1, "status": "second", "note": None}, second)._replace(key=b'{ "id": 1 }'),
    ]
    assert events[0].offset < events[1].offset
    [made] = planned(batch(*[events[number] for number in order])).batches
    status = "first" if first > second else "second"
    assert made.batch.keys == ["1"]
    assert [orjson.loads(row or b"")["status"] for row in made.batch.rows] == [status]
