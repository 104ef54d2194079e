"""The Delta warehouse that Spark merges: what a batch writes, who may write, others' hands."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc.jvm.jars import locked
from cdc.process.clock import SYSTEM_CLOCK, ManualClock
from cdc.process.errors import ConfigError
from cdc.record.progress import Watermark
from sinks.contract.kinds import SparkParts, beside, open_generations, spec_for
from sinks.contract.port import CannotCarry, OpenSink
from sinks.contract.sink_spec import SinkSpec, open_sink
from sinks.delta.delta_kind import SPARK_PARTS
from sinks.warehouse.warehouse_spark import WarehouseSpark
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.stores import live
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, shape
from tests.integration.sinks.test_delta import packed
from tests.lake_sessions import with_few_tasks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

MARK = Watermark(epoch=1, lsn=9, offsets={ORDERS.topic: {0: 4}})
MANY = 20_000


@pytest.fixture
def lake(spark_session: SparkSession) -> SparkSession:
    """A session beside that of the stores: somebody else's."""
    other = spark_session.newSession()
    with_few_tasks(other)
    return other


def spec(folder: Path, engine: str = "spark") -> SinkSpec:
    return spec_for("delta", prefix="shop", options={"path": str(folder), "engine": engine})


def opened(folder: Path, engine: str = "spark", clock: ManualClock | None = None) -> OpenSink:
    return open_sink(spec(folder, engine), clock or SYSTEM_CLOCK)


def put(store: OpenSink, topic: Topic, lsn: int, *rows: dict[str, Any]) -> None:
    store.sink.apply(batch(*(topic.upsert(row, at(lsn)) for row in rows)), SHAPES)


