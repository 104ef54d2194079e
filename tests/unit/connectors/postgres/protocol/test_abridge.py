"""Frames that no record can carry: what is left out on their way in, and what becomes of such rows."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import DecodeError, PoisonError
from cdc.record.ports import Record, Withheld
from cdc.record.schema import Identity
from connectors.postgres.protocol.messages import LogicalMessage, Message, Omitted, Update
from connectors.postgres.protocol.oversized_fields import Abridging, abridged, row_limit
from connectors.postgres.protocol.pgoutput import decode
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import Stream

KB = 1024
LIMIT = row_limit(64 * KB)
BIG = b"x" * (LIMIT + 1)


def left_out(value: bytes) -> Omitted:
    return Omitted(len(value), hashlib.sha256(value).digest())


Spec = tuple[str, list[int | None], list[int | None]]
"""A message in few words, which can be shown: its kind, and two rows as sizes of values (None: null, -1: unchanged)."""

sizes = st.sampled_from([None, -1, 0, 1, 5, 64 * KB, 64 * KB + 1, 200 * KB, LIMIT - 1, LIMIT, LIMIT + 1])
rows = st.lists(sizes, min_size=1, max_size=6)
specs = st.tuples(st.sampled_from("IKOD"), rows, rows)


def written(spec: Spec) -> bytes:
    kind, first, second = spec
    one, two = ([_value(size) for size in row] for row in (first, second))
    match kind:
        case "I":
            return w.insert(*one)
        case "K":
            return w.update(one, key=two)
        case "O":
            return w.update(one, old=two)
    return w.delete(old=two)


def _value(size: int | None) -> w.Value:
    if size is None:
        return None
    return w.u if size < 0 else b"v" * size


def payload(message: bytes) -> Message:
    """What is decoded of the message after it was abridged."""
    return decode(abridged(w.frame(message), LIMIT)[25:], abridged=True)


def in_pieces(frame: bytes, cuts: Sequence[int]) -> bytes:
    abridging = Abridging(len(frame), LIMIT)
    places = [0, *sorted(cut % (len(frame) + 1) for cut in cuts), len(frame)]
    for start, end in pairwise(places):
        assert abridging.frame is None or start == end == len(frame)
        assert abridging.feed(frame[start:end]) == end - start
    assert abridging.frame is not None
    return abridging.frame


def test_values_within_the_limit_stay_others_leave_their_length() -> None:
    small, half = b"s" * (64 * KB), b"h" * (LIMIT // 2 + 1)
    found = payload(w.update([b"1", half, half, small, BIG, None, w.u], old=[b"1", BIG]))
    assert isinstance(found, Update)
    assert found.new == (b"1", half, left_out(half), small, left_out(BIG), None, w.u)
    assert found.old == (b"1", left_out(BIG))


def test_of_a_large_logical_message_the_prefix_stays() -> None:
    found = payload(w.logical("prefix", BIG, transactional=False, lsn=77))
    assert found == LogicalMessage(transactional=False, lsn=77, prefix="prefix", content=b"")


def test_a_prefix_that_is_nobodys_is_cut() -> None:
    found = payload(w.logical("p" * 100, BIG, lsn=77))
    assert found == LogicalMessage(transactional=True, lsn=77, prefix="p" * 64, content=b"")


@given(specs, st.lists(st.integers(0, 1 << 40), max_size=8))
def test_the_result_is_the_same_however_the_bytes_are_cut(spec: Spec, cuts: list[int]) -> None:
    message = written(spec)
    frame = w.frame(message)
    whole = abridged(frame, LIMIT)
    assert in_pieces(frame, cuts) == whole
    assert whole[:25] == frame[:25]
    before, after = decode(message), decode(whole[25:], abridged=True)
    assert type(before) is type(after)
    for name in ("key", "old", "new"):
        was, now = getattr(before, name, None), getattr(after, name, None)
        assert (was is None) == (now is None)
        pairs = list(zip(was or (), now or (), strict=True))
        assert all(a == b or (b == left_out(a) and len(a) > 64 * KB) for a, b in pairs)
        assert sum(len(b) for _, b in pairs if isinstance(b, bytes) and len(b) > 64 * KB) <= LIMIT


@given(specs, st.integers(1, 40), st.sampled_from(b"\x00\x01\x05NOKntux\xff"))
def test_what_makes_no_sense_makes_none_abridged_either(spec: Spec, at: int, byte: int) -> None:
    """One byte changed: where decoding refuses the frame, it refuses what is left of it."""
    changed = bytearray(written(spec))
    changed[min(at, len(changed) - 1)] = byte
    try:
        decode(bytes(changed))
    except DecodeError:
        with pytest.raises(DecodeError):
            payload(bytes(changed))
    else:
        payload(bytes(changed))


@given(specs, st.integers(1, 400))
def test_a_frame_cut_short_is_refused(spec: Spec, missing: int) -> None:
    message = written(spec)
    with pytest.raises(DecodeError):
        payload(message[: max(1, len(message) - missing)])


def test_nobody_takes_what_is_abridged_for_what_the_server_sent() -> None:
    with pytest.raises(DecodeError, match="kind of value"):
        decode(abridged(w.frame(w.insert(b"1", BIG)), LIMIT)[25:])


def test_h58_a_field_of_64_mb_in_pieces_takes_no_memory() -> None:
    message = w.insert(b"1", b"x" * (64 << 20))
    frame = w.frame(message)
    view, abridging = memoryview(frame), Abridging(len(frame), LIMIT)
    tracemalloc.start()
    for start in range(0, len(frame), 256 * KB):
        abridging.feed(view[start : start + 256 * KB])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert abridging.frame is not None
    assert len(abridging.frame) < 128
    assert peak < 1 << 20


# What becomes of such rows


def told(stream: Stream, *messages: bytes) -> list[tuple[bytes, int | bytes | None, bytes]]:
    """(key, value or the length of one withheld, position's number) of each record, in order."""
    start = len(stream.records)
    frames = stream.framed(800, *messages)
    stream.take([abridged(f, LIMIT) if len(f) > LIMIT else f for f in frames])
    return [_told(record) for record in stream.records[start:]]


def _told(record: Record) -> tuple[bytes, int | bytes | None, bytes]:
    _, key, value, headers = record
    return key, len(value) if isinstance(value, Withheld) else value and value[:10], dict(headers)["pos"][24:]


def test_h58_a_row_that_no_topic_takes_is_withheld_in_its_place() -> None:
    stream = Stream(w.table())
    found = told(stream, w.insert(b"1", b"a"), w.insert(b"2", BIG), w.update([b"3", BIG]), w.insert(b"4", b"d"))
    assert found == [
        (b'{"id":1}', b'{"before":', b"00000001"),
        (b'{"id":2}', LIMIT + 2, b"00000002"),
        (b'{"id":3}', LIMIT + 2, b"00000003"),
        (b'{"id":4}', b'{"before":', b"00000004"),
    ]
    assert stream.assembler.counts() == {("public.orders", "c"): 3, ("public.orders", "u"): 1}


def test_h58_the_tombstone_of_a_large_old_row_is_carried() -> None:
    stream = Stream(w.table(identity=Identity.FULL))
    found = told(stream, w.delete(old=[b"1", BIG]), w.update([b"2", w.u], old=[b"2", BIG]))
    assert found == [
        (b'{"id":1}', LIMIT + 2, b"00000001"),
        (b'{"id":1}', None, b"00000002"),
        (b'{"id":2}', 2 * (LIMIT + 2), b"00000003"),
    ]


def test_h58_h40_a_moved_row_leaves_its_old_key_when_withheld() -> None:
    stream = Stream(w.table())
    assert told(stream, w.update([b"2", BIG], key=[b"1", None])) == [
        (b'{"id":1}', b'{"before":', b"00000001"),
        (b'{"id":1}', None, b"00000002"),
        (b'{"id":2}', LIMIT + 2, b"00000003"),
    ]


def test_h58_of_a_netted_table_only_the_final_row_is_withheld() -> None:
    stream = Stream(w.table(identity=Identity.FULL, deferrable_key=True))
    other = BIG[1:] + b"y"
    messages = (
        w.insert(b"1", BIG),
        w.delete(old=[b"1", BIG]),
        w.insert(b"2", BIG),
        w.insert(b"3", BIG),
        w.update([b"3", b"small"], old=[b"3", BIG]),
        w.update([b"4", other], old=[b"4", BIG]),
        w.update([b"5", w.u], old=[b"5", BIG]),
    )
    found = {key: value for key, value, _ in told(stream, *messages)}
    assert found == {b'{"id":2}': LIMIT + 2, b'{"id":3}': b'{"before":', b'{"id":4}': 2 * (LIMIT + 2)}


def test_h38_a_value_left_out_is_not_an_unchanged_one() -> None:
    """The update behind it leaves out what the insert had: it is asked for, nothing is made up."""
    stream = Stream(w.table(w.column("id", "int4", 0), w.column("note", "text"), w.column("n", "int4")))
    told(stream, w.insert(b"1", BIG, b"1"), w.update([b"1", w.u, b"2"]))
    ((asked,), _), *more = stream.head.asked
    assert not more
    assert asked.key == (b"1",)
    assert asked.columns == (1,)


def test_h58_a_key_that_no_topic_takes_is_refused_by_name() -> None:
    with pytest.raises(PoisonError, match=r"public\.orders has 524,289 bytes in a column of its key"):
        told(Stream(w.table(w.column("id", "text", 0))), w.insert(BIG))
