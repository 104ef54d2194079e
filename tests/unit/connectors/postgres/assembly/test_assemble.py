"""From messages to records: order, positions, key changes, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import DecodeError
from cdc.record.position import Position
from cdc.record.schema import Identity, TableSchema
from cdc.record.topic_names import partition_of
from connectors.postgres.assembly.assembler import Committed
from connectors.postgres.assembly.transaction import widened
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import Rows, Shapes, Stream, seqs, store

FULL = w.table(identity=Identity.FULL)
OTHER = 20000


def test_h43_each_record_has_a_position_of_its_own() -> None:
    stream = Stream(w.table())
    records = stream.transaction(
        800,
        w.insert(b"1", b"a"),
        w.update([b"1", b"b"]),
        w.delete(key=[b"1", None]),
        w.insert(b"1", b"c"),
        w.update([b"2", b"c"], key=[b"1", None]),
        w.truncate(w.OID),
        w.insert(b"3", b"d"),
    )
    assert seqs(records) == [
        (1, "c"), (2, "u"), (3, "d"), (4, "tombstone"), (5, "c"),
        (6, "d"), (7, "tombstone"), (8, "c"), (9, "t"), (10, "c"),
    ]  # fmt: skip
    assert {Position.parse(r.headers["pos"])[:2] for r in records} == {(1, 800)}
    assert [r.value["source"]["tx_seq"] for r in records if r.value] == [r.seq for r in records if r.value]


def test_h10_records_of_one_lsn_stay_in_order() -> None:
    stream = Stream(w.table())
    first = stream.transaction(800, w.insert(b"1", b"a"), w.insert(b"2", b"b"))
    second = stream.transaction(900, w.update([b"1", b"c"]))
    positions = [r.headers["pos"] for r in first + second]
    assert positions == sorted(set(positions))
    assert {r.value["source"]["lsn"] for r in first} == {799}


def test_what_is_not_captured_counts_all_the_same() -> None:
    stream = Stream(w.table())
    other = w.table(name="others", oid=OTHER)
    records = stream.transaction(
        800,
        w.relation(other),
        w.insert(b"1", b"a", oid=OTHER),
        w.update([b"1", b"b"], oid=OTHER),
        w.update([b"2", b"b"], key=[b"1", None], oid=OTHER),
        w.delete(key=[b"2", None], oid=OTHER),
        w.truncate(OTHER, w.OID),
        w.insert(b"1", b"a"),
    )
    assert seqs(records) == [(9, "t"), (10, "c")]
    assert stream.commits[-1].rows == 7


def shapes_of_others() -> list[TableSchema | None]:
    """What a catalog may say of another table: not captured, keyed by either column, its key deferrable."""
    first = (w.column("id", "int4", 0), w.column("note", "text"))
    second = (w.column("id", "int4"), w.column("note", "text", 0))
    return [
        None,
        *(
            w.table(*columns, name="others", oid=OTHER, identity=Identity.FULL, deferrable_key=deferrable)
            for columns in (first, second)
            for deferrable in (False, True)
        ),
    ]


CHANGES_OF_OTHERS = st.sampled_from(
    (
        w.insert(b"1", b"a", oid=OTHER),
        w.update([b"1", b"b"], old=[b"1", b"a"], oid=OTHER),
        w.update([b"2", b"b"], old=[b"1", b"b"], oid=OTHER),
        w.delete(old=[b"2", b"c"], oid=OTHER),
        w.truncate(OTHER),
    )
)


OWN_CHANGES = st.sampled_from((w.insert(b"1", b"a"), w.update([b"2", b"a"], old=[b"1", b"a"])))


@pytest.mark.parametrize("netted", [False, True])
@given(messages=st.lists(CHANGES_OF_OTHERS | OWN_CHANGES, max_size=12))
def test_h8_h9_h118_same_bytes_same_numbers_under_any_catalog(netted: bool, messages: list[bytes]) -> None:
    own = w.table(identity=Identity.FULL, deferrable_key=netted)
    relation = w.relation(w.table(name="others", oid=OTHER, identity=Identity.FULL))
    found = []
    for other in shapes_of_others():
        stream = Stream(shapes=Shapes(own, *([other] if other else [])))
        records = stream.transaction(800, w.relation(own), relation, *messages, w.insert(b"9", b"z"))
        found.append([(r.headers["pos"], r.op, r.key) for r in records if r.lane == stream.lane(own)])
    assert found == [found[0]] * len(found)
    assert found[0]


def test_a_record_goes_to_javas_partition_of_its_key() -> None:
    stream = Stream(w.table(), lane_count=4)
    records = stream.transaction(800, *(w.insert(b"%d" % i, b"x") for i in range(40)))
    assert [r.lane for r in records] == [partition_of(b'{"id":%d}' % i, 4) for i in range(40)]
    assert len({r.lane for r in records}) == 4


def test_every_record_has_three_headers_tombstones_too() -> None:
    records = Stream(w.table(version=7)).transaction(800, w.insert(b"1", b"a"), w.delete(key=[b"1", None]))
    assert [r.headers for r in records] == [
        {"pos": f"0000000100000000000003200000000{n}", "op": op, "ver": "7"} for n, op in ((1, "c"), (2, "d"), (3, "d"))
    ]


def test_h40_a_change_of_the_key_is_delete_tombstone_and_create() -> None:
    shape = w.table(w.column("id", "text", 0), w.column("note", "text"))
    records = Stream(shape).transaction(800, w.update([b'n"\n', b"x"], key=[b"old", None]))
    assert [r.key for r in records] == [{"id": "old"}, {"id": "old"}, {"id": 'n"\n'}]
    deleted, tombstone, created = records
    assert (deleted.before, deleted.after, tombstone.value) == ({"id": "old", "note": None}, None, None)
    assert (created.before, created.after) == (None, {"id": 'n"\n', "note": "x"})
    assert json.loads(deleted.headers["__debezium.newkey"]) == created.key
    assert json.loads(tombstone.headers["__debezium.newkey"]) == created.key
    assert json.loads(created.headers["__debezium.oldkey"]) == deleted.key


def test_h40_under_full_the_old_row_stands_before() -> None:
    old = [b"1", b"a"]
    stream = Stream(FULL)
    (updated,) = stream.transaction(800, w.update([b"1", b"b"], old=old))
    assert (updated.op, updated.before, updated.after) == ("u", {"id": 1, "note": "a"}, {"id": 1, "note": "b"})
    moved = stream.transaction(900, w.update([b"2", b"b"], old=[b"1", b"b"]))
    assert [(r.op, r.value and r.before) for r in moved] == [
        ("d", {"id": 1, "note": "b"}), ("d", None), ("c", None)
    ]  # fmt: skip
    deleted, _ = stream.transaction(1000, w.delete(old=[b"2", b"b"]))
    assert (deleted.before, deleted.after) == ({"id": 2, "note": "b"}, None)


def test_a_key_that_is_sent_but_did_not_change_is_an_update() -> None:
    (record,) = Stream(w.table()).transaction(800, w.update([b"1", b"b"], key=[b"1", None]))
    assert (record.op, record.before, record.seq) == ("u", None, 1)


def test_h39_an_old_key_is_no_row_of_nulls() -> None:
    deleted, _ = Stream(w.table()).transaction(800, w.delete(key=[b"1", None]))
    assert deleted.before == {"id": 1, "note": None}


def test_h44_a_truncate_goes_to_every_partition_of_every_table() -> None:
    other = w.table(name="others", oid=OTHER)
    stream = Stream(w.table(), other, lane_count=3)
    records = stream.transaction(800, w.insert(b"1", b"a"), w.truncate(w.OID, OTHER, options=3))
    assert [(r.lane, r.key, r.seq) for r in records[1:]] == [
        *((lane, {"__truncate": "public.orders"}, 2) for lane in (0, 1, 2)),
        *((lane, {"__truncate": "public.others"}, 3) for lane in (3, 4, 5)),
    ]
    assert [(r.op, r.before, r.after, r.value["op"]) for r in records[1:]] == [("t", None, None, "t")] * 6


def test_h47_logical_messages_come_anywhere_and_change_nothing() -> None:
    stream = Stream(w.table())
    stream.feed([w.frame(w.logical("p", b"x", transactional=False))])
    records = stream.transaction(800, w.logical("p", b"y"), w.insert(b"1", b"a"), w.type_name(1, "public", "mood"))
    assert seqs(records) == [(1, "c")]


def test_a_transaction_says_who_made_it_and_what_was_before() -> None:
    stream = Stream(w.table(), near_xid=2**32 + 7)
    (first,) = stream.transaction(800, w.origin("else\twhere", 42), w.insert(b"1", b"a"), xid=5)
    (second,) = stream.transaction(900, w.insert(b"2", b"a"), xid=2**32 - 3)
    source = first.value["source"]
    assert (source["origin"], source["origin_lsn"], source["txId"]) == ("else\twhere", 42, 2**32 + 5)
    assert (source["sequence"], source["commit_lsn"]) == ('[null,"799"]', 800)
    later = second.value["source"]
    assert (later["origin"], later["origin_lsn"], later["txId"]) == (None, None, 2**32 - 3)
    assert later["sequence"] == '["808","899"]'


@given(st.integers(2**31, 2**63), st.integers(-(2**31) + 1, 2**31 - 1))
def test_a_transaction_id_is_the_nearest_that_ends_in_its_bits(near: int, distance: int) -> None:
    assert widened((near + distance) % 2**32, near) == near + distance


def test_times_are_the_commits_and_the_captures() -> None:
    stream = Stream(w.table())
    frames = stream.framed(800, w.insert(b"1", b"a"))
    (record,) = stream.feed(frames, now_ns=1_763_000_001_123_456_789)
    source, value = record.value["source"], record.value
    assert (source["ts_ms"], source["ts_us"], source["ts_ns"]) == (
        1_763_000_000_000, 1_763_000_000_000_000, 1_763_000_000_000_000_000
    )  # fmt: skip
    assert (value["ts_ms"], value["ts_us"], value["ts_ns"]) == (
        1_763_000_001_123, 1_763_000_001_123_456, 1_763_000_001_123_456_789
    )  # fmt: skip


def test_h2_a_commit_tells_where_it_ends() -> None:
    stream = Stream(w.table())
    stream.transaction(800, w.insert(b"1", b"a"), xid=9)
    stream.transaction(900)
    assert stream.commits == [
        Committed(xid=9, commit_lsn=800, end_lsn=808, committed_us=1_763_000_000_000_000, rows=1),
        Committed(xid=555, commit_lsn=900, end_lsn=908, committed_us=1_763_000_000_000_000, rows=0),
    ]


def test_h51_a_changed_shape_takes_over_within_a_transaction() -> None:
    stream = Stream(w.table())
    wider = w.table(w.column("id", "int4", 0), w.column("note", "text"), w.column("n", "int4"), version=2)
    stream.transaction(800, w.insert(b"1", b"a"))
    frames = stream.framed(900, w.insert(b"2", b"b"), w.relation(wider), w.insert(b"3", b"c", b"7"))
    stream.shapes.by_oid[w.OID] = wider
    records = stream.feed(frames)
    assert [(r.headers["ver"], r.after) for r in records] == [
        ("1", {"id": 2, "note": "b"}), ("2", {"id": 3, "note": "c", "n": 7})
    ]  # fmt: skip
    assert stream.assembler.counts() == {("public.orders", "c"): 3}


def test_h35_a_shape_announced_again_is_asked_for_again() -> None:
    stream = Stream(w.table())
    stream.transaction(800, w.relation(w.table()), w.insert(b"1", b"a"))
    assert [relation.table for relation in stream.shapes.asked] == ["orders", "orders"]


def test_a_table_that_is_left_out_later_is_written_no_more() -> None:
    stream = Stream(w.table())
    stream.transaction(800, w.insert(b"1", b"a"))
    del stream.shapes.by_oid[w.OID]
    assert stream.transaction(900, w.relation(w.table()), w.insert(b"2", b"b")) == []


def test_counts_are_by_table_and_op() -> None:
    stream = Stream(w.table(), lane_count=3)
    stream.transaction(
        800,
        w.insert(b"1", b"a"),
        w.update([b"2", b"a"], key=[b"1", None]),
        w.delete(key=[b"2", None]),
        w.truncate(w.OID),
    )
    assert stream.assembler.counts() == {
        ("public.orders", "c"): 2, ("public.orders", "d"): 2, ("public.orders", "t"): 1
    }  # fmt: skip


def test_values_the_encoding_cannot_express_are_counted() -> None:
    shape = w.table(w.column("id", "int4", 0), w.column("n", "numeric"), encoding="debezium")
    stream = Stream(shape)
    (record,) = stream.transaction(800, w.insert(b"1", b"NaN"))
    assert record.after == {"id": 1, "n": None}
    assert stream.assembler.lost()[("public.orders", "n")] >= 1


@pytest.mark.parametrize(
    ("frames", "sentence"),
    [
        ([w.begin(800), w.begin(900)], "BEGIN inside a transaction"),
        ([w.commit(800)], "COMMIT without its BEGIN"),
        ([w.begin(800), w.commit(900)], "COMMIT without its BEGIN"),
        ([w.insert(b"1", b"a")], "a change outside a transaction"),
        ([w.truncate(w.OID)], "a change outside a transaction"),
        ([w.begin(800), w.insert(b"1", b"a", oid=5)], "a change of a table that was not announced"),
        ([w.begin(800), w.relation(w.table()), w.insert(b"1")], "has 1 columns where 2 were announced"),
        ([w.begin(800), w.relation(w.table()), w.insert(b"x", b"a")], "a value of column id that is no int4"),
        ([w.begin(800), w.relation(w.table()), w.insert(b"1", b"a")[:-1]], "Insert at byte"),
        ([w.begin(800), w.relation(w.table()), w.update([w.u, b"a"])], "leaves out its key"),
        ([w.begin(800), w.relation(FULL), w.update([b"1", b"a"], old=[b"1", w.u])], "leaves out values"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(frames: list[bytes], sentence: str) -> None:
    stream = Stream(w.table())
    with pytest.raises(DecodeError) as raised:
        stream.feed([w.frame(payload, 0x16B3D48) for payload in frames])
    assert sentence in raised.value.message
    assert raised.value.message.endswith("(record at 0/16B3D48)")
    assert raised.value.hint


@pytest.mark.parametrize("junk", [b"", b"w", b"k" + bytes(17), w.frame(b"")])
def test_what_is_no_xlogdata_is_refused(junk: bytes) -> None:
    with pytest.raises(DecodeError):
        Stream(w.table()).feed([junk])


def test_the_store_of_these_tests_keeps_the_newest() -> None:
    stream = Stream(w.table())
    records = stream.transaction(800, w.insert(b"1", b"a"), w.update([b"1", b"b"]))
    assert store(records[::-1]) == {'{"id": 1}': {"id": 1, "note": "b"}}


def test_h38_h51_a_row_of_an_older_shape_fills_nothing_in() -> None:
    """Columns dropped and added in mid-transaction: the same count, other columns at the same places."""
    before = w.table(w.column("id", "int4", 0), w.column("b", "text"), w.column("c", "text"))
    after = w.table(w.column("id", "int4", 0), w.column("c", "text"), w.column("d", "text"), version=2)
    wide = b"B" * 3000
    shapes = Shapes(before)
    head = Rows({(b"1",): [b"1", b"C" * 3000, b"new"]})
    stream = Stream(before, shapes=shapes, head=head)
    lsn = 800
    frames = stream.framed(lsn, w.insert(b"1", wide, b"C" * 3000))
    stream.feed(frames[:-1])
    shapes.by_oid[after.oid] = after
    changed = [w.frame(w.relation(after), lsn - 1), w.frame(w.update([b"1", w.u, b"new"]), lsn - 1), frames[-1]]
    (record,) = stream.feed(changed)
    assert record.after == {"id": 1, "c": "C" * 3000, "d": "new"}
