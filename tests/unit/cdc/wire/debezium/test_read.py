"""Records that real connectors wrote, in every form, as changes of ours."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.epochs import EpochsState
from cdc.position import CHUNK_SEQ, Position
from cdc.wire.debezium.reading import UNVERSIONED, DebeziumChange, PartitionReader, SettledRecord, UnreadableRecord
from cdc.wire.format import UNAVAILABLE
from tests.single_rows import store_key
from tests.unit.cdc.wire.debezium.recorded import Recorded, after, changes, read_all, recorded

ALL = (
    "sh_operations",
    "sh_keys",
    "sh_replica_identity",
    "snapshots",
    "snapshots_schemas",
    "key_schemas",
    "key_plain",
    "flat",
    "flat_schemas",
    "mariadb",
)


@pytest.mark.parametrize("name", ALL)
def test_positions_never_fall_within_a_partition(name: str) -> None:
    by_partition: dict[tuple[str, int], list[Position]] = defaultdict(list)
    records = [r for r in recorded(name) if r.key is not None]
    for record, found in zip(records, read_all(records), strict=True):
        assert not isinstance(found, UnreadableRecord), (record, found)
        if isinstance(found, DebeziumChange):
            by_partition[record.topic, record.partition].append(found.pos)
    assert any(len(positions) > 1 for positions in by_partition.values())
    for positions in by_partition.values():
        assert all(one <= other for one, other in pairwise(positions))


@pytest.mark.parametrize("name", ALL)
def test_the_newest_by_position_is_the_last_of_each_key(name: str) -> None:
    """What a sink keeps, by (pos, offset), is what the topic's order says."""
    newest: dict[tuple[str, bytes], tuple[Position, int, Any]] = {}
    last: dict[tuple[str, bytes], Any] = {}
    records = [r for r in recorded(name) if r.key is not None]
    for record, found in zip(records, read_all(records), strict=True):
        if not isinstance(found, DebeziumChange):
            continue
        key = (record.topic, found.key)
        last[key] = after(found)
        if key not in newest or newest[key][:2] <= (found.pos, record.offset):
            newest[key] = (found.pos, record.offset, after(found))
    assert {key: row for key, (_, _, row) in newest.items()} == last


def test_without_schemas_values_and_keys_stay_as_they_are() -> None:
    records = recorded("sh_operations")
    first, *_ = found = changes(records)
    assert first == DebeziumChange(b'{"id":1}', records[0].value, Position(1, 0, 0), "r", UNVERSIONED, None)
    assert {change.op for change in found} == {"r", "c", "u", "d"}


def test_h91_a_streamed_change_is_one_above_the_commit_before_it() -> None:
    found = changes(recorded("snapshots"))
    by_value = {(after(c) or {}).get("v"): c for c in reversed(found)}
    # sequence [null, ...]: before the first commit, and yet above the snapshot.
    assert by_value["ten"].pos == Position(1, 1, 0)
    assert by_value["x"].pos == Position(1, 24322792 - 1, 0)
    # Two changes of one transaction share a position; the later offset wins.
    assert by_value["t1"].pos == Position(1, 24323032 - 1, 0)
    # A connector that was restarted still knows the last commit.
    assert by_value["after restart"].pos == Position(1, 24323240 - 1, 0)


def test_h91_later_snapshot_rows_lie_between_commits() -> None:
    records = recorded("snapshots_schemas")
    for record, found in zip(records, read_all(records), strict=True):
        source = orjson.loads(record.value or b"{}")["payload"]["source"]
        assert isinstance(found, DebeziumChange)
        last_commit = orjson.loads(source["sequence"])[0]
        if found.op == "r" and last_commit is not None:
            assert found.pos == Position(1, int(last_commit) - 8, CHUNK_SEQ)
    assert {c.pos.tx_seq for c in changes(records) if c.op == "r"} == {0, CHUNK_SEQ}


def test_an_incremental_row_without_a_place_takes_the_highest() -> None:
    records = recorded("snapshots")
    partition = [r for r in records if r.partition == 0]
    stripped = [
        r._replace(value=r.value.replace(b'"[\\"24324256\\",\\"24324256\\"]"', b"null")) if r.value else r
        for r in partition
    ]
    highest: dict[str, Position] = {}
    bare = 0
    for before, record, found in zip(partition, stripped, read_all(stripped), strict=True):
        if isinstance(found, DebeziumChange):
            if record.value != before.value:
                bare += 1
                assert found.pos == highest[record.topic]
            highest[record.topic] = max(found.pos, highest.get(record.topic, found.pos))
    assert bare == 2


