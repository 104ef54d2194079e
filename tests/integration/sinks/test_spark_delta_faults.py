"""A Delta warehouse that Spark merges: times that other readers take wrong, others who restore, files that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc.process.clock import SYSTEM_CLOCK
from sinks.contract.batch import pc
from sinks.contract.kinds import spec_for
from sinks.contract.port import CannotCarry
from sinks.contract.sink_spec import open_sink
from sinks.contract.table_places import PlaceStep, SchemaBook
from sinks.delta import spark_delta
from sinks.delta.delta_files import TIERS, Tier
from sinks.delta.delta_kind import SPARK_PARTS
from sinks.delta.delta_storage import Exchanged, Storage
from sinks.warehouse.warehouse_rows import EXACT_TYPE
from sinks.warehouse.warehouse_spark import WarehouseSpark
from tests.contract.orders import SHAPES, order
from tests.contract.topics import ORDERS, Topic, at, batch, column, shape

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

TIMES = ("0001-01-01T00:00:00Z", "1500-06-01T12:00:00Z", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
_FIELDS: list[tuple[str, pa.DataType]] = [
    ("_key", pa.string()),
    ("_pos", pa.string()),
    ("at", pa.timestamp("us", "UTC")),
]
_OWN: list[tuple[str, pa.DataType]] = [
    ("_deleted", pa.bool_()),
    ("_deleted_at", pa.timestamp("us", "UTC")),
    ("_exact", EXACT_TYPE),
]
FORM = pa.schema(_FIELDS)


def rows(*keys: str, pos: str = "0") -> pa.Table:
    """Rows with each of the times in turn."""
    texts = pa.array([TIMES[number % len(TIMES)] for number, _ in enumerate(keys)])
    times = pc.cast(pc.strptime(texts, "%Y-%m-%dT%H:%M:%SZ", "us"), pa.timestamp("us"))
    return pa.table({"_key": list(keys), "_pos": [pos] * len(keys), "at": pc.assume_timezone(times, "UTC")}, FORM)


class Meddled(WarehouseSpark):
    """Spark, and somebody who does something just before a statement."""

    def __init__(self) -> None:
        super().__init__(SPARK_PARTS, spark_delta._SETTINGS, spark_delta._OF_SMALL)
        self.before: Callable[[], object] | None = None

    def with_rows(self, rows: pa.Table, statement: Callable[[str], str], *, beside_few: bool) -> list[Any]:
        self._meddle()
        return super().with_rows(rows, statement, beside_few=beside_few)

    def sql(self, statement: str, settings: Any = None) -> list[Any]:
        self._meddle()
        return super().sql(statement, settings)

    def _meddle(self) -> None:
        before, self.before = self.before, None
        if before is not None:
            before()


@contextmanager
def table(folder: Path) -> Iterator[tuple[spark_delta.SparkDelta, Meddled]]:
    """An empty table that Spark merges."""
    spark = Meddled()
    made = spark_delta.SparkDelta(Storage(root=str(folder), engine="spark"), "t", SYSTEM_CLOCK, spark)
    made.create(pa.schema([*_FIELDS, *_OWN]))
    made.set_vectors(wanted=True)
    yield made, spark


def times(folder: Path) -> dict[str, Any]:
    """Key -> time, as readers without Spark have it."""
    found: Any = pa.table(deltalake.DeltaTable(str(folder / "t")).scan(columns=["_key", "at"]))
    return dict(zip(found["_key"].to_pylist(), found["at"].cast(pa.int64()).to_pylist(), strict=True))


@pytest.mark.usefixtures("spark_session")
def test_h395_a_time_far_away_is_the_same_for_all_readers(warehouse: Path) -> None:
    keys = [str(number) for number in range(len(TIMES))]
    wanted = dict(zip(keys, rows(*keys)["at"].cast(pa.int64()).to_pylist(), strict=True))
    with table(warehouse) as (made, _):
        made.put(rows(*keys), "_key", "_pos")
        made.put(rows(*keys, pos="1"), "_key", "_pos")
        assert times(warehouse) == wanted
        made._optimize(Tier(TIERS[-1], (None,)))
        assert times(warehouse) == wanted


def test_h396_a_restore_that_spark_sees_first_is_noticed(spark_session: SparkSession, warehouse: Path) -> None:
    """The place is not taken on upon a former state of the rows."""
    other = spark_session.newSession()
    for name, value in (("spark.sql.shuffle.partitions", "2"), ("spark.databricks.delta.snapshotPartitions", "1")):
        other.conf.set(name, value)
    path = f"delta.`{warehouse}/t`"
    with table(warehouse) as (made, spark):
        made.put(rows("1"), "_key", "_pos", step(None, b"one"))
        before = made.version
        made.put(rows("2", pos="1"), "_key", "_pos", step(b"one", b"two"))
        assert made.place() == b"two"
        spark.before = lambda: other.sql(f"restore table {path} to version as of {before}")
        with pytest.raises(Exchanged, match="another state of the Delta table"):
            made.put(rows("2", "3", pos="2"), "_key", "_pos", step(b"two", b"three"))
        assert made.place() == b"one"


def step(before: bytes | None, after: bytes) -> PlaceStep:
    return PlaceStep(ORDERS, frozenset((before,)), after)


@pytest.mark.usefixtures("spark_session")
def test_h398_a_file_that_is_gone_holds_its_table_alone(warehouse: Path) -> None:
    topic = Topic()
    spec = spec_for("delta", prefix="shop", options={"path": str(warehouse), "engine": "spark"})
    with closing(open_sink(spec, SYSTEM_CLOCK)) as store:
        store.sink.apply(batch(topic.upsert(order(1), at(1)), topic.upsert(order(2), at(1))), SHAPES)
        for file in (warehouse / "public" / "orders").glob("*.parquet"):
            file.unlink()
        with pytest.raises(CannotCarry, match="a file of the table is missing"):
            store.sink.apply(batch(topic.upsert(order(1, "new"), at(2))), SHAPES)


@pytest.mark.usefixtures("spark_session")
def test_h386_columns_that_are_one_to_spark_hold_the_table(warehouse: Path) -> None:
    twins = shape(column("id", "int8", key=1), column("\u0131d_of", "text"), column("id_of", "text"), table="twins")
    topic = Topic(twins)
    spec = spec_for("delta", prefix="shop", options={"path": str(warehouse), "engine": "spark"})
    with closing(open_sink(spec, SYSTEM_CLOCK)) as store:
        row = {"id": 1, "\u0131d_of": "x", "id_of": "y"}
        with pytest.raises(CannotCarry, match="are one column to Spark"):
            store.sink.apply(batch(topic.upsert(row, at(1))), SchemaBook([twins]))


@pytest.mark.usefixtures("spark_session")
def test_h399_no_checksum_stays_beside_a_commit(warehouse: Path) -> None:
    with table(warehouse) as (made, _):
        for number in range(3):
            made.put(rows("1", pos=str(number)), "_key", "_pos")
    log = warehouse / "t" / "_delta_log"
    assert [file.name for file in log.iterdir() if file.name.startswith(".")] == []
