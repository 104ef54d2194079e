"""Values that an update leaves out: from the old row, from the transaction, from the source, or a placeholder."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.ports import Withheld
from cdc.record.position import Position
from cdc.record.schema import Identity
from connectors.postgres.assembly.assembler import Limits
from connectors.postgres.assembly.pending_records import Selected, WantedRow, placeholder
from connectors.postgres.protocol.messages import Omitted
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import Read, Rows, Stream, store

WIDE = b"x" * 900
SHAPE = w.table(w.column("id", "int4", 0), w.column("doc", "text"), w.column("n", "int4"))
OTHER = 20000


def head(*rows: tuple[bytes, bytes | None, bytes | None]) -> Rows:
    return Rows({(row[0],): row for row in rows})


def docs(records: list[Read]) -> list[Any]:
    return [record.after["doc"] for record in records if record.value is not None and record.after]


def test_h38_under_full_the_old_row_has_it() -> None:
    stream = Stream(w.table(*SHAPE.columns, identity=Identity.FULL))
    (record,) = stream.transaction(800, w.update([b"1", w.u, b"2"], old=[b"1", WIDE, b"1"]))
    assert record.after == {"id": 1, "doc": WIDE.decode(), "n": 2}
    assert stream.head.asked == []


def test_h38_a_change_of_the_key_under_full_carries_it() -> None:
    stream = Stream(w.table(*SHAPE.columns, identity=Identity.FULL))
    records = stream.transaction(800, w.update([b"2", w.u, b"1"], old=[b"1", WIDE, b"1"]))
    assert docs(records) == [WIDE.decode()]


def test_h45_an_old_row_that_is_but_a_key_fills_in_no_nulls() -> None:
    """A partition made later has identity DEFAULT, and its old keys come under the root's FULL."""
    stream = Stream(w.table(*SHAPE.columns, identity=Identity.FULL), head=head((b"2", WIDE, b"1")))
    records = stream.transaction(800, w.update([b"2", w.u, b"1"], old=[b"1", None, None]), w.update([b"2", w.u, b"3"]))
    assert docs(records) == [WIDE.decode()] * 2


def test_h69_an_earlier_change_of_the_transaction_has_it() -> None:
    stream = Stream(SHAPE)
    records = stream.transaction(
        800,
        w.insert(b"1", WIDE, b"1"),
        w.update([b"1", w.u, b"2"]),
        w.update([b"1", w.u, b"3"]),
        w.update([b"2", w.u, b"3"], key=[b"1", None, None]),
        w.update([b"2", w.u, b"4"]),
    )
    assert docs(records) == [WIDE.decode()] * 5
    assert stream.head.asked == []


def test_h69_only_of_the_same_transaction() -> None:
    stream = Stream(SHAPE, head=head((b"1", b"from the source", b"2")))
    stream.transaction(800, w.insert(b"1", WIDE, b"1"))
    assert docs(stream.transaction(900, w.update([b"1", w.u, b"2"]))) == ["from the source"]


@pytest.mark.parametrize(
    "between",
    [
        [w.update([b"1", b"short", b"2"])],
        [w.delete(key=[b"1", None, None]), w.insert(b"1", b"short", b"1")],
        [w.truncate(w.OID), w.insert(b"1", b"short", b"1")],
        [w.update([b"2", w.u, b"2"], key=[b"1", None, None]), w.insert(b"1", b"short", b"1")],
    ],
)
def test_h38_what_a_transaction_knew_before_is_not_the_present(between: list[bytes]) -> None:
    stream = Stream(SHAPE, head=head((b"1", b"now", b"9")))
    records = stream.transaction(800, w.insert(b"1", WIDE, b"1"), *between, w.update([b"1", w.u, b"9"]))
    assert docs(records)[-1] == "now"


def test_what_does_not_fit_into_memory_is_looked_up() -> None:
    stream = Stream(SHAPE, head=head((b"1", b"now", b"9")), limits=Limits(recent_bytes=2000))
    inserts = [w.insert(b"%d" % i, WIDE, b"1") for i in range(1, 4)]
    assert docs(stream.transaction(800, *inserts, w.update([b"1", w.u, b"9"])))[-1] == "now"
    assert len(stream.head.asked) == 1


def test_a_row_is_asked_for_once_with_all_missing_values() -> None:
    shape = w.table(w.column("id", "int4", 0), w.column("a", "text"), w.column("b", "text"))
    stream = Stream(shape, head=Rows({(b"1",): (b"1", b"A", b"B"), (b"2",): (b"2", b"C", None)}), near_xid=2**33)
    frames = stream.framed(800, w.update([b"1", w.u, b"b"]), w.update([b"2", w.u, w.u]), xid=7)
    frames += stream.framed(900, w.insert(b"3", b"", b""), xid=8)
    frames += stream.framed(1000, w.update([b"1", b"a", w.u]), xid=9)
    records = stream.feed(frames)
    assert [r.after for r in records] == [
        {"id": 1, "a": "A", "b": "b"},
        {"id": 2, "a": "C", "b": None},
        {"id": 3, "a": "", "b": ""},
        {"id": 1, "a": "a", "b": "B"},
    ]
    ((wanted, xids),) = stream.head.asked
    assert [(one.key, one.columns) for one in wanted] == [((b"1",), (1, 2)), ((b"2",), (1, 2))]
    assert xids == {2**33 + 7, 2**33 + 9}