def test_a_reset_is_a_new_epoch_from_its_offsets_on() -> None:
    records = [r for r in recorded("sh_operations") if r.value is not None]
    epochs = EpochsState().begin({records[0].topic: {0: 5}})
    for record, found in zip(records, read_all(records, epochs), strict=True):
        assert isinstance(found, DebeziumChange)
        assert found.pos.epoch == (1 if record.offset < 5 else 2)


def test_a_tombstone_deletes_what_its_delete_did_and_no_more() -> None:
    found = read_all(recorded("sh_operations"))
    tombstones = [n for n, r in enumerate(recorded("sh_operations")) if r.value is None]
    assert tombstones
    assert all(isinstance(found[n], SettledRecord) for n in tombstones)


def test_a_tombstone_without_its_delete_deletes_up_to_its_place() -> None:
    reader = PartitionReader("t", 0)
    assert reader.read(0, b'{"id":1}', None) == SettledRecord("its delete lies before the first record that was read")
    record = next(r for r in recorded("sh_operations") if b'"op":"c"' in (r.value or b""))
    created = reader.read(3, record.key, record.value)
    assert isinstance(created, DebeziumChange)
    found = reader.read(5, b'{"id":77}', None)
    assert isinstance(found, DebeziumChange)
    assert (found.key, found.value, found.op, found.pos) == (b'{"id":77}', None, "d", created.pos)


def test_a_tombstone_behind_the_delete_of_another_key_deletes() -> None:
    """A connector that wrote no tombstones for a while leaves deletes without one."""
    records = recorded("sh_operations")
    delete = next(r for r in records if b'"op":"d"' in (r.value or b""))
    reader = PartitionReader("t", 0)
    deleted = reader.read(0, delete.key, delete.value)
    assert isinstance(deleted, DebeziumChange)
    found = reader.read(1, b'{"id":77}', None)
    assert isinstance(found, DebeziumChange)
    assert (found.key, found.op, found.pos) == (b'{"id":77}', "d", deleted.pos)


def test_a_truncate_sets_a_floor_by_the_constant_key() -> None:
    found = [c for c in changes(recorded("sh_truncate_emitted")) if c.op == "t"]
    assert [c.key for c in found] == [
        b'{"__truncate":"sh_truncate_emitted.t2"}',
        b'{"__truncate":"sh_truncate_emitted.t1"}',
        *[c.key for c in found[2:]],
    ]
    assert all(c.pos.commit_lsn > 1 for c in found)
    embedded = changes(recorded("key_plain"))[-1]
    assert (embedded.op, embedded.key) == ("t", b'{"__truncate":"public.k"}')
    assert embedded.schema is not None
    assert [c.name for c in embedded.schema.key] == ["n", "ts"]


@pytest.mark.parametrize("name", ["key_schemas", "key_plain"])
def test_keys_of_any_type_are_readable_in_every_record_of_a_row(name: str) -> None:
    found = [c for c in changes(recorded(name)) if c.op != "t"]
    assert {c.key for c in found} == {b'{"n":"1.50","ts":"2020-01-01T10:00:00Z"}'}
    assert [c.op for c in found] == ["r", "u", "d", "c"]
    schema = found[0].schema
    assert schema is not None
    assert store_key(schema, found[0].key) == "1.50:2020-01-01T10%3A00%3A00Z"


def test_h125_an_update_without_its_values_is_refused() -> None:
    """The row behind it is whole, so it is taken."""
    first, unchanged, *_ = records = recorded("toast_schemas")
    _, refused = read_all(records[:2])
    assert isinstance(refused, UnreadableRecord)
    assert refused.reason.startswith("it lacks the value of by, t, which did not change")
    whole = (first.value or b"").replace(b'"op":"r"', b'"op":"u"').replace(b'"op":"c"', b'"op":"u"')
    behind = read_all([first, unchanged, first._replace(offset=unchanged.offset + 1, value=whole)])[2]
    assert isinstance(behind, DebeziumChange)
    assert after(behind)["t"] == "t" * 3000


