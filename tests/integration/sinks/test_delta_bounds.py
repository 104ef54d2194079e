"""Numbers of many digits in a Delta warehouse: readers leave files out by the log's bounds, and have to find each."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import orjson
import polars as pl
import pyarrow as pa
import pytest

from cdc.process.clock import ManualClock
from cdc.record.schema import TableSchema
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import SinkSpec, open_sink
from sinks.delta.delta_files import STATISTICS
from sinks.delta.delta_kind import DeltaSinkSettings
from tests.contract.topics import Shapes, Topic, at, batch, column, numeric, shape
from tests.integration.sinks.warehouse import MARK

LARGE = shape(column("id", "int8", key=1), numeric("n", 20, 0), numeric("tiny", 9, 9), column("m", "money"))
SMALL = shape(column("id", "int8", key=1), column("n", "int8"))
NUMBERS = [10**19 + 1, 12_345_678_901_234_567_890, -(2**63) - 5, 2**63 + 1025, 99_999_999_999_999_999_999]


def spec(folder: Path, engine: str = "embedded", by: Mapping[str, Any] | None = None) -> SinkSpec:
    settings = DeltaSinkSettings.model_validate({"path": str(folder), "engine": engine, "partition_by": by or {}})
    return spec_for("delta", prefix="shop", options=settings.options())


def put(store: OpenSink, lsn: int, *shapes: TableSchema, count: int = len(NUMBERS)) -> None:
    """A row of each of the first numbers, each in a batch of its own."""
    topic = Topic(shapes[-1])
    for number, value in enumerate(NUMBERS[:count]):
        row = {"id": number, "n": str(value), "tiny": f"0.00000000{number + 1}", "m": f"{abs(value) // 1000}.17"}
        store.sink.apply(batch(topic.upsert(row, at(lsn))), Shapes(*shapes))


def require_found(folder: Path, count: int = len(NUMBERS)) -> None:
    """Each row, by each reader."""
    path = str(folder / "public" / "orders")
    table = deltalake.DeltaTable(path)
    query, frame = deltalake.QueryBuilder().register("t", table), pl.scan_delta(path)
    # Of files without deletion vectors: the other readers have them.
    scanned = None if "deletionVectors" in (table.protocol().reader_features or ()) else table.to_pyarrow_dataset()
    for number, value in enumerate(NUMBERS[:count]):
        for name, kind, wanted in (
            ("n", "decimal(20, 0)", Decimal(value)),
            ("tiny", "decimal(9, 9)", Decimal(number + 1).scaleb(-9)),
            ("m", "decimal(19, 2)", abs(value) // 1000 + Decimal("0.17")),
        ):
            told = f"{name} = cast('{wanted:f}' as {kind})"
            found = [
                frame.filter(pl.col(name) == wanted).collect().height,
                pa.table(query.execute(f"select * from t where {told}")).num_rows,
            ]
            if scanned is not None:
                found += [len(duckdb.execute(f"select * from scanned where {told}").fetchall())]
            assert set(found) == {1}, (name, wanted, found)


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, {"public.orders": 2}], ids=["whole", "parts"])
def test_h454_readers_find_numbers_of_many_digits(warehouse: Path, by: Mapping[str, Any] | None) -> None:
    with closing(open_sink(spec(warehouse, by=by), ManualClock())) as store:
        put(store, 1, LARGE)
        require_found(warehouse)
        put(store, 2, LARGE)
    table = deltalake.DeltaTable(str(warehouse / "public" / "orders"))
    table.optimize.compact()
    table.create_checkpoint()
    require_found(warehouse)


def test_h454_a_table_that_was_made_before_is_mended(warehouse: Path) -> None:
    folder = warehouse / "public" / "orders"
    with closing(open_sink(spec(warehouse), ManualClock())) as store:
        put(store, 1, LARGE)
    rows = deltalake.DeltaTable(str(folder)).to_pyarrow_table()
    older = warehouse / "older" / "public" / "orders"
    older.mkdir(parents=True)
    for number in range(rows.num_rows):
        deltalake.write_deltalake(str(older), rows.slice(number, 1), mode="append")
    with pytest.raises(AssertionError):
        require_found(warehouse / "older")
    with closing(open_sink(spec(warehouse / "older"), ManualClock())) as store:
        store.sink.prepare(LARGE)
        require_found(warehouse / "older")


@pytest.mark.slow
def test_h454_a_column_that_comes_to_have_many_digits(warehouse: Path) -> None:
    later = shape(*LARGE.columns, version=2)
    with closing(open_sink(spec(warehouse), ManualClock())) as store:
        topic = Topic(SMALL)
        store.sink.apply(batch(*(topic.upsert({"id": one, "n": one}, at(1)) for one in range(9))), Shapes(SMALL))
        put(store, 2, SMALL, later)
        require_found(warehouse)
        store.commit(MARK)
    with closing(open_sink(beside(spec(warehouse), 2))) as store:
        put(store, 3, SMALL, later)
        store.commit(MARK)
    with closing(open_generations(spec(warehouse))) as generations:
        generations.keep(1, [later])
        generations.switch(2, [later])
    require_found(warehouse)
    said = deltalake.DeltaTable(str(warehouse / "public" / "orders")).metadata().configuration[STATISTICS]
    assert {"n", "tiny", "m"}.isdisjoint(said.split(","))


@pytest.mark.slow
@pytest.mark.usefixtures("spark_session")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_h454_so_they_do_where_spark_merges(warehouse: Path) -> None:
    with closing(open_sink(spec(warehouse, "spark"), ManualClock())) as store:
        put(store, 1, LARGE, count=2)
        # The first row is written without a JVM.
        require_found(warehouse, 2)
        put(store, 2, LARGE, count=2)
    require_found(warehouse, 2)


TEXTS = shape(column("id", "int8", key=1), column("status", "text"))


@pytest.mark.parametrize("engine", ["embedded", pytest.param("spark", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_h538_bounds_of_long_values_are_short(warehouse: Path, engine: str) -> None:
    """Of whoever writes a file: the first rows, new ones, changed ones, and what is joined."""
    topic, values = Topic(TEXTS), [f"{letter}{'é' * 5_000}" for letter in "bac"]
    with closing(open_sink(spec(warehouse, engine), ManualClock())) as store:
        for lsn, keys in enumerate(((1, 2), (3, 4), (1, 5)), 1):
            rows = [{"id": key, "status": values[lsn - 1] + str(key)} for key in keys]
            store.sink.apply(batch(*(topic.upsert(row, at(lsn)) for row in rows)), Shapes(TEXTS))
    folder = warehouse / "public" / "orders"
    table = deltalake.DeltaTable(str(folder))
    bounds = [
        text
        for version in range(table.version() + 1)
        for line in (folder / "_delta_log" / f"{version:020}.json").read_bytes().splitlines()
        for ends in ("minValues", "maxValues")
        for text in [orjson.loads(orjson.loads(line).get("add", {}).get("stats", "{}")).get(ends, {}).get("status", "")]
        if text
    ]
    assert bounds
    assert max(map(len, bounds)) < 100
    query = deltalake.QueryBuilder().register("t", table)
    assert pa.table(query.execute(f"select id from t where status = '{values[2]}1'")).num_rows == 1
