"""The data files of a Delta table: which of them a batch may touch, and what the log says of those that we write."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import duckdb
import orjson
import pyarrow as pa
import pytest
from deltalake.transaction import AddAction
from hypothesis import given
from hypothesis import strategies as st

from sinks.delta.delta_files import (
    STATISTICS,
    DataFile,
    data_files,
    due_join,
    file_bytes,
    indexed,
    may_hold,
    skipping,
    stats_of,
)
from sinks.delta.delta_rewrite import KeyedFiles

MB = 1024**2
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "text": (pa.string(), TEXTS),
    "day": (pa.date32(), st.dates(date(1, 1, 2), date(9999, 12, 30))),
    "moment": (pa.timestamp("us"), MOMENTS),
    "zoned": (pa.timestamp("us", "UTC"), MOMENTS.map(lambda one: one.replace(tzinfo=UTC))),
    "decimal": (pa.decimal128(38, 2), st.decimals(-(10**35), 10**35, places=2)),
    "truth": (pa.bool_(), st.booleans()),
    "real": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
}


def file(name: str, size: int, low: str | None = None, high: str | None = None) -> DataFile:
    return DataFile(name, size, 10, low, high)


@given(st.lists(TEXTS, unique=True, max_size=20), st.lists(TEXTS, min_size=1, max_size=5))
def test_h430_a_file_is_left_out_only_if_it_holds_no_key(asked: list[str], held: list[str]) -> None:
    keys = sorted(asked)
    found = {key for one in may_hold([file("a", 1, min(held), max(held))], keys) for key in keys[one.start : one.end]}
    assert set(held) & set(keys) <= found
    assert all(min(held) <= key <= max(held) for key in found)


def test_a_file_of_which_nothing_is_known_may_hold_all() -> None:
    assert [(one.start, one.end) for one in may_hold([file("a", 1)], ["a", "b"])] == [(0, 2)]


def test_files_grow_with_their_table() -> None:
    assert file_bytes([file("a", 5 * MB)], near=True) == 128 * 1024
    assert file_bytes([file("a", 5 * MB)], near=False) == MB
    assert file_bytes([file("a", 10_000 * MB)], near=True) == 5_000 * 1024
    assert file_bytes([file("a", 10**12)], near=True) == 32 * MB


@given(st.lists(st.integers(5_000, 200_000), max_size=400))
def test_joins_end_and_write_a_row_a_few_times(sizes: list[int]) -> None:
    """Small files come one after the other: few stay, and what joins write is bounded by what came."""
    files: list[DataFile] = []
    written = 0
    for number, size in enumerate(sizes):
        files.append(file(str(number), size))
        due = due_join(files, 8 * MB)
        if due:
            files = [one for one in files if one not in due]
            files.append(file(f"joined {number}", sum(one.size for one in due)))
            written += files[-1].size
    assert sum(one.size < 2 * MB for one in files) <= 17 * 8
    assert written <= 8 * sum(sizes)


def test_a_wide_table_has_statistics_of_keys() -> None:
    names = [*(f"c{number}" for number in range(100)), "odd name", "_key", "_pos"]
    assert list(indexed(names, ("_key", "_pos")))[:3] == ["_key", "_pos", "c0"]
    assert len(indexed(names, ("_key", "_pos"))) == 32
    assert list(indexed(["a", "_key"], ("_key",))) == ["a", "_key"]


@given(st.data(), st.sampled_from(sorted(VALUES)))
def test_h433_no_reader_skips_a_row_by_our_statistics(data: st.DataObject, name: str) -> None:
    """The least and the greatest value, as delta-rs reads them back, hold every value between them."""
    kind, values = VALUES[name]
    some: list[Any] = data.draw(st.lists(st.none() | values, min_size=1, max_size=6))
    rows: Any = pa.table({"v": pa.array(some, kind)})
    with TemporaryDirectory() as folder:
        held = read_back(folder, rows)
    there = [one for one in some if one is not None]
    low, high = held.get("min.v"), held.get("max.v")
    assert held["null_count.v"] == some.count(None)
    assert low is None or all(low <= one for one in there)
    assert high is None or all(high >= one for one in there)
    if isinstance(high, datetime):
        assert high - max(there) < timedelta(milliseconds=1)


def test_h433_a_cut_text_has_a_greatest_value_above_it(tmp_path: Path) -> None:
    long: Any = pa.table({"v": ["a" * 70, "a" * 65]})
    held = read_back(str(tmp_path), long)
    assert (held["min.v"], held["max.v"]) == ("a" * 64, "a" * 64 + "\U0010ffff")
    last: Any = pa.table({"v": ["a" * 64 + "\U0010ffff" * 2]})
    assert orjson.loads(stats_of(last))["maxValues"] == {"v": last["v"][0].as_py()}


EVERY = pa.table(
    {
        "_key": ["1", "2", "3"],
        "_pos": ["a", "b", "c"],
        "truth": pa.array([True, False, None]),
        "real": pa.array([1.5, 2.5, None]),
        "single": pa.array([1.1, 2.2, 3.3], pa.float32()),
        "price": pa.array([Decimal("1.50"), Decimal("2.50"), None], pa.decimal128(9, 2)),
        "long": ["x" * 80, "y" * 80, "z" * 80],
        "short": pa.array([1, None, 3], pa.int16()),
        "bytes": pa.array([b"a", b"b", None]),
        "day": pa.array([date(2020, 1, 1), date(9999, 12, 31), None]),
        "zoned": pa.array([datetime(2020, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC), None]),
        "nothing": pa.array([None, None, None], pa.string()),
        "map": pa.array([None, [("a", "b")], None], pa.map_(pa.string(), pa.string())),
    }
)


@pytest.mark.parametrize("odd", [None, math.nan, math.inf, -math.inf])
def test_h433_readers_find_each_value_of_each_column(tmp_path: Path, odd: float | None) -> None:
    rows: Any = EVERY.append_column("odd", pa.array([odd, 1.0, None], pa.float64()))
    table = deltalake.DeltaTable.create(str(tmp_path), rows.schema)
    assert keyed(table, rows.schema).merge(rows) == 3
    read = deltalake.DeltaTable(str(tmp_path))
    for name in set(rows.column_names) - {"map"}:
        there = rows[name].drop_null().to_pylist()
        for value in there:
            found = read.to_pyarrow_table(filters=[(name, "=", value)]).num_rows
            assert found == sum(one == value for one in there), (name, value)
    warehouse = duckdb.connect()
    warehouse.register("rows", read.to_pyarrow_dataset())
    [seen] = warehouse.sql("select count(*) from rows where not truth and price > 2 and long > 'y'").fetchall()
    assert seen == (1,)


def test_h433_a_wide_table_of_before_has_all_statistics(tmp_path: Path) -> None:
    """It does not say of which columns its readers expect any."""
    some = {f"c{number}": [number] for number in range(40)}
    rows: Any = pa.table({**some, "_key": ["1"], "_pos": ["a"]})
    table = deltalake.DeltaTable.create(str(tmp_path), rows.schema)
    assert keyed(table, rows.schema).merge(rows) == 1
    read = deltalake.DeltaTable(str(tmp_path))
    for name in rows.column_names:
        assert read.to_pyarrow_table(filters=[(name, "=", rows[name][0].as_py())]).num_rows == 1, name


def read_back(folder: str, rows: pa.Table) -> dict[str, Any]:
    table = deltalake.DeltaTable.create(folder, rows.schema)
    add = AddAction("a.parquet", 1, {}, 0, True, stats_of(rows))
    table.create_write_transaction([add], "append", table.schema())
    table.update_incremental()
    [found] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return dict(found)


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.enableChangeDataFeed": "true"},
        {"delta.appendOnly": "true"},
        {"delta.enableDeletionVectors": "true"},
    ],
)
def test_h434_a_table_with_more_to_keep_is_left_to_delta_rs(tmp_path: Path, properties: dict[str, str]) -> None:
    schema = pa.schema([("_key", pa.string()), ("_pos", pa.string())])
    plain = deltalake.DeltaTable.create(str(tmp_path / "plain"), schema)
    more = deltalake.DeltaTable.create(str(tmp_path / "more"), schema, configuration=dict(properties))
    apart = deltalake.DeltaTable.create(
        str(tmp_path / "apart"), pa.schema([*schema, ("p", pa.string())]), partition_by=["p"]
    )
    constrained = deltalake.DeltaTable.create(str(tmp_path / "constrained"), schema)
    constrained.alter.add_constraint({"short": "_key < 'z'"})
    assert [keyed(one, schema).possible() for one in (plain, more, apart, constrained)] == [True, False, False, False]


def keyed(table: deltalake.DeltaTable, schema: pa.Schema) -> KeyedFiles:
    folder = table.table_uri.removeprefix("file://")
    return KeyedFiles(table=table, schema=schema, key="_key", order="_pos", folder=folder, near=True)


def test_a_table_without_statistics_has_files_all_the_same() -> None:
    found: Any = pa.table({"path": ["a"], "size_bytes": [7]})
    assert data_files(found, "_key") == [DataFile("a", 7, 0, None, None)]


def test_h431_a_key_that_is_there_twice_is_put_in_once(tmp_path: Path) -> None:
    """Another writer has appended it, in a file that holds nothing else."""
    schema: Any = pa.table({"_key": [""], "_pos": [""], "v": [1]}).schema
    several: Any = pa.table({"_key": [str(n) for n in range(60_000)], "_pos": ["a"] * 60_000, "v": range(60_000)})
    table = deltalake.DeltaTable.create(str(tmp_path), schema)
    assert keyed(table, schema).merge(several) == 60_000
    for _ in range(5):
        deltalake.write_deltalake(str(tmp_path), several.slice(0, 1), mode="append")
    change: Any = pa.table({"_key": ["0"], "_pos": ["b"], "v": [7]})
    assert keyed(deltalake.DeltaTable(str(tmp_path)), schema).merge(change) == 1
    found = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table(filters=[("_key", "=", "0")])
    assert found.to_pylist() == [{"_key": "0", "_pos": "b", "v": 7}]


def test_h433_times_beyond_pythons_years_have_no_bounds() -> None:
    far: Any = pa.table({"t": pa.array([2**62], pa.int64()).cast(pa.timestamp("us"))})
    assert orjson.loads(stats_of(far)) == {"numRecords": 1}


def test_h454_no_bounds_of_decimals_that_delta_rs_rounds() -> None:
    """Also where the property is there already, as in a wide table or by somebody's hand."""
    kinds: dict[str, pa.DataType] = {
        "_key": pa.string(),
        "cents": pa.decimal128(15, 2),
        "id": pa.decimal128(20, 0),
        "tiny": pa.decimal128(9, 6),
    }
    kinds |= {"odd name": pa.string(), "tags": pa.list_(pa.int32()), "on": pa.bool_()}
    schema = pa.schema(list(kinds.items()))
    assert skipping(schema, ["_key"], None) == {STATISTICS: "_key,cents"}
    assert skipping(schema, ["_key"], "_key,id,cents") == {STATISTICS: "_key,cents"}
    assert skipping(schema, ["_key"], "id") == {STATISTICS: "_key"}
    assert skipping(schema, ["_key"], "_key,cents") == {}
    large: list[tuple[str, pa.DataType]] = [(f"c{number}", pa.decimal128(20, number % 2)) for number in range(40)]
    wide = pa.schema([*large, *kinds.items()])
    assert skipping(wide, ["_key"], None) == {STATISTICS: "_key,cents"}
