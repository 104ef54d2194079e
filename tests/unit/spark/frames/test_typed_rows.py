"""Records as typed columns: every family of types, older versions, and what no column holds."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import CdcError, ConfigError, PoisonError
from cdc.record.schema import Column, TableSchema
from cdc.wire.format import UNAVAILABLE
from cdc.wire.records import RecordColumns
from cdc.wire.types import FAMILIES, Family
from spark.frames.data_source import spark_schema
from spark.frames.frame_columns import FrameColumns, caster
from spark.frames.options import Retyped
from spark.frames.typed_rows import TypedRows, raw_batch
from tests.unit.spark.frames.changes import ID, STATUS, change, joined, shape

_LONG = st.integers(-(2**63), 2**63 - 1)
_WIRE: Any = st.recursive(
    st.none() | st.booleans() | _LONG | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def rows(
    *lots: RecordColumns, versions: tuple[TableSchema, ...] = (shape(),), retyped: Retyped = "fail"
) -> list[dict[str, Any]]:
    made = TypedRows(FrameColumns.of(versions[-1]), versions, retyped)
    return [row for batch in made.batches(joined(*lots)) for row in batch.to_pylist()]


def column(family: Family, name: str = "a") -> Column:
    kind = family.names[0]
    return Column(name=name, attnum=9, type=kind, type_oid=0, kind=kind, typmod=family.example.typmod)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.names[0])
@pytest.mark.parametrize("encoding", ["readable", "debezium"])
def test_each_family_has_its_spark_type(family: Family, encoding: Any) -> None:
    own = replace(shape(columns=(ID, column(family))), encoding=encoding)
    wire = orjson.loads(family.example.readable if encoding == "readable" else family.example.debezium)
    (row,) = rows(change(0, {"id": 1, "a": wire}), versions=(own,))
    assert row["a"] is not None
    assert row["_exact"] == []
    assert spark_schema(FrameColumns.of(own).arrow)["a"].dataType.typeName() != "void"


def test_each_kind_of_change_is_a_row() -> None:
    found = rows(
        change(0, {"id": 1, "status": "a"}, op="c"),
        change(1, {"id": 1, "status": None}, op="d"),
        change(2, None, op="d", key={"id": 1}, value=None, seq=2),
        change(3, None, op="t", key={"__truncate": "public.orders"}),
    )
    assert [(row["id"], row["status"], row["_key"], row["_op"]) for row in found] == [
        (1, "a", "1", "c"), (1, None, "1", "d"), (1, None, "1", "d"), (None, None, None, "t"),
    ]  # fmt: skip
    assert [row["_floor"] for row in found] == [None, None, None, found[3]["_pos"]]
    assert [row["_commit_ts"] is None for row in found] == [False, False, True, False]


def test_a_sweep_mark_has_its_own_floor() -> None:
    floor = "0" * 31 + "7"
    value = orjson.dumps({"op": "t", "sweep": {"floor": floor, "partitions": 4}})
    (row,) = rows(change(0, None, op="t", key={"__sweep": "public.orders"}, value=value))
    assert row["_floor"] == floor


def test_a_value_that_no_type_holds_is_exact() -> None:
    at = Column(name="at", attnum=3, type="timestamp", type_oid=0, kind="timestamp")
    (row,) = rows(change(0, {"id": 1, "at": "infinity"}), versions=(shape(columns=(ID, at)),))
    assert (row["at"], row["_exact"]) == (None, [("at", "infinity")])


def test_h38_a_value_that_capture_lacks_is_told_from_null() -> None:
    (row,) = rows(change(0, {"id": 1, "status": UNAVAILABLE}))
    assert (row["status"], row["_exact"]) == (None, [("status", UNAVAILABLE)])


def test_a_renamed_column_keeps_its_values() -> None:
    renamed = shape(2, (ID, replace(STATUS, name="state")))
    (row,) = rows(change(0, {"id": 1, "status": "a"}), versions=(shape(), renamed))
    assert row["state"] == "a"


def test_a_column_made_again_does_not_inherit() -> None:
    again = shape(2, (ID, replace(STATUS, attnum=3)))
    (row,) = rows(change(0, {"id": 1, "status": "a"}), versions=(shape(), again))
    assert row["status"] is None


def test_a_table_made_again_is_followed_by_names() -> None:
    again = shape(2, (ID, replace(STATUS, attnum=3)), oid=2)
    (row,) = rows(change(0, {"id": 1, "status": "a"}), versions=(shape(), again))
    assert row["status"] == "a"


def test_a_retyped_value_is_cast_or_the_read_fails() -> None:
    number = shape(2, (ID, replace(STATUS, type="int4", kind="int4")))
    versions = (shape(), number)
    assert rows(change(0, {"id": 1, "status": "42"}), versions=versions)[0]["status"] == 42
    with pytest.raises(ConfigError, match=r"the column status of public\.orders has another type since version 1"):
        rows(change(0, {"id": 1, "status": "open"}), versions=versions)
    (row,) = rows(change(0, {"id": 1, "status": "open"}), versions=versions, retyped="cast")
    assert (row["status"], row["_exact"]) == (None, [("status", "open")])


def test_h167_no_row_of_a_later_version_is_emitted() -> None:
    made = TypedRows(FrameColumns.of(shape()), (shape(),), "fail")
    batches = made.batches(joined(change(0, {"id": 1}), change(1, {"id": 2}, ver=2)))
    assert next(batches).num_rows == 1
    with pytest.raises(ConfigError, match="schema version 2 while it was being read as version 1"):
        next(batches)


@pytest.mark.parametrize(
    "lot",
    [
        change(0, {"id": 1})._replace(pos=[None]),
        change(0, {"id": 1})._replace(ver=[b"x"]),
        change(0, {"id": 1})._replace(op=[b"x"]),
        change(0, {"id": 1})._replace(values=[b"no JSON"]),
        change(0, {"id": 1})._replace(values=[b"{}"]),
        change(0, {"id": 1})._replace(keys=[b"7"]),
        change(0, {"id": 1})._replace(keys=[None]),
    ],
)
def test_a_foreign_record_is_named(lot: RecordColumns) -> None:
    with pytest.raises(PoisonError, match=r"the record at shop.public.orders, partition 0, offset 0 cannot be read"):
        rows(lot)
    assert raw_batch(lot).num_rows == 1


def test_names_that_spark_reads_as_one_stay_apart() -> None:
    twice = shape(columns=(ID, replace(STATUS, name="ID"), replace(STATUS, name="_op", attnum=3)))
    names = FrameColumns.of(twice).arrow.names
    assert len({name.lower() for name in names}) == len(names)


@given(st.dictionaries(st.sampled_from(["id", "a"]), _WIRE), st.sampled_from(FAMILIES))
def test_any_row_is_read_or_refused_in_a_sentence(row: dict[str, Any], family: Family) -> None:
    own = shape(columns=(ID, column(family)))
    try:
        rows(change(0, row, key={"id": 1}), versions=(own,))
    except CdcError as error:
        assert error.hint


_VALUES = st.one_of(st.text(), _LONG, st.floats(allow_nan=False), st.booleans())
_KINDS = [pa.string(), pa.int32(), pa.float64(), pa.decimal128(10, 2), pa.bool_(), pa.date32(), pa.timestamp("us")]


@given(st.sampled_from(_KINDS), _VALUES)
def test_a_cast_value_is_the_same_or_does_not_fit(wanted: pa.DataType, value: object) -> None:
    try:
        made = caster(pa.string(), wanted)(value)
    except ValueError:
        return
    if pa.types.is_integer(wanted):
        assert made == (Decimal(value.strip()) if isinstance(value, str) else value)
    if pa.types.is_boolean(wanted):
        assert made is (str(value).lower() in ("true", "t"))
