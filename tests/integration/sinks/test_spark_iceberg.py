"""The Iceberg warehouse that Spark merges: what a batch writes, its upkeep, its secrets, and others' hands."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from cdc.process.clock import SYSTEM_CLOCK, Clock, ManualClock
from cdc.process.errors import ConfigError, Exit, Retry, SinkError
from cdc.record.progress import Watermark
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.port import CannotCarry, OpenSink, StoreAway
from sinks.contract.sink_spec import SinkSpec, open_sink
from sinks.iceberg.iceberg_catalog import LakePlace, probe_iceberg
from sinks.iceberg.iceberg_kind import SPARK_PARTS
from sinks.iceberg.iceberg_spark import iceberg_spark
from sinks.warehouse.warehouse_spark import WarehouseSpark
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, shape
from tests.fresh import fresh_name
from tests.lakes import foreign_table, lake_catalog

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

MARK = Watermark(epoch=1, lsn=9, offsets={ORDERS.topic: {0: 4}})
MANUAL = Path(__file__).parents[3] / "sinks" / "LIVE_ROWS.md"
MANY = 20_000
SECRET = "kein-wort-davon"


@pytest.fixture
def lake(spark_session: SparkSession, database: str, warehouse: Path) -> SinkSpec:
    """A catalog and a warehouse of one's own."""
    login = lake_catalog(database)
    return spec_for(
        "iceberg", prefix=fresh_name(), options={**login.options, "path": str(warehouse)}, secrets=login.secrets
    )


@pytest.fixture
def store(lake: SinkSpec) -> Iterator[OpenSink]:
    with closing(open_sink(lake)) as opened:
        yield opened


def opened(spec: SinkSpec, clock: Clock = SYSTEM_CLOCK, **options: Any) -> OpenSink:
    return open_sink(replace(spec, options={**spec.options, **options}), clock)


def put(store: OpenSink, topic: Topic, lsn: int, *rows: dict[str, Any]) -> None:
    store.sink.apply(batch(*(topic.upsert(row, at(lsn)) for row in rows)), SHAPES)


