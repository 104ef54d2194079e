"""Records taken apart: events, and what is none of ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.contract.batch import EVENT_SCHEMA
from spark.records.source import parse
from tests.unit.spark.records import KafkaRecord, records_of, sound

POS = "its header pos is missing or not 32 hex digits"
OP = "its header op is missing or not one of c, u, d, r, t"
VER = "its header ver is missing or not a number"


def test_headers_become_columns() -> None:
    records = records_of(
        KafkaRecord(b"a", b"1", sound(8, "c"), 5), KafkaRecord(b"b", None, sound(16, "d", seq=2), 6, partition=3)
    )
    events, unreadable = parse(records)
    assert unreadable == []
    assert events.schema.equals(EVENT_SCHEMA)
    assert events.to_pylist() == [
        {"topic": "shop.public.orders", "partition": 0, "offset": 5, "key": b"a", "value": b"1",
         "pos": "00000001000000000000000800000001", "op": "c", "ver": 1},
        {"topic": "shop.public.orders", "partition": 3, "offset": 6, "key": b"b", "value": None,
         "pos": "00000001000000000000001000000002", "op": "d", "ver": 1},
    ]  # fmt: skip


def test_other_headers_and_their_order_do_not_matter() -> None:
    extra = [("__debezium.newkey", b"{}"), *reversed(sound(8)), ("trace", None)]
    events, unreadable = parse(records_of(KafkaRecord(b"a", b"1", extra), KafkaRecord(b"b", b"2", sound(16, ver=7))))
    assert unreadable == []
    assert events["ver"].to_pylist() == [1, 7]


def test_of_several_headers_of_a_name_the_last_counts() -> None:
    events, _ = parse(records_of(KafkaRecord(b"a", b"1", [*sound(8), ("op", b"c")]), KafkaRecord(b"b", b"2", sound(8))))
    assert events["op"].to_pylist() == ["c", "u"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (KafkaRecord(None, b"1", sound()), "it has no key"),
        (KafkaRecord(b"k", b"1", None), POS),
        (KafkaRecord(b"k", b"1", []), POS),
        (KafkaRecord(b"k", b"1", [("pos", b"0" * 31), *sound()[1:]]), POS),
        (KafkaRecord(b"k", b"1", [("pos", b"\xff" * 32), *sound()[1:]]), POS),
        (KafkaRecord(b"k", b"1", [("pos", None), *sound()[1:]]), POS),
        (KafkaRecord(b"k", b"1", sound(op="x")), OP),
        (KafkaRecord(b"k", b"1", [*sound()[:1], ("op", b"\x80"), *sound()[2:]]), OP),
        (KafkaRecord(b"k", b"1", sound()[:2]), VER),
        (KafkaRecord(b"k", b"1", [*sound()[:2], ("ver", b"9" * 30)]), VER),
        (KafkaRecord(b"k", b"1", [*sound()[:2], ("ver", b"\xb2")]), VER),
    ],
)  # fmt: skip
def test_h67_a_foreign_record_is_told_apart_and_the_rest_goes_on(record: KafkaRecord, reason: str) -> None:
    good = KafkaRecord(b"good", b"1", sound(), 1)
    events, unreadable = parse(records_of(good, record._replace(offset=2), good._replace(offset=3)))
    assert events["offset"].to_pylist() == [1, 3]
    assert [(one.offset, one.reason) for one in unreadable] == [(2, f"not a record of ours: {reason}")]
    assert unreadable[0].headers == tuple(record.headers or ())
    assert (unreadable[0].key, unreadable[0].value) == (record.key, record.value)


_HEADER = st.tuples(st.sampled_from(["pos", "op", "ver", "x"]), st.none() | st.binary(max_size=34))
_ANY = st.lists(_HEADER, max_size=5)
_SOUND = st.builds(sound, st.integers(0, 2**63), st.sampled_from("cudrt"), st.integers(0, 10**8))


@given(st.lists(st.tuples(st.none() | st.binary(max_size=3), st.one_of(st.none(), _ANY, _SOUND)), max_size=9))
def test_h67_no_bytes_raise_and_no_record_is_lost(
    made: list[tuple[bytes | None, list[tuple[str, bytes | None]] | None]],
) -> None:
    records = [KafkaRecord(key, b"v", headers, offset) for offset, (key, headers) in enumerate(made)]
    events, unreadable = parse(records_of(*records))
    kept: list[Any] = events["offset"].to_pylist()
    assert sorted([*kept, *(one.offset for one in unreadable)]) == list(range(len(records)))
    for event in events.to_pylist():
        headers = dict(records[event["offset"]].headers or ())
        assert (headers["pos"], headers["op"]) == (event["pos"].encode(), event["op"].encode())
        assert int(headers["ver"] or b"") == event["ver"]


def test_a_slice_of_a_larger_batch_reads_its_own_headers() -> None:
    whole = records_of(*(KafkaRecord(b"k", b"v", sound(8 * n), n) for n in range(7)))
    events, _ = parse(whole.slice(3, 3))
    positions: list[Any] = events["pos"].to_pylist()
    assert [int(pos[8:24], 16) for pos in positions] == [24, 32, 40]
