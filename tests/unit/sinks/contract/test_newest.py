"""The newest of each key, against a dict that is told one event after the other."""

from __future__ import annotations

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sinks.contract.batch import Event, conform, events_of
from sinks.contract.newest import newest

TOPICS = st.sampled_from(["shop.public.a", "shop.public.b"])
KEYS = st.sampled_from([b"1", b"2", b'{"id":3}', b""])
POSITIONS = st.one_of(
    st.builds(
        lambda e, lsn, s: f"{e:08x}{lsn:016x}{s:08x}", st.integers(1, 127), st.integers(0, 2**56 - 1), st.integers(0, 3)
    ),
    st.sampled_from(["0000000100000000016b3d4800000003", "0000000100000000016b3d48ffffffff"]),
)
TOO_LATE, TOO_FAR = "0000008000000000016b3d4800000003", "0000000101000000016b3d4800000003"
"""An epoch of 128, and an LSN of 57 bits: more than a store holds."""
STRANGE = st.sampled_from(["", "short", "0000000100000000016B3D4800000003", "g" * 32, None, TOO_LATE, TOO_FAR])


@st.composite
def batches(draw: st.DrawFn, *, strange: bool = False) -> list[Event]:
    count = draw(st.integers(0, 30))
    pos = st.one_of(POSITIONS, STRANGE) if strange else POSITIONS
    op = st.sampled_from(["c", "u", "d", "r", "t", None, "x"]) if strange else st.sampled_from(["c", "u", "d", "r"])
    key = st.one_of(KEYS, st.none()) if strange else KEYS
    return [
        Event(draw(TOPICS), 0, offset, draw(key), draw(st.sampled_from([b"{}", None])), draw(pos), draw(op), 1)
        for offset in range(count)
    ]


def is_row(event: Event) -> bool:
    hexadecimal = event.pos is not None and len(event.pos) == 32 and not set(event.pos) - set("0123456789abcdef")
    held = hexadecimal and event.pos not in (TOO_LATE, TOO_FAR)
    return held and event.key is not None and event.op in ("c", "u", "d", "r")


def expected(events: list[Event]) -> set[Event]:
    best: dict[tuple[str, bytes | None], Event] = {}
    for event in events:
        if not is_row(event):
            continue
        held = best.get((event.topic, event.key))
        if held is None or (held.pos or "", held.offset) <= (event.pos or "", event.offset):
            best[event.topic, event.key] = event
    return set(best.values()) | {event for event in events if not is_row(event)}


def found(table: pa.Table) -> list[Event]:
    return [Event(**row) for row in table.to_pylist()]


@given(batches(strange=True), st.randoms(use_true_random=False), st.integers(1, 5))
def test_the_newest_of_each_key_and_all_that_is_none(events: list[Event], order: random.Random, cut: int) -> None:
    shuffled = events[:]
    order.shuffle(shuffled)
    whole = events_of(shuffled)
    chunked = pa.concat_tables([whole.slice(n, cut) for n in range(0, max(1, len(shuffled)), cut)])
    kept = newest(chunked)
    assert sorted(found(kept), key=repr) == sorted(expected(events), key=repr)
    assert sorted(found(newest(kept)), key=repr) == sorted(found(kept), key=repr)


@given(batches())
def test_taking_the_newest_of_parts_first_changes_nothing(events: list[Event]) -> None:
    half = len(events) // 2
    parts = pa.concat_tables([newest(events_of(events[:half])), newest(events_of(events[half:]))])
    assert set(found(newest(parts))) == expected(events)


def test_h77_of_equal_positions_the_later_offset_is_newer() -> None:
    pos = "0000000100000000016b3d48ffffffff"
    events = [Event("t", 0, offset, b"1", b"%d" % offset, pos, "r", 1) for offset in (7, 9, 8)]
    assert [event.offset for event in found(newest(events_of(events)))] == [9]


def test_h61_the_offset_orders_nothing_but_equals() -> None:
    old, new = (f"{1:08x}{lsn:016x}{1:08x}" for lsn in (8, 16))
    events = [Event("t", 0, 900, b"1", b"old", old, "u", 1), Event("t", 3, 2, b"1", b"new", new, "u", 1)]
    assert [event.value for event in found(newest(events_of(events)))] == [b"new"]


def test_floors_of_every_partition_stay() -> None:
    pos = "0000000100000000016b3d4800000001"
    marks = [Event("t", p, 0, b'{"__truncate":"public.t"}', b"{}", pos, "t", 1) for p in range(4)]
    assert newest(events_of(marks)).num_rows == 4


def test_a_batch_of_another_shape_is_conformed() -> None:
    table = events_of([Event("t", 0, 1, b"1", None, "0" * 32, "d", 1)])
    large = table.set_column(3, "key", table["key"].cast(pa.large_binary())).append_column("more", pa.array([1]))
    assert conform(large).schema == table.schema
    assert newest(large.to_batches()[0]).num_rows == 1