def test_h125_flat_rows_without_values_are_refused_too() -> None:
    for row in (b'{"id":1,"v":"%b"}', b'{"op":"u","after":{"id":1,"v":"%b"},"before":null,"source":%%b}'):
        source = b'{"connector":"postgresql","schema":"s","table":"t","sequence":"[null,null]"}'
        value = row % UNAVAILABLE.encode()
        found = PartitionReader("d.s.t", 0).read(0, b'{"id":1}', value.replace(b"%b", source))
        assert isinstance(found, UnreadableRecord), found
        assert found.reason.startswith("it lacks the value of v, which did not change")


def test_flat_rows_are_ordered_by_their_offsets() -> None:
    found = changes(recorded("flat"))
    assert [(c.op, after(c) and after(c)["v"]) for c in found] == [
        ("u", "a"),
        ("u", "b"),
        ("u", "c"),
        ("d", None),
        ("u", "x"),
    ]
    assert [c.pos for c in found] == sorted(c.pos for c in found)


def test_flat_rows_lose_the_fields_that_were_added() -> None:
    found = changes(recorded("flat_schemas"))
    assert [c.op for c in found] == ["r", "r", "u", "d", "d", "c"]
    assert after(found[2]) == {"id": 1, "v": "c", "at": "2020-01-01T10:00:00Z"}
    schema = found[0].schema
    assert schema is not None
    assert [c.name for c in schema.columns] == ["id", "v", "at"]
    assert str(schema.table) == "public.flat"


@pytest.mark.parametrize("said", [b'"true"', b"true"])
def test_a_flat_delete_says_so_where_operations_were_not_added(said: bytes) -> None:
    """With ``delete.tombstone.handling.mode=rewrite`` and without ``add.fields=op`` there is ``__deleted`` alone."""
    row, gone = b'{"id":1,"v":"a","__deleted":"false"}', b'{"id":1,"v":null,"__deleted":%b}' % said
    records = [Recorded("e11.public.flat", 0, number, b'{"id":1}', value) for number, value in enumerate((row, gone))]
    found = changes(records)
    assert [(c.op, after(c)) for c in found] == [("u", {"id": 1, "v": "a"}), ("d", None)]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (b"{}", b"not json", "not readable"),
        (b'{"id":1}', b"[1]", "no JSON object"),
        (b'{"id":1}', b'{"schema":{"type":"struct"},"payload":{"op":"c"}}', "not readable"),
        (b"7", b'{"op":"c","source":{}}', "key is no JSON object"),
        (None, b'{"op":"c","source":{"connector":"postgresql","sequence":"[null,null]"}}', "no key"),
        (b'{"id":1}', b'{"op":"c","source":{"connector":"db2"},"after":{}}', "no order is known"),
        (b'{"id":1}', b'{"op":"c","source":{"connector":"postgresql"},"after":{}}', "no position of postgresql"),
        (b'{"id":1}', b'{"op":"m","source":{"connector":"postgresql"}}', "its op is m"),
        (None, None, "no key"),
    ],
)
def test_h67_what_is_none_of_debeziums_is_told_apart(key: bytes | None, value: bytes | None, words: str) -> None:
    found = PartitionReader("t", 0).read(0, key, value)
    assert isinstance(found, UnreadableRecord)
    assert words in found.reason


@given(st.sampled_from(recorded("key_schemas") + recorded("snapshots")[:4]), st.data())
def test_h67_no_bytes_make_the_reader_raise(record: Recorded, data: st.DataObject) -> None:
    value = record.value or b"null"
    at = data.draw(st.integers(0, len(value)))
    other = data.draw(st.binary(max_size=8))
    mangled = value[:at] + other + value[at + len(other) :]
    found = PartitionReader("t", 0).read(0, data.draw(st.sampled_from([record.key, other, None])), mangled)
    assert isinstance(found, DebeziumChange | SettledRecord | UnreadableRecord)


def test_h126_columns_may_be_named_schema_and_payload() -> None:
    """As JsonConverter's own two members, in a key and in a flat row of nothing else."""
    key, row = b'{"schema":"public","payload":7}', b'{"schema":"public","payload":"x"}'
    reader = PartitionReader("d.s.t", 0)
    found = reader.read(0, key, row)
    assert isinstance(found, DebeziumChange), found
    assert (orjson.loads(found.key), after(found)) == (orjson.loads(key), orjson.loads(row))
    deleted = reader.read(1, key, None)
    assert isinstance(deleted, DebeziumChange)
    assert (deleted.op, orjson.loads(deleted.key)) == ("d", orjson.loads(key))