def written(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def by_spark(spec: SinkSpec, statement: str) -> list[Any]:
    """Somebody else's statement. ``{t}`` is the table of orders, ``{at}`` its name for a procedure."""
    place = LakePlace.of(spec)
    spark = iceberg_spark(place)
    table = spark.table(place.namespace, "public_orders")
    return spark.sql(statement.format(t=table, at=f"{place.namespace}.public_orders"))


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_h350_a_batch_writes_what_changed_and_all_read_it(lake: SinkSpec, warehouse: Path) -> None:
    topic = Topic()
    with closing(opened(lake)) as store:
        put(store, topic, 1, *(order(number, "x" * 40) for number in range(MANY)))
        whole = written(warehouse)
        put(store, topic, 2, *(order(number, "new") for number in range(0, MANY, 1000)))
        assert written(warehouse) - whole < whole / 2
        shown = statuses(store)
        assert (len(shown), list(shown.values()).count("new")) == (MANY, MANY // 1000)
    with foreign_table(lake) as table:
        assert int(table.current_snapshot().summary["total-position-deletes"]) == MANY // 1000  # type: ignore[union-attr,index,arg-type]
        by_polars = table.to_polars().filter(pl.col("status") == "new").collect()
        rows = table.scan().to_arrow()
    counted = duckdb.from_arrow(rows).filter("status = 'new' and not cdc_deleted").shape[0]
    found = by_spark(lake, "select count(*) as n from {t} where status = 'new'")[0]["n"]
    assert [by_polars.height, counted, found] == [MANY // 1000] * 3


def test_h351_files_are_joined_and_old_snapshots_expire(lake: SinkSpec, warehouse: Path) -> None:
    topic, clock = Topic(), ManualClock(SYSTEM_CLOCK.now_ns())
    with closing(opened(lake, clock, compact_files=4, snapshots_for_s=60.0)) as store:
        put(store, topic, 1, *(order(number, "a") for number in range(200)))
        for lsn in range(2, 10):
            put(store, topic, lsn, order(lsn, "b"), order(1000 + lsn, "c"))
        with foreign_table(lake) as table:
            assert len(list(table.scan().plan_files())) < 5
            assert len(table.snapshots()) > 8
        before = statuses(store)
        clock.advance(10_000_000.0)
        put(store, topic, 20, order(1, "last"))
        with foreign_table(lake) as table:
            assert len(table.snapshots()) == 1
            alive = {task.file.file_path.rpartition("/")[2] for task in table.scan().plan_files()}
        assert statuses(store) == {**before, "1": "last"}
    left = {path.name for path in (warehouse / LakePlace.of(lake).namespace).glob("public_orders-*/data/*.parquet")}
    assert alive <= left
    assert len(left) < 8


def test_h352_no_setting_of_spark_has_the_secret(lake: SinkSpec, spark_session: SparkSession) -> None:
    [password] = lake.secrets.values()
    with closing(opened(lake)) as store:
        put(store, Topic(), 1, order(1))
        put(store, Topic(), 2, order(1, "new"))
    sessions = iceberg_spark(LakePlace.of(lake))._sessions.values()
    assert sessions
    for one in (*sessions, spark_session):
        assert password not in str(one.sql("set -v").collect())
        assert not [row for row in one.sql("set").collect() if "catalog.lake" in row["key"]]
    assert password not in str(spark_session.sparkContext.getConf().getAll())
    assert password not in repr(lake) + repr(LakePlace.of(lake))
    command = Path(f"/proc/{spark_session.sparkContext._gateway.proc.pid}/cmdline")  # type: ignore[union-attr]
    assert password.encode() not in command.read_bytes()


def test_h353_a_wrong_login_and_a_catalog_away_are_one_sentence(lake: SinkSpec) -> None:
    wrong = replace(lake, secrets={"password": SECRET})
    for ask in (probe_iceberg, lambda spec: open_sink(spec).watermarks.read()):
        with pytest.raises(SinkError, match="refuses the login") as refused:
            ask(wrong)
        assert (refused.value.exit, refused.value.retry) == (Exit.CONFIG, Retry.SECRET)
        assert SECRET not in refused.value.message + refused.value.hint
    away = replace(lake, options={**lake.options, "catalog": f"postgresql://cdc@127.0.0.1:{unused_port()}/lake"})
    with pytest.raises(StoreAway, match="cannot be reached") as gone:
        probe_iceberg(away)
    assert gone.value.exit is Exit.UNAVAILABLE
    assert "catalog" in gone.value.hint


def test_h353_a_login_without_rights_says_so(lake: SinkSpec, database: str) -> None:
    role = fresh_name()
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(sql.SQL("create role {} login password {}").format(sql.Identifier(role), SECRET))
    try:
        catalog = str(lake.options["catalog"]).replace("//postgres@", f"//{role}@")
        poor = replace(lake, options={**lake.options, "catalog": catalog}, secrets={"password": SECRET})
        with pytest.raises(SinkError, match="permission denied") as refused:
            probe_iceberg(poor)
        assert refused.value.exit is Exit.CONFIG
    finally:
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


def test_h355_others_join_expire_and_write_meanwhile(lake: SinkSpec) -> None:
    topic = Topic()
    with closing(opened(lake)) as store:
        put(store, topic, 1, *(order(number, "a") for number in range(50)))
        for lsn in range(2, 5):
            put(store, topic, lsn, order(lsn, "b"))
            by_spark(
                lake, "call lake.system.rewrite_data_files(table => '{at}', options => map('rewrite-all', 'true'))"
            )
        by_spark(lake, "call lake.system.expire_snapshots(table => '{at}', older_than => timestamp '2099-01-01')")
        put(store, topic, 6, order(6, "b"))
        by_spark(lake, "update {t} set status = 'mine' where id = 9")
        put(store, topic, 7, order(7, "b"))
        found = statuses(store)
        assert {key for key, status in found.items() if status == "b"} == {"2", "3", "4", "6", "7"}
        assert (found["9"], len(found)) == ("mine", 50)


def test_h356_a_switch_fences_a_watermark_of_before(lake: SinkSpec) -> None:
    topic = Topic()
    with closing(opened(lake)) as store:
        put(store, topic, 1, order(1, "old"))
        store.commit(MARK)
        store.watermarks.read()
        with closing(open_sink(beside(lake, 2))) as filled:
            put(filled, topic, 2, order(1, "new"))
            filled.commit(replace(MARK, lsn=20))
        with closing(open_generations(lake)) as generations:
            generations.keep(1, [ORDERS])
            generations.switch(2, [ORDERS])
        with pytest.raises(StoreAway):
            store.watermarks.write(replace(MARK, lsn=99))
        assert not store.current()
    with closing(opened(lake)) as store:
        mark = store.watermarks.read()
        assert mark is not None
        assert (mark.lsn, statuses(store)) == (20, {"1": "new"})


def test_h387_a_file_that_is_missing_holds_its_table_alone(lake: SinkSpec) -> None:
    other = shape(column("id", "int8", key=1), table="other")
    with closing(opened(lake, ManualClock(SYSTEM_CLOCK.now_ns()))) as store:
        put(store, Topic(), 1, order(1, "a"))
        with foreign_table(lake) as table:
            [file] = [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]
        file.rename(file.with_suffix(".away"))
        missing = "a file of the table is missing"
        with pytest.raises(CannotCarry, match=missing) as held:
            put(store, Topic(), 2, order(1, "b"))
        assert held.value.table == ORDERS.table
        with pytest.raises(CannotCarry, match=missing):
            store.reader.get(ORDERS, "1")
        with pytest.raises(CannotCarry, match=missing):
            list(store.reader.scan(ORDERS))
        for lsn in (3, 4):
            assert store.sink.apply(batch(Topic(other).upsert({"id": 1}, at(lsn))), Shapes(other)).applied == 1
        file.with_suffix(".away").rename(file)
        put(store, Topic(), 5, order(1, "c"))
        assert statuses(store) == {"1": "c"}


def test_columns_of_icebergs_own_names_are_kept(store: OpenSink) -> None:
    names = ("_pos", "_deleted", "_file", "cdc_pos", "cdc_key", "Pos", "pos")
    odd = shape(column("id", "int8", key=1), *(column(name, "text") for name in names), table="odd")
    topic = Topic(odd)
    for lsn in (1, 2):
        row = {"id": 1, **{name: f"{name} {lsn}" for name in names}}
        assert store.sink.apply(batch(topic.upsert(row, at(lsn))), Shapes(odd)).applied == 1
    found = store.reader.get(odd, "1")
    assert found is not None
    assert found.row is not None
    assert all(f'"{name}":"{name} 2"'.encode() in found.row for name in names)


@pytest.mark.parametrize(("before", "after"), [("Name", "name"), ("\u0131d_of", "id_of")])
def test_h386_a_column_that_spark_reads_as_another_is_held(store: OpenSink, before: str, after: str) -> None:
    first, second = (
        shape(column("id", "int8", key=1), column(name, "text"), table="people", version=version)
        for version, name in ((1, before), (2, after))
    )
    shapes = Shapes(first, second, ORDERS)
    store.sink.apply(batch(Topic(first).upsert({"id": 1, before: "a"}, at(1))), Shapes(first))
    with pytest.raises(CannotCarry, match=f"columns {before} and {after} are one column to Spark") as held:
        store.sink.apply(batch(Topic(second).upsert({"id": 1, after: "b"}, at(2))), shapes)
    assert held.value.table == first.table
    put(store, Topic(), 3, order(1, "a"))
    put(store, Topic(), 4, order(1, "b"))
    assert statuses(store) == {"1": "b"}


def test_h386_columns_of_one_shape_that_spark_reads_as_one(store: OpenSink) -> None:
    odd = shape(column("id", "int8", key=1), column("\u03c2", "text"), column("\u03c3", "text"), table="greek")
    with pytest.raises(CannotCarry, match="are one column to Spark"):
        store.sink.apply(batch(Topic(odd).upsert({"id": 1}, at(1))), Shapes(odd))


def test_two_tables_of_one_name_are_not_mixed(store: OpenSink) -> None:
    one = shape(column("id", "int8", key=1), table="b_c", schema="a")
    other = shape(column("id", "int8", key=1), table="c", schema="a_b")
    store.sink.apply(batch(Topic(one).upsert({"id": 1}, at(1))), Shapes(one, other))
    with pytest.raises(CannotCarry, match=r"its Iceberg table a_b_c is that of a\.b_c"):
        store.sink.apply(batch(Topic(other).upsert({"id": 1}, at(1))), Shapes(one, other))


WITHOUT_SPARK = """
import os, sys
from contextlib import closing
from sinks.contract.kinds import spec_for
from sinks.contract.sink_spec import open_sink
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.topics import Topic, at, batch

options = {"catalog": sys.argv[1], "path": sys.argv[2]}
spec = spec_for("iceberg", prefix=sys.argv[3], options=options, secrets={"password": os.environ["LAKE"]})
with closing(open_sink(spec)) as store:
    topic = Topic()
    rows = [topic.upsert(order(1, "repaired"), at(5)), topic.upsert(order(2, "late"), at(1))]
    done = store.sink.apply(batch(*rows, *topic.delete(order(3), at(6))), SHAPES)
    print(done.stale, sorted(statuses(store).items()))
"""


def test_h357_without_spark_a_repair_writes_its_keys_anew(lake: SinkSpec, store: OpenSink) -> None:
    """``cdc verify --repair`` has no JVM."""
    topic = Topic()
    put(store, topic, 1, *(order(number, "a") for number in range(6)))
    put(store, topic, 2, order(2, "b"), order(4, "b"))
    arguments = (str(lake.options["catalog"]), str(lake.options["path"]), lake.prefix)
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, *arguments],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "LAKE": lake.secrets["password"]},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    after = {"0": "a", "1": "repaired", "2": "b", "4": "b", "5": "a"}
    assert found.stdout.strip() == f"1 {sorted(after.items())}"
    put(store, topic, 7, order(9, "merged"))
    assert statuses(store) == {**after, "9": "merged"}


def test_the_live_rows_of_the_manual(lake: SinkSpec, store: OpenSink) -> None:
    topic = Topic()
    put(store, topic, 1, *(order(number, "open") for number in (1, 2, 3)))
    store.sink.apply(batch(*topic.delete(order(2), at(4)), topic.upsert(order(3, "paid"), at(5))), SHAPES)
    place = LakePlace.of(lake)
    found = re.search(r"<!-- example iceberg -->\n```python\n(.*?)```", MANUAL.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    told: dict[str, Any] = {"uri": place.for_pyiceberg()["uri"], "root": place.location}
    exec(found[1].replace("shop.public_orders", f"{place.namespace}.public_orders"), told)
    told["lake"].close()
    told["warehouse"].close()
    assert told["live"] == [(1, "open"), (3, "paid")]


def test_a_spark_without_the_jar_says_which_is_missing(lake: SinkSpec) -> None:
    absent = replace(SPARK_PARTS, extension="no.such.Extension")
    with pytest.raises(ConfigError, match=r"this Spark has no Iceberg: the jar org\.apache\.iceberg:"):
        WarehouseSpark(absent, {}).sql("select 1")
