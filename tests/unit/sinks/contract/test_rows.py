"""Rows into the forms of the stores and back, pure: envelopes, documents, warehouse columns, names, floors."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.position import Position
from cdc.record.topic_names import TableName
from cdc.wire.envelope import is_unavailable, row_of, row_reader
from cdc.wire.plain import store_key
from sinks.contract.missing_values import dumps_exact, loads_exact, members
from sinks.contract.store_names import cache_table, column_names, document_id, field_names, folder, index_alias
from sinks.contract.store_notes import FloorMark, TableFloor
from sinks.search.search_documents import Documents, action, document_version, ending
from sinks.search.search_mapping import mapping
from sinks.sql.sql_rows import csv
from sinks.warehouse.warehouse_columns import arrow_type, evolved, typed, warehouse_columns, wider
from tests.contract.topics import ORDERS, Topic, at, column, numeric, shape
from tests.contract.values import EVERYTHING, HARD_ROWS
from tests.single_rows import canonical_row, plain_row

names = st.text(min_size=1, max_size=20)
texts = st.dictionaries(st.sampled_from(["id", "a", "b", "c"]), st.text() | st.none() | st.integers(0, 9), min_size=1)


@given(texts, texts | st.none())
def test_a_row_cut_out_is_the_row_read(after: dict[str, object], before: dict[str, object] | None) -> None:
    value = Topic().envelope("u", at(1), after={"id": 1, **after}, before=before)
    assert orjson.loads(row_reader(list(after))(value)) == orjson.loads(row_of(value)) == {"id": 1, **after}


@pytest.mark.parametrize(
    "after",
    [
        {"id": 1, "after": {"x": 1}, "t": '},"after":{'},
        {"id": 1, "source": {"version": "1"}, "t": '},"source":{"version":'},
        {"id": 1, "p": {"x": 1}, "after": {"x": 2}},
    ],
)
def test_columns_named_as_members_of_the_envelope(after: dict[str, object]) -> None:
    value = Topic().envelope("u", at(1), after=after, before={**after, "id": 2})
    assert orjson.loads(row_reader(list(after))(value)) == after


def test_an_envelope_of_another_order_is_read_whole() -> None:
    value = orjson.dumps({"op": "u", "after": {"id": 1}, "source": {"version": "2"}})
    assert row_reader(["id"])(value) == b'{"id":1}'
    for broken in (b"", b"null", b"[]", b'{"after":5}', b'{"before":null,"after":{"id":1'):
        with pytest.raises(ValueError, match="value"):
            row_reader(["id"])(broken)


positions = st.builds(
    Position, st.integers(1, 127), st.integers(1, 2**52).map(lambda n: n * 8), st.integers(0, 2**32 - 1)
)


@given(positions, positions)
def test_h65_h83_document_versions_follow_positions(one: Position, other: Position) -> None:
    versions = [document_version(p.text()) for p in sorted((one, other))]
    assert versions == sorted(versions)
    assert document_version(one.text()) == one.document_version() < 2**63


@pytest.mark.parametrize("as_text", [False, True])
def test_documents_of_hard_rows_come_back(as_text: bool) -> None:
    documents = Documents(EVERYTHING, as_text=as_text)
    for row in HARD_ROWS:
        wire = {"id": 7, **row}
        body = documents.body(orjson.dumps(wire))
        for made in (body, documents.with_text(body) if documents.nested else body):
            lines = action("7", at(1).text(), b'"i"') + made + ending("7", at(1).text())
            assert lines.count(b"\n") == 2
            found = documents.stored("7", loads_exact(lines.split(b"\n")[1]))
            assert found.row is not None
            assert canonical_row(found.row, EVERYTHING) == canonical_row(
                orjson.dumps(plain_row(wire, EVERYTHING)), EVERYTHING
            )


def test_h90_columns_named_as_our_own_fields_come_back() -> None:
    own = ("_pos", "_deleted", "_deleted_at", "_key", "_text")
    table = shape(column("id", "int8", key=1), *(column(name, "text") for name in own), column("doc", "jsonb"))
    documents = Documents(table)
    row = {"id": 1, **{name: f"the source's {name}" for name in own}, "doc": '{"a":1}'}
    body = documents.body(orjson.dumps(row))
    for made in (body, documents.with_text(body)):
        found = documents.stored("1", loads_exact(made + ending("1", at(1).text())))
        assert found.row is not None
        assert canonical_row(found.row, table) == canonical_row(orjson.dumps({**row, "doc": {"a": 1}}), table)


def test_a_mapping_has_every_column_once() -> None:
    fields = mapping(EVERYTHING, "flat_object")["properties"]
    assert len(fields) == len(EVERYTHING.columns) + 5
    assert fields["%5Fpos"]["type"] == "text"
    assert fields["a%2Eb"]["type"] == "text"
    assert fields["n52"]["fields"]["number"]["type"] == "double"


@given(st.lists(names, unique=True, max_size=6))
def test_h90_escaped_names_stay_apart(columns: list[str]) -> None:
    for made in (field_names(columns), column_names(columns, ["_pos"])):
        assert len(set(made.values())) == len(columns)
    folded = [name.lower() for name in column_names(columns, ["_pos"]).values()]
    assert "_pos" not in folded


@given(st.tuples(names, names), st.tuples(names, names))
def test_h90_tables_stay_apart_in_every_store(one: tuple[str, str], other: tuple[str, str]) -> None:
    for place in (
        cache_table,
        lambda table: index_alias("shop", table),
        lambda table: f"{folder(table.schema)}/{folder(table.table)}",
    ):
        assert (place(TableName(*one)) == place(TableName(*other))) == (one == other)


def test_h83_index_names_and_ids_are_ones_the_server_takes() -> None:
    assert index_alias("_Shop", TableName("public", "Orders")) == "=5f=53hop-public.=4frders"
    assert len(index_alias("shop", TableName("ü" * 31, "Ä" * 31))) <= 200
    assert document_id("x" * 512) == "x" * 512
    assert len(document_id(store_key(["ü" * 257]))) < 100, "longer keys are hashed before"


numbers = st.one_of(
    st.integers(-(2**80), 2**80), st.sampled_from(["1", "NaN", "infinity", "", None, [1], [[1]], {"a": 1}])
)
KINDS = [arrow_type(c) for c in EVERYTHING.columns]


@given(st.lists(numbers, max_size=5), st.sampled_from(KINDS))
def test_h31_a_column_takes_a_value_or_gives_it_back(values: list[object], kind: pa.DataType) -> None:
    array, exact = typed(values, kind)
    assert array.type == kind
    assert len(array) == len(values)
    for number, value in enumerate(values):
        taken = array[number].is_valid
        assert taken or value is None or number in exact
        if number in exact:
            assert exact[number] == value
            assert not taken


def test_types_are_real_where_they_hold_every_digit() -> None:
    types = {c.source.name: c.type for c in warehouse_columns(EVERYTHING)}
    assert types["n38"] == pa.decimal128(38, 10)
    assert types["nneg"] == pa.decimal128(7, 0)
    assert types["nsmall"] == pa.decimal128(5, 5)
    assert types["n50"] == types["n"] == types["jb"] == pa.string()
    assert types["tz"] == pa.timestamp("us", "UTC")
    assert types["ai"] == pa.list_(pa.int32())


@given(st.sampled_from(KINDS), st.sampled_from(KINDS))
def test_a_wider_type_does_not_depend_on_the_order(one: pa.DataType, other: pa.DataType) -> None:
    wide = wider(one, other)
    assert wide == wider(other, one)
    assert wider(wide, one) == wide


def test_h51_text_stands_in_for_no_other_type() -> None:
    lists = pa.list_
    assert evolved(pa.int32(), pa.string()) == pa.string()
    assert evolved(pa.string(), pa.int32()) is None
    assert evolved(pa.int64(), pa.float64()) is None
    assert evolved(lists(pa.string()), lists(pa.int32())) is None
    assert evolved(lists(pa.int32()), lists(pa.string())) == lists(pa.string())
    assert evolved(pa.decimal128(10, 2), pa.int16()) == pa.decimal128(10, 2)


def test_wider_types() -> None:
    assert wider(pa.int16(), pa.int64()) == pa.int64()
    assert wider(pa.int64(), pa.float64()) == pa.string()
    assert wider(pa.int32(), pa.decimal128(6, 2)) == pa.decimal128(12, 2)
    assert wider(pa.int64(), pa.decimal128(38, 30)) == pa.string()
    assert wider(pa.date32(), pa.timestamp("us")) == pa.timestamp("us")
    assert wider(pa.decimal128(10, 4), pa.decimal128(12, 2)) == pa.decimal128(14, 4)
    assert wider(pa.list_(pa.int16()), pa.list_(pa.int32())) == pa.list_(pa.int32())
    assert wider(pa.date32(), pa.bool_()) == pa.string()


def test_h39_csv_tells_null_from_an_empty_text() -> None:
    rows = pa.table({"t": ["", None, 'a"b\n'], "l": [["x", None, 'q"\\'], None, []], "b": [b"\x00", b"", None]})
    assert csv(rows) == b'"","{""x"",NULL,""q\\""\\\\""}","\\x00"\n,,"\\x"\n"a""b\n","{}",\n'


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.dictionaries(st.text(max_size=4), documents, max_size=4))
def test_members_are_the_members(document: dict[str, object]) -> None:
    text = orjson.dumps(document)
    assert {name: orjson.loads(raw) for name, raw in members(text).items()} == document
    assert orjson.loads(orjson.dumps(loads_exact(text))) == document
    assert orjson.loads(dumps_exact(document)) == document


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"a"}', b'{"a":1,}', b'{"a":1 "b":2}', b"{a:1}"])
def test_what_is_no_object_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        members(text)


def test_h38_the_shapes_of_a_placeholder() -> None:
    shapes = [
        "__debezium_unavailable_value",
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        list(b"__debezium_unavailable_value"),
    ]
    assert all(is_unavailable(value) for value in (*shapes, [shapes[0]]))
    assert not any(is_unavailable(value) for value in (None, "", "__debezium", [], 5, {"a": 1}, ["a"]))


def mark(partition: int, floor: str, partitions: int = 3) -> FloorMark:
    return FloorMark(table=ORDERS.table, partition=partition, floor=floor, partitions=partitions)


@given(st.permutations([0, 1, 2, 0, 1]))
def test_h82_a_sweep_counts_when_each_partition_has_told(order: list[int]) -> None:
    floor = TableFloor()
    for step, partition in enumerate(order):
        floor = TableFloor.from_json(floor.told(mark(partition, "b")).to_json())
        assert (floor.floor == "b") == ({0, 1, 2} == set(order[: step + 1]))
    assert floor.sweeps == {}
    assert floor.told(mark(0, "a")) == floor
    assert floor.told(mark(0, "c", 1)).floor == "c"


@given(st.permutations([(0, "a"), (1, "a"), (2, "c"), (1, "b")]))
def test_h99_marks_of_broken_sweeps_leave_the_earlier_one_whole(order: list[tuple[int, str]]) -> None:
    """Compaction keeps each partition's last mark: sweeps that were cut short count by the lowest of their floors."""
    floor = TableFloor()
    for partition, text in order:
        floor = TableFloor.from_json(floor.told(mark(partition, text)).to_json())
    assert floor.floor == "a"
    assert floor.told(mark(0, "b")).floor == "b"
    assert floor.told(mark(0, "c")).told(mark(1, "c")).floor == "c"


def test_a_floor_record_says_what_it_is() -> None:
    pos = at(5).text()
    assert FloorMark.of(ORDERS.table, 1, b'{"__truncate":"public.orders"}', None, pos).floor == pos
    sweep = orjson.dumps({"sweep": {"floor": at(3).text(), "partitions": 4}})
    assert FloorMark.of(ORDERS.table, 1, b'{"__sweep":1}', sweep, pos) == mark(1, at(3).text(), 4)
    for key, value in (
        (b"[]", None),
        (b'{"id":1}', None),
        (b'{"__sweep":1}', None),
        (b'{"__sweep":1}', b'{"sweep":{}}'),
    ):
        with pytest.raises(ValueError, match=r"."):
            FloorMark.of(ORDERS.table, 1, key, value, pos)


def test_numeric_of_unusual_scales_has_a_decimal_type() -> None:
    assert arrow_type(numeric("n", 5, -2)) == pa.decimal128(7, 0)
    assert arrow_type(numeric("n", 39, 0)) == pa.string()
    assert arrow_type(column("v", "vector")) == pa.list_(pa.float32())
    assert shape(column("id", "int4", key=1)).key[0].name == "id"