def test_a_key_of_several_columns_is_asked_for_in_its_order() -> None:
    shape = w.table(w.column("b", "text", 1), w.column("doc", "text"), w.column("a", "int4", 0))
    stream = Stream(shape, head=Rows({(b"1", b"x"): (b"x", b"found", b"1")}))
    assert docs(stream.transaction(800, w.update([b"x", w.u, b"1"]))) == ["found"]


def test_records_behind_one_that_waits_stay_behind_it() -> None:
    other = w.table(name="others", oid=OTHER)
    stream = Stream(SHAPE, other, head=head((b"1", b"doc", b"1")), lane_count=2)
    records = stream.transaction(
        800,
        w.insert(b"5", b"a", oid=OTHER),
        w.update([b"1", w.u, b"1"]),
        w.insert(b"6", b"b", oid=OTHER),
        w.delete(key=[b"1", None, None]),
        w.truncate(w.OID),
    )
    assert [r.headers["pos"] for r in records] == sorted(r.headers["pos"] for r in records)
    assert [r.op for r in records] == ["c", "u", "c", "d", "d", "t", "t"]


def test_a_row_that_is_gone_gets_debeziums_placeholder() -> None:
    stream = Stream(SHAPE)
    records = stream.transaction(800, w.update([b"1", w.u, b"2"]), w.delete(key=[b"1", None, None]))
    assert records[0].after == {"id": 1, "doc": "__debezium_unavailable_value", "n": 2}
    assert store(records) == {}


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (w.column("x", "jsonb"), "__debezium_unavailable_value"),
        (w.column("x", "numeric"), "__debezium_unavailable_value"),
        (w.column("x", "bytea"), "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
        (w.column("x", "text", array=True), ["__debezium_unavailable_value"]),
        (w.column("x", "int8", array=True), list(b"__debezium_unavailable_value")),
        (w.column("x", "bytea", array=True), ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="]),
        (w.column("x", "hstore"), '{"__debezium_unavailable_value":"__debezium_unavailable_value"}'),
    ],
)
def test_placeholders_have_the_shape_of_their_type(column: Any, expected: Any) -> None:
    assert json.loads(placeholder(column)) == expected


def test_buffered_records_have_a_limit_within_a_transaction_too() -> None:
    stream = Stream(SHAPE, head=head((b"1", b"doc", b"1")), limits=Limits(held_bytes=20_000))
    waiting = [w.update([b"1", w.u, b"%d" % n]) for n in range(200)]
    records = stream.transaction(800, *waiting)
    assert len(stream.head.asked) > 3
    assert [r.after["n"] for r in records] == list(range(200))
    assert set(docs(records)) == {"doc"}


def test_many_records_of_one_batch_are_drained_on_the_way() -> None:
    stream = Stream(SHAPE, head=head((b"1", b"doc", b"1")))
    stream.transaction(800, w.update([b"1", w.u, b"0"]), *(w.insert(b"%d" % n, b"", b"0") for n in range(2, 2600)))
    assert len(stream.overflows) >= 2


def asked_at_once(stream: Stream) -> list[int]:
    return [len(wanted) for wanted, _ in stream.head.asked]


def test_h38_fewer_rows_are_looked_up_at_once_the_wider_they_are() -> None:
    rows = [(b"%d" % n, b"d" * (1 << 20 if n < 104 else 10), b"0") for n in range(300)]
    stream = Stream(SHAPE, head=head(*rows))
    records = stream.transaction(800, *(w.update([b"%d" % n, w.u, b"1"]) for n in range(300)))
    sizes = asked_at_once(stream)
    assert sum(sizes) == 300
    assert sizes[:10] == [64, 8, 8, 8, 8, 8, 8, 16, 32, 64], "back step by step"
    assert [record.after["id"] for record in records] == list(range(300))


def test_h38_wide_values_are_drained_by_their_bytes() -> None:
    stream = Stream(SHAPE, head=head((b"1", b"d" * (1 << 20), b"1")))
    stream.transaction(800, *(w.update([b"1", w.u, b"%d" % n]) for n in range(64)))
    assert len(stream.head.asked) == 1
    assert 7 <= len(stream.overflows) <= 9, "64 MB, by 8"


def test_h41_rows_that_netting_leaves_are_drained_by_their_bytes() -> None:
    stream = Stream(w.table(*SHAPE.columns, identity=Identity.FULL, deferrable_key=True))
    stream.transaction(800, *(w.insert(b"%d" % n, b"d" * (1 << 20), b"1") for n in range(32)))
    assert 3 <= len(stream.overflows) <= 5, "32 MB, by 8"