def table(folder: Path) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(str(folder / "public" / "orders"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def written(folder: Path) -> int:
    return sum(len(content) for content in files(folder / "public" / "orders").values())


def test_h310_a_batch_writes_what_changed(lake: SparkSession, warehouse: Path) -> None:
    topic, clock = Topic(), ManualClock()
    with closing(opened(warehouse, clock=clock)) as store:
        put(store, topic, 1, *(order(number, "x" * 40) for number in range(MANY)))
        put(store, topic, 2, order(7, "warm"))
        whole = written(warehouse)
        put(store, topic, 3, *(order(number, "new") for number in range(0, MANY, 1000)))
        assert written(warehouse) - whole < whole / 4
        assert pa.table(table(warehouse).deletion_vectors()).num_rows > 0
        wanted = {**{str(n): "x" * 40 for n in range(MANY)}, "7": "warm"} | {
            str(n): "new" for n in range(0, MANY, 1000)
        }
        assert statuses(store) == wanted
        # Files are joined and removed by Spark: delta-rs takes the files of vectors for nobody's.
        clock.advance(700)
        put(store, topic, 4, order(9, "last"))
        assert {file.name for file in (warehouse / "public/orders").glob("deletion_vector_*")}
        assert statuses(store) == {**wanted, "9": "last"}
    path = str(warehouse / "public" / "orders")
    by_spark = lake.sql(f"select count(*) as n from delta.`{path}` where status = 'new'").collect()[0]["n"]
    by_polars = pl.scan_delta(path).filter(pl.col("status") == "new").collect().height
    reader = table(warehouse).scan(columns=["status"])
    by_duckdb = duckdb.from_arrow(pa.RecordBatchReader.from_stream(reader)).filter("status = 'new'").shape[0]
    assert [by_spark, by_polars, by_duckdb] == [MANY // 1000] * 3


def test_both_engines_pack_their_files_alike(warehouse: Path) -> None:
    topic = Topic()
    with closing(opened(warehouse)) as store:
        for lsn in (1, 2, 3):
            put(store, topic, lsn, *(order(number, f"at {lsn}") for number in range(lsn)))
    assert packed(warehouse / "public" / "orders") == {"ZSTD"}


def test_a_merge_reads_the_files_alone_that_may_hold_its_keys(lake: SparkSession, warehouse: Path) -> None:
    """One whose keys are far from all of the batch's can be gone. Small tables are read whole."""
    topic, chance = Topic(), random.Random(1)
    with closing(opened(warehouse)) as store:
        for lsn in (1, 2, 3):
            put(store, topic, lsn, *(order(lsn * 1000 + n, chance.randbytes(1_200_000).hex()) for n in range(10)))
        first, second, third = sorted(warehouse.glob("public/orders/*.parquet"), key=lambda path: path.stat().st_mtime)
        first.unlink()
        put(store, topic, 4, order(3002, "new"), order(9, "new"), order(3003, "new"))
        with pytest.raises(CannotCarry, match="a file of the table is missing"):
            put(store, topic, 5, order(1002, "new"))
        assert second.exists() and third.exists()


KEYED = shape(column("name", "text", key=1), column("status", "text"), table="keyed")


def test_h491_a_key_that_spark_would_replace_is_itself(lake: SparkSession, warehouse: Path) -> None:
    """Spark puts settings and the environment in the place of ${…} within a statement, texts included."""
    topic, shapes, chance = Topic(KEYED), Shapes(KEYED), random.Random(1)
    keys = ["${env:PATH}", "${spark.master}", "${system:user.dir}", "${nothing}"]
    with closing(opened(warehouse)) as store:
        for lsn, status in ((1, chance.randbytes(10_000_000).hex()), (2, "second"), (3, "third")):
            rows = [{"name": key, "status": status} for key in keys]
            store.sink.apply(batch(*(topic.upsert(row, at(lsn)) for row in rows)), shapes)
    found = deltalake.DeltaTable(str(warehouse / "public" / "keyed"))
    shown = deltalake.QueryBuilder().register("t", found).execute("select name, status from t order by name")
    assert [tuple(row.values()) for row in pa.table(shown).to_pylist()] == [(key, "third") for key in sorted(keys)]


def test_h311_an_engine_is_changed_by_a_rebuild_alone(lake: SparkSession, warehouse: Path) -> None:
    topic = Topic()
    for engine, other in (("embedded", "spark"), ("spark", "embedded")):
        folder = warehouse / engine
        with closing(opened(folder, engine)) as store:
            put(store, topic, 1, order(1, "a"), order(2, "b"))
            put(store, topic, 2, order(1, "c"))
            store.commit(MARK)
        before = files(folder)
        with closing(opened(folder, other)) as store:
            with pytest.raises(
                ConfigError, match=f'is written by engine = "{engine}", and the settings name "{other}"'
            ):
                put(store, topic, 3, order(1, "d"))
            assert store.watermarks.read() == MARK
        assert files(folder) == before
        with closing(open_sink(beside(spec(folder, other), 2))) as store:
            put(store, topic, 3, order(1, "d"), order(3, "e"))
            put(store, topic, 4, order(3, "f"))
            store.commit(MARK)
        with closing(open_generations(spec(folder, other))) as generations:
            generations.keep(1, [ORDERS])
            generations.switch(2, [ORDERS])
        with closing(opened(folder, other)) as store:
            put(store, topic, 5, order(1, "g"))
            assert statuses(store) == {"1": "g", "3": "f"}
        with closing(opened(folder, engine)) as store, pytest.raises(ConfigError):
            put(store, topic, 6, order(1, "h"))


def test_h311_the_embedded_engine_refuses_vectors(lake: SparkSession, warehouse: Path) -> None:
    topic = Topic()
    with closing(opened(warehouse, "embedded")) as store:
        put(store, topic, 1, order(1), order(2))
    path = warehouse / "public" / "orders"
    lake.sql(f"alter table delta.`{path}` set tblproperties ('delta.enableDeletionVectors' = 'true')")
    before = files(warehouse)
    with closing(opened(warehouse, "embedded")) as store, pytest.raises(CannotCarry, match="has deletion vectors"):
        put(store, topic, 2, order(1, "new"))
    assert files(warehouse) == before


def test_h312_others_join_vacuum_and_write_meanwhile(lake: SparkSession, warehouse: Path) -> None:
    topic, path = Topic(), warehouse / "public" / "orders"
    with closing(opened(warehouse)) as store:
        put(store, topic, 1, *(order(number, "a") for number in range(50)))
        put(store, topic, 2, order(2, "b"))
        lake.sql(f"optimize delta.`{path}`").collect()
        lake.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        lake.sql(f"vacuum delta.`{path}` retain 0 hours").collect()
        put(store, topic, 3, order(3, "b"))
        lake.sql(f"update delta.`{path}` set status = 'mine' where id = 9").collect()
        put(store, topic, 4, order(4, "b"))
        found = statuses(store)
        assert {key for key, status in found.items() if status == "b"} == {"2", "3", "4"}
        assert (found["9"], len(found)) == ("mine", 50)


def test_h312_a_constraint_of_somebody_holds_the_table(lake: SparkSession, warehouse: Path) -> None:
    topic, path = Topic(), warehouse / "public" / "orders"
    with closing(opened(warehouse)) as store:
        put(store, topic, 1, order(1))
        lake.sql(f"alter table delta.`{path}` add constraint mine check (id < 2)")
        with pytest.raises(CannotCarry, match="a constraint of the table refuses its rows"):
            put(store, topic, 2, order(1), order(2))


@pytest.mark.parametrize("engine", ["embedded", "spark"])
def test_h314_a_column_of_somebody_does_not_stop_merges(lake: SparkSession, warehouse: Path, engine: str) -> None:
    topic, path = Topic(), warehouse / "public" / "orders"
    with closing(opened(warehouse, engine)) as store:
        put(store, topic, 1, order(1), order(2))
        put(store, topic, 2, order(1, "a"))
        lake.sql(f"alter table delta.`{path}` add columns (mine string)")
        put(store, topic, 3, order(1, "b"), order(3, "b"))
        lake.sql(f"update delta.`{path}` set mine = 'theirs' where _key = '2'").collect()
        put(store, topic, 4, order(3, "c"))
        assert statuses(store) == {"1": "b", "2": "open", "3": "c"}
    found = pa.table(table(warehouse).scan(columns=["_key", "mine"])).to_pylist()
    assert {row["_key"]: row["mine"] for row in found} == {"1": None, "2": "theirs", "3": None}


def test_h314_a_column_that_somebody_removed_holds_the_table(warehouse: Path, engine: str) -> None:
    topic = Topic()
    with closing(opened(warehouse, engine)) as store:
        put(store, topic, 1, order(1), order(2))
        rewritten(warehouse, lambda rows: rows.drop_columns(["status"]))
        for lsn in (2, 3):
            with pytest.raises(CannotCarry, match="column"):
                put(store, topic, lsn, order(1, "a"))
        assert pa.table(table(warehouse).scan(columns=["_pos"])).to_pylist() == [{"_pos": at(1).text()}] * 2


def test_h314_a_column_of_another_type_holds_the_table(warehouse: Path, engine: str) -> None:
    topic = Topic()
    with closing(opened(warehouse, engine)) as store:
        put(store, topic, 1, order(1), order(2))
        rewritten(warehouse, lambda rows: rows.set_column(1, "status", pa.array([1, 2])))
        with pytest.raises(CannotCarry, match="column"):
            put(store, topic, 2, order(1, "a"))


def rewritten(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """The table with other columns, by somebody's hand."""
    rows = change(pa.table(table(folder).scan()))
    deltalake.write_deltalake(str(folder / "public" / "orders"), rows, mode="overwrite", schema_mode="overwrite")


def test_h314_a_column_that_spark_dropped_holds_the_table(lake: SparkSession, warehouse: Path) -> None:
    topic, path = Topic(), warehouse / "public" / "orders"
    with closing(opened(warehouse)) as store:
        put(store, topic, 1, order(1), order(2))
        lake.sql(f"alter table delta.`{path}` set tblproperties ('delta.columnMapping.mode' = 'name')")
        lake.sql(f"alter table delta.`{path}` drop column status")
        with pytest.raises(CannotCarry, match=r"column|protocol"):
            put(store, topic, 2, order(1, "a"))


def test_h372_a_watermark_before_any_row_names_the_engine(lake: SparkSession, warehouse: Path) -> None:
    before = Watermark(epoch=1, lsn=8)
    with closing(opened(warehouse)) as store:
        store.commit(before)
    with closing(opened(warehouse, "embedded")) as store, pytest.raises(ConfigError, match='by engine = "spark"'):
        store.commit(before)
    with closing(opened(warehouse)) as store:
        put(store, Topic(), 1, order(1, "a"))
        assert (statuses(store), store.watermarks.read()) == ({"1": "a"}, before)


def test_h373_optimize_writes_no_file_anew_for_a_few_rows(lake: SparkSession, warehouse: Path) -> None:
    topic, clock = Topic(), ManualClock()
    with closing(opened(warehouse, clock=clock)) as store:
        put(store, topic, 1, *(order(number) for number in range(4000)))
        [whole] = table(warehouse).file_uris()
        clock.advance(700)
        put(store, topic, 2, *(order(number, "a") for number in range(0, 4000, 10)))
        assert whole in table(warehouse).file_uris(), "a tenth of its rows is hidden"
        clock.advance(700)
        put(store, topic, 3, *(order(number, "b") for number in range(0, 4000, 3)))
        assert whole not in table(warehouse).file_uris(), "more than a third of its rows is hidden"
        found = statuses(store)
        assert (found["0"], found["10"], found["2"], len(found)) == ("b", "a", "open", 4000)
        assert [one["operation"] for one in table(warehouse).history()].count("VACUUM END") == 2


def test_h375_a_vacuum_takes_as_many_tasks_as_run_at_once(lake: SparkSession, warehouse: Path) -> None:
    topic, clock, tracker = Topic(), ManualClock(), lake.sparkContext.statusTracker()
    with closing(opened(warehouse, clock=clock)) as store:
        put(store, topic, 1, order(1))
        clock.advance(700)
        earlier = set(tracker.getJobIdsForGroup())
        put(store, topic, 2, order(1, "a"))
    jobs = [tracker.getJobInfo(one) for one in set(tracker.getJobIdsForGroup()) - earlier]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    assert "VACUUM END" in {one["operation"] for one in table(warehouse).history()}
    assert 0 < max(stage.numTasks for stage in stages if stage) <= 8


def test_a_batch_of_many_tables_is_written_side_by_side(lake: SparkSession, warehouse: Path) -> None:
    shapes = [shape(column("id", "int8", key=1), column("status", "text"), table=f"t{n}") for n in range(4)]
    topics = [Topic(one) for one in shapes]
    schemas = type(SHAPES)(*shapes)
    with closing(opened(warehouse)) as store:
        for lsn, status in enumerate("ab", 1):
            done = store.sink.apply(batch(*(t.upsert({"id": 1, "status": status}, at(lsn)) for t in topics)), schemas)
            assert done.applied == len(shapes)
        assert {b'"b"' in row for one in shapes for row in live(store, one).values()} == {True}


def test_a_jar_that_is_missing_is_one_sentence(lake: SparkSession) -> None:
    absent = SparkParts(product="Delta Lake", jars="delta-spark", coordinate="a:b:1", extension="no.such.Extension")
    with pytest.raises(ConfigError, match="this Spark has no Delta Lake: the jar a:b:1 is missing"):
        WarehouseSpark(absent, {}).sql("select 1")


def test_the_coordinate_is_the_one_that_is_locked() -> None:
    assert SPARK_PARTS.coordinate in {str(jar.coordinate) for jar in locked()[SPARK_PARTS.jars].jars}


WITHOUT_SPARK = """
import sys
from contextlib import closing
from pathlib import Path
from cdc.process.clock import ManualClock
from tests.contract.stores import live
from tests.contract.orders import order, statuses
from tests.contract.topics import Topic
from tests.integration.sinks.test_spark_delta import opened, put

clock = ManualClock()
with closing(opened(Path(sys.argv[1]), clock=clock)) as store:
    put(store, Topic(), 5, order(1, "repaired"))
    clock.advance(5000)
    put(store, Topic(), 6, order(4, "repaired"))
    print(statuses(store))
"""


def test_h310_without_spark_a_repair_leaves_vectors_alone(lake: SparkSession, warehouse: Path) -> None:
    """``cdc verify --repair`` has no JVM."""
    topic = Topic()
    with closing(opened(warehouse)) as store:
        put(store, topic, 1, *(order(number, "a") for number in range(4000)))
        put(store, topic, 2, *(order(number, "b") for number in range(0, 4000, 100)))
    vectors = set((warehouse / "public" / "orders").glob("deletion_vector_*"))
    assert vectors
    command = [sys.executable, "-c", WITHOUT_SPARK, str(warehouse)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    assert set((warehouse / "public" / "orders").glob("deletion_vector_*")) == vectors
    with closing(opened(warehouse)) as store:
        shown = statuses(store)
        assert (shown["0"], shown["1"], shown["4"], len(shown)) == ("b", "repaired", "repaired", 4000)
        assert found.stdout.strip() == str(shown)
