"""A table that is locked waits alone: its records come later, in their order, and all others flow (H95)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.postgres.assembly.assembler import Limits
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import Read, Rows, Stream, seqs

LOCKED, FREE = w.OID, 20000
SHAPE = w.table(w.column("id", "int4", 0), w.column("doc", "text"), w.column("n", "int4"))
OTHER = w.table(*SHAPE.columns, name="others", oid=FREE)
HEAD: Mapping[tuple[bytes, ...], Sequence[bytes | None]] = {
    (b"%d" % n,): [b"%d" % n, b"doc %d" % n, b"7"] for n in range(9)
}
LACKING = w.update([b"1", w.u, b"5"])
"""An update that leaves out a value stored out of line."""


def stream_of(*, memory_bytes: int = 16 << 20, waiting_bytes: int = 1 << 30, lane_count: int = 1) -> Stream:
    limits = Limits(waiting_memory_bytes=memory_bytes, waiting_bytes=waiting_bytes)
    stream = Stream(SHAPE, OTHER, head=Rows(HEAD), limits=limits, lane_count=lane_count)
    stream.head.locked.add(LOCKED)
    return stream


def of(stream: Stream, records: list[Read], oid: int) -> list[Read]:
    lane = stream.lane(SHAPE if oid == LOCKED else OTHER)
    return [r for r in records if lane <= r.lane < lane + stream.lane_count]


def test_h95_a_locked_table_waits_and_the_others_flow() -> None:
    stream = stream_of()
    first = stream.transaction(800, LACKING, w.insert(b"1", b"a", b"1", oid=FREE), w.insert(b"2", b"b", b"2"))
    second = stream.transaction(
        900, w.update([b"1", w.u, b"6"], oid=FREE), w.delete(key=[b"2", None, None]), w.truncate(LOCKED)
    )
    assert of(stream, first + second, LOCKED) == []
    assert [(r.seq, r.op) for r in of(stream, first, FREE)] == [(2, "c")]
    assert of(stream, second, FREE)[0].after["doc"] == "doc 1"
    assert stream.assembler.oldest_waiting == 800
    assert sum(stream.assembler.waiting().values()) == 5
    assert stream.resume() == []
    stream.head.locked.clear()
    late = stream.resume()
    assert seqs(late) == [(1, "u"), (3, "c"), (2, "d"), (3, "tombstone"), (4, "t")]
    assert late[0].after == {"id": 1, "doc": "doc 1", "n": 5}
    assert not stream.assembler.waiting()
    assert seqs(stream.transaction(1000, w.insert(b"5", b"x", b"1"))) == [(1, "c")]


CHANGES = st.sampled_from(
    (
        (LOCKED, LACKING),
        (LOCKED, w.insert(b"3", b"doc", b"1")),
        (LOCKED, w.update([b"2", w.u, b"1"])),
        (LOCKED, w.update([b"4", b"y", b"1"], key=[b"2", None, None])),
        (FREE, w.insert(b"3", b"doc", b"1", oid=FREE)),
        (FREE, w.update([b"1", w.u, b"5"], oid=FREE)),
    )
)


@pytest.mark.parametrize("memory_bytes", [1, 2000, 16 << 20])
@given(
    transactions=st.lists(st.lists(CHANGES, min_size=1, max_size=6), min_size=1, max_size=5),
    unlock_at=st.integers(0, 5),
    lane_count=st.integers(1, 3),
)
def test_h95_a_partitions_records_are_the_same_without_a_lock(
    memory_bytes: int, transactions: list[list[tuple[int, bytes]]], unlock_at: int, lane_count: int
) -> None:
    calm, locked = stream_of(lane_count=lane_count), stream_of(memory_bytes=memory_bytes, lane_count=lane_count)
    calm.head.locked.clear()
    for number, changes in enumerate(transactions):
        messages = [message for _, message in changes]
        calm.transaction(800 + 100 * number, *messages)
        if number == unlock_at:
            locked.head.locked.clear()
        locked.transaction(800 + 100 * number, *messages)
        oldest = locked.assembler.oldest_waiting
        late = {r.headers["pos"] for r in calm.read()} - {r.headers["pos"] for r in locked.read()}
        # Everything below what is reported to wait was returned, and something there was not.
        assert oldest == (min(int(pos[8:24], 16) for pos in late) if late else None)
        locked.resume()
    locked.head.locked.clear()
    while locked.assembler.oldest_waiting is not None:
        locked.resume()
    for lane in range(2 * lane_count):
        assert [r for r in locked.read() if r.lane == lane] == [r for r in calm.read() if r.lane == lane]
