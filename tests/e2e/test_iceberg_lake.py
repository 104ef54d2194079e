"""An Iceberg warehouse through all commands, and through what happens to it: killed writers, two writers, a catalog
that is away, a folder that is full."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.process.errors import Exit
from cdc.settings.model import load
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.stores import spec_of
from sinks.iceberg.iceberg_spark import summary_count
from tests.faults.proxy import Fault, Proxy
from tests.fresh import new_database
from tests.integration.cli.pipeline import Pipeline
from tests.integration.spark.family import below
from tests.lakes import foreign_table, lake_catalog
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.long

ROWS = 40
START_S = 400.0


@pytest.fixture
def door(postgres: str) -> Iterator[tuple[Proxy, str]]:
    """The way to a database of the catalog's own, and its connection string."""
    with new_database(postgres) as dsn:
        place = lake_catalog(dsn).options["catalog"]
        with Proxy(int(str(place).rpartition("/")[0].rpartition(":")[2])) as proxy:
            yield proxy, dsn


@pytest.fixture
def pipeline(
    database: str, door: tuple[Proxy, str], kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc
) -> Pipeline:
    proxy, dsn = door
    login, secret = lake_catalog(dsn), tmp_path / "secret"
    secret.write_text(login.secrets["password"], encoding="utf-8")
    user, _, name = str(login.options["catalog"]).partition("@")
    lake = {
        "kind": "iceberg",
        "catalog": f"{user}@127.0.0.1:{proxy.port}/{name.rpartition('/')[2]}",
        "password": f"file:{secret}",
        "path": str(tmp_path / "lake"),
        "compact_files": 4,
    }
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.orders"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "sinks": {"lake": lake},
        "spark": {"checkpoint": str(tmp_path / "checkpoints"), "http_address": ""},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(
        "create table orders (id int primary key, status text)",
        f"insert into orders select i, 'open' from generate_series(1, {ROWS}) i",
    )
    return made