def test_h75_what_is_in_the_log_already_is_not_looked_up_again() -> None:
    stream = Stream(SHAPE, seen={0: Position(1, 800, 2)}, head=head((b"1", b"doc", b"1")))
    changes = [w.update([b"1", w.u, b"1"]), w.update([b"1", w.u, b"2"]), w.insert(b"2", b"", b"3")]
    assert [r.seq for r in stream.transaction(800, *changes)] == [3]
    assert stream.head.asked == []


def test_h75_behind_a_record_that_waits_too_nothing_comes_twice() -> None:
    stream = Stream(SHAPE, lane_count=2, seen={1: Position(1, 800, 9)}, head=Rows({}))
    messages = [w.update([b"%d" % n, w.u, b"1"]) for n in range(8)]
    records = stream.transaction(800, *messages, w.insert(b"9", b"", b"1"), w.insert(b"10", b"", b"1"))
    once = Stream(SHAPE, lane_count=2)
    whole = once.transaction(800, *messages, w.insert(b"9", b"", b"1"), w.insert(b"10", b"", b"1"))
    assert [r.seq for r in records] == [r.seq for r in whole if r.lane == 0 or r.seq > 9]


ROWS = 3
notes = st.sampled_from((WIDE, b"short", b"y" * 700))


@st.composite
def transactions(draw: st.DrawFn) -> tuple[list[list[bytes]], dict[int, tuple[bytes, int]]]:
    """Transactions over a few rows whose wide values are left out where unchanged, and what is left at the end."""
    rows: dict[int, tuple[bytes, int]] = {}
    found = []
    for number in range(draw(st.integers(1, 4))):
        messages = []
        for _ in range(draw(st.integers(1, 6))):
            key = draw(st.integers(0, ROWS))
            if key not in rows:
                rows[key] = (draw(notes), number)
                messages.append(w.insert(b"%d" % key, rows[key][0], b"%d" % number))
            elif draw(st.booleans()):
                doc, _ = rows.pop(key)
                to = draw(st.sampled_from([k for k in range(ROWS + 2) if k == key or k not in rows]))
                new = draw(notes | st.just(doc))
                rows[to] = (new, number)
                left_out = new == doc and len(doc) > 500
                before: Any = [b"%d" % key, None, None] if to != key else None
                messages.append(w.update([b"%d" % to, w.u if left_out else new, b"%d" % number], key=before))
            else:
                del rows[key]
                messages.append(w.delete(key=[b"%d" % key, None, None]))
        found.append(messages)
    return found, rows


@given(transactions(), st.sampled_from((200, 8 << 20)), st.sampled_from((2000, 8 << 20)))
def test_h38_the_final_rows_are_the_sources(
    drawn: tuple[list[list[bytes]], dict[int, tuple[bytes, int]]], recent_bytes: int, held_bytes: int
) -> None:
    history, rows = drawn
    source = head(*((b"%d" % key, doc, b"%d" % n) for key, (doc, n) in rows.items()))
    stream = Stream(SHAPE, head=source, limits=Limits(recent_bytes=recent_bytes, held_bytes=held_bytes))
    for number, messages in enumerate(history):
        stream.transaction(800 + 100 * number, *messages)
    assert store(stream.read()) == {
        json.dumps({"id": key}): {"id": key, "doc": doc.decode(), "n": n} for key, (doc, n) in rows.items()
    }


def test_v25_a_record_names_the_columns_that_were_read_later() -> None:
    stream = Stream(SHAPE, head=head((b"1", b"from the source", b"2"), (b"3", b"three", b"9")))
    changes = [
        w.update([b"1", w.u, b"2"]), w.update([b"2", w.u, b"5"]), w.update([b"3", w.u, w.u]),
        w.insert(b"4", WIDE, b"1"), w.update([b"4", w.u, b"2"]),
    ]  # fmt: skip
    said = [record.value["source"].get("reselected") for record in stream.transaction(800, *changes)]
    assert said == [
        {"columns": ["doc"], "seen_lsn": 0x7000},
        None,  # the row is gone, and its value a placeholder
        {"columns": ["doc", "n"], "seen_lsn": 0x7000},
        None,
        None,  # known from its own transaction
    ]


def test_h58_a_waiting_row_too_large_for_its_topic_is_withheld() -> None:
    class Long(Rows):
        def rows(
            self, wanted: Sequence[WantedRow], xids: Collection[int], *, brief: bool = False
        ) -> Sequence[Selected]:
            return [(Omitted(200_000_000, b""),) for _ in wanted]

    stream = Stream(SHAPE, head=Long())
    stream.take(stream.framed(800, w.update([b"1", w.u, b"5"]), w.insert(b"2", b"doc", b"6")))
    (_, key, value, _), (_, behind, _, _) = stream.records
    assert (key, behind) == (b'{"id":1}', b'{"id":2}')
    assert isinstance(value, Withheld)
    assert value.size_bytes == 200_000_000