class Lake:
    """The captured table in the warehouse."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.folder = pipeline.folder / "lake"

    @property
    def spec(self) -> SinkSpec:
        return spec_of("lake", load(self.pipeline.config))

    def rows(self, *columns: str) -> dict[str, Any]:
        """Status, or some columns, by key. None: a delete that is remembered."""
        wanted = columns or ("status",)
        with foreign_table(self.spec) as table:
            if not {*wanted} <= {*table.schema().column_names}:
                return {}
            found = table.scan(selected_fields=("cdc_key", "cdc_deleted", *wanted)).to_arrow().to_pylist()
        assert len(found) == len({row["cdc_key"] for row in found}), "a key is stored twice"
        values = {row["cdc_key"]: tuple(row[name] for name in wanted) for row in found if not row["cdc_deleted"]}
        gone = {row["cdc_key"]: None for row in found if row["cdc_deleted"]}
        return {**gone, **{key: value if columns else value[0] for key, value in values.items()}}

    def live(self, *columns: str) -> dict[str, Any]:
        return {key: row for key, row in self.rows(*columns).items() if row is not None}

    def commits(self) -> int:
        with foreign_table(self.spec) as table:
            return max((one.sequence_number or 0 for one in table.snapshots()), default=0)

    def joins(self) -> int:
        with foreign_table(self.spec) as table:
            return sum(str(one.summary.operation.value) == "replace" for one in table.snapshots() if one.summary)

    def behind(self) -> int:
        with foreign_table(self.spec) as table:
            return summary_count(table, "total-position-deletes") or 0

    def data_files(self) -> int:
        return len(list(self.folder.glob("*/public_orders-*/data/*.parquet")))


def begun(pipeline: Pipeline, spawn: Spawn) -> Lake:
    """Filled by an application that ran until it had caught up. The capture runs on."""
    pipeline.good("init")
    pipeline.good("snapshot")
    spawn("cdc", "--config", pipeline.config, "run")
    catch_up(pipeline)
    lake = Lake(pipeline)
    assert len(lake.live()) == ROWS
    return lake


def catch_up(pipeline: Pipeline) -> None:
    done = pipeline.cdc("sink", "--until-caught-up", timeout_s=START_S)
    assert done.returncode == 0, done.stderr


def running(pipeline: Pipeline, spawn: Spawn) -> Spawned:
    sink = spawn("cdc", "--config", pipeline.config, "sink")
    wait_until(lambda: "sink_started" in sink.stderr, START_S, lambda: sink.stderr[-2000:])
    return sink


def good(pipeline: Pipeline, *words: str) -> str:
    done = pipeline.cdc(*words, timeout_s=START_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_iceberg_lake_goes_through_all_commands(pipeline: Pipeline, spawn: Spawn) -> None:
    lake = begun(pipeline, spawn)
    sink = running(pipeline, spawn)
    pipeline.sql("update orders set status = 'paid' where id = 1", "delete from orders where id = 2")
    wanted: dict[str, Any] = {str(number): "open" for number in range(3, ROWS + 1)} | {"1": "paid", "2": None}
    wait_until(lambda: lake.rows() == wanted, START_S, lambda: sink.stderr[-2000:])
    assert lake.behind() > 0, "a merge writes deletes beside the rows, and no file anew"
    assert "lake" in good(pipeline, "check")
    assert "lake" in pipeline.cdc("status").stdout
    assert "orders 1" in good(pipeline, "events", "--from-beginning", "--until-caught-up")
    with psycopg.connect(pipeline.dsn, autocommit=True) as source:
        source.execute("update orders set status = 'sent' where id = 3")
        [lsn] = source.execute("select pg_current_wal_insert_lsn()").fetchone() or ()
    good(pipeline, "wait", "lake", str(lsn), "--timeout", "300")
    assert lake.live()["3"] == "sent"
    good(pipeline, "verify", "lake")
    forgotten = pipeline.cdc("forget", "public.orders", "2")
    assert "lake: " in forgotten.stdout and "lake: not known" not in forgotten.stdout, forgotten.stderr
    assert sink.process.poll() is None, sink.stderr[-2000:]
    assert sink.terminate(START_S) == 0, sink.stderr[-2000:]


def test_shapes_generations_and_repairs_of_an_iceberg_lake(pipeline: Pipeline, spawn: Spawn) -> None:
    lake = begun(pipeline, spawn)
    sink = running(pipeline, spawn)

    def shows(wanted: dict[str, Any], *columns: str) -> None:
        wait_until(lambda: lake.live(*columns) == wanted, START_S, lambda: (lake.rows(*columns), sink.stderr[-2000:]))

    pipeline.sql(
        "alter table orders add column n int",
        "update orders set n = 7 where id = 1",
        "alter table orders alter column n type bigint",
        "update orders set n = 5000000000 where id = 3",
        "alter table orders rename column status to state",
        "update orders set state = 'renamed' where id = 4",
    )
    untouched = {str(number): (None, "open") for number in range(1, ROWS + 1)}
    shows(untouched | {"1": (7, "open"), "3": (5_000_000_000, "open"), "4": (None, "renamed")}, "n", "state")
    pipeline.sql("alter table orders drop column n", "update orders set state = 'narrow' where id = 5")
    states = {key: (row[1],) for key, row in untouched.items()} | {"4": ("renamed",), "5": ("narrow",)}
    shows(states, "state")
    good(pipeline, "rebuild", "lake")
    assert lake.live("state") == states
    good(pipeline, "rebuild", "lake", "--rollback")
    assert lake.live("state") == states
    pipeline.sql("update orders set state = 'after' where id = 6")
    shows(states | {"6": ("after",)}, "state")
    with foreign_table(lake.spec) as table, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table.delete("cdc_key = '7'")
    differs = pipeline.cdc("verify", "lake", timeout_s=START_S)
    assert differs.returncode == 1, differs.stdout + differs.stderr
    good(pipeline, "verify", "lake", "--repair")
    assert lake.live("state")["7"] == ("open",)
    pipeline.sql("truncate orders", "insert into orders values (100, 'new')")
    shows({"100": ("new",)}, "state")
    good(pipeline, "verify", "lake")
    assert sink.process.poll() is None, sink.stderr[-2000:]
    assert "Traceback" not in sink.stderr


def test_h379_killed_in_a_merge_or_a_join_it_ends_as_the_source(pipeline: Pipeline, spawn: Spawn) -> None:
    """All processes of the application end at once: with files written and no commit, with a commit of which no
    watermark speaks yet, and while files are joined. Deletes are remembered."""
    lake = begun(pipeline, spawn)
    wanted = {str(number): "open" for number in range(1, ROWS + 1)}
    points: list[Callable[[], int]] = [lake.data_files, lake.commits, lake.joins]
    for number, point in enumerate(points, 1):
        sink = running(pipeline, spawn)
        before, turn = point(), 0
        pipeline.sql(f"delete from orders where id = {number * 4}")
        wanted.pop(str(number * 4))
        while point() == before and turn < 20:
            turn += 1
            pipeline.sql(f"update orders set status = 'life {number} {turn}' where id % 4 = {number}")
            with suppress(AssertionError):
                wait_until(partial(_beyond, point, before), 3)
        assert point() > before, sink.stderr[-2000:]
        wanted |= {key: f"life {number} {turn}" for key in wanted if int(key) % 4 == number}
        killed_whole(sink)
    catch_up(pipeline)
    assert lake.live() == wanted
    assert {key for key, status in lake.rows().items() if status is None} == {"4", "8", "12"}
    running(pipeline, spawn)
    good(pipeline, "verify", "lake")


def test_h379_a_catalog_away_for_a_minute_is_waited_for(
    pipeline: Pipeline, spawn: Spawn, door: tuple[Proxy, str]
) -> None:
    proxy, _ = door
    lake = begun(pipeline, spawn)
    sink = running(pipeline, spawn)
    proxy.set(Fault(refuse=True))
    proxy.cut()
    pipeline.sql("update orders set status = 'meanwhile' where id = 1")
    wait_until(lambda: "store_unreachable" in sink.stderr, START_S, lambda: sink.stderr[-2000:])
    away = pipeline.cdc("check")
    assert away.returncode == Exit.UNAVAILABLE, away.stdout + away.stderr
    wait_until(lambda: sink.stderr.count("cannot be reached") > 1, START_S, lambda: sink.stderr[-2000:])
    assert sink.process.poll() is None, sink.stderr[-2000:]
    proxy.heal()
    wait_until(lambda: lake.live()["1"] == "meanwhile", START_S, lambda: sink.stderr[-2000:])
    assert "Traceback" not in sink.stderr


def _beyond(point: Callable[[], int], before: int) -> bool:
    return point() > before


def _shown(lake: Lake, status: str) -> bool:
    return status in lake.rows().values()


def killed_whole(program: Spawned) -> None:
    """SIGKILL of the program and of all below it: those below first, who would see its end."""
    for pid in [*(one.pid for one in below(program.process.pid)), program.process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    program.process.wait(30)
