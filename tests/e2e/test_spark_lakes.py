"""A warehouse that Spark merges, through all commands, and through the end of every process of the application."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import deltalake
import pytest

from cdc.process.errors import Exit
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.integration.spark.family import below
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.long

ROWS = 40
START_S = 400.0


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.orders"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "sinks": {"lake": {"kind": "delta", "engine": "spark", "path": str(tmp_path / "lake")}},
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
        self.path = pipeline.folder / "lake" / "public" / "orders"

    def rows(self) -> dict[str, str | None]:
        """Status by key. None: a delete that is remembered."""
        if not deltalake.DeltaTable.is_deltatable(str(self.path)):
            return {}
        found = deltalake.DeltaTable(str(self.path)).scan(columns=["_key", "status", "_deleted"]).read_all()
        rows = found.to_struct_array().to_pylist()
        assert len(rows) == len({row["_key"] for row in rows}), "a key is stored twice"
        return {row["_key"]: None if row["_deleted"] else row["status"] for row in rows}

    def live(self) -> dict[str, str | None]:
        return {key: status for key, status in self.rows().items() if status is not None}

    def merges(self) -> int:
        return [one["operation"] for one in deltalake.DeltaTable(str(self.path)).history()].count("MERGE")

    def commits(self) -> int:
        return len(list((self.path / "_delta_log").glob("*.json")))

    def data_files(self) -> int:
        return len(list(self.path.glob("*.parquet"))) + len(list(self.path.glob("deletion_vector_*")))


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


def test_a_warehouse_of_spark_goes_through_all_commands(pipeline: Pipeline, spawn: Spawn) -> None:
    lake = begun(pipeline, spawn)
    sink = spawn("cdc", "--config", pipeline.config, "sink")
    pipeline.sql("update orders set status = 'paid' where id = 1", "delete from orders where id = 2")
    wanted = {str(number): "open" for number in range(3, ROWS + 1)} | {"1": "paid", "2": None}
    wait_until(lambda: lake.rows() == wanted, START_S, lambda: sink.stderr[-2000:])
    assert lake.merges() > 0
    assert "lake" in pipeline.cdc("check").stdout
    verified = pipeline.cdc("verify", "lake", timeout_s=START_S)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    rebuilt = pipeline.cdc("rebuild", "lake", timeout_s=START_S)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert lake.live() == {key: status for key, status in wanted.items() if status}
    pipeline.sql("update orders set status = 'sent' where id = 3")
    wait_until(lambda: lake.rows().get("3") == "sent", START_S, lambda: sink.stderr[-2000:])
    assert sink.process.poll() is None, sink.stderr[-2000:]
    assert sink.terminate(START_S) == 0, sink.stderr[-2000:]
    pipeline.document["sinks"]["lake"]["engine"] = "embedded"
    refused = pipeline.cdc("sink", "--until-caught-up", timeout_s=START_S)
    assert_refused(refused, Exit.CONFIG, 'is written by engine = "spark", and the settings name "embedded"', "rebuild")
    rebuilt = pipeline.cdc("rebuild", "lake", timeout_s=START_S)
    assert rebuilt.returncode == 0, rebuilt.stderr
    pipeline.sql("update orders set status = 'sent' where id = 4")
    catch_up(pipeline)
    assert (lake.live()["3"], lake.live()["4"], len(lake.live())) == ("sent", "sent", ROWS - 1)


def test_h313_killed_in_mid_merge_a_warehouse_ends_as_the_source(pipeline: Pipeline, spawn: Spawn) -> None:
    """All processes of the application end at once: with files written and no commit, and with a commit of rows that
    no watermark speaks of yet. Deletes are remembered."""
    lake = begun(pipeline, spawn)
    wanted = {str(number): "open" for number in range(1, ROWS + 1)}
    points: list[Callable[[], int]] = [lake.data_files, lake.commits, lake.data_files]
    for number, point in enumerate(points, 1):
        sink = spawn("cdc", "--config", pipeline.config, "sink")
        started(sink)
        before = point()
        pipeline.sql(
            f"update orders set status = 'life {number}' where id % 4 = {number}",
            f"delete from orders where id = {number * 4}",
        )
        wanted |= {key: f"life {number}" for key in wanted if int(key) % 4 == number}
        wanted.pop(str(number * 4))
        killed_past(sink, point, before)
    catch_up(pipeline)
    assert lake.live() == wanted
    assert {key for key, status in lake.rows().items() if status is None} == {"4", "8", "12"}
    spawn("cdc", "--config", pipeline.config, "sink")
    verified = pipeline.cdc("verify", "lake", timeout_s=START_S)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def started(sink: Spawned) -> None:
    wait_until(lambda: "sink_started" in sink.stderr, START_S, lambda: sink.stderr[-2000:])


def killed_past(sink: Spawned, point: Callable[[], int], before: int) -> None:
    """At once where a count has grown."""
    wait_until(lambda: point() > before, START_S, lambda: sink.stderr[-2000:])
    killed_whole(sink)


def killed_whole(program: Spawned) -> None:
    """SIGKILL of the program and of all below it: those below first, who would see its end."""
    for pid in [*(one.pid for one in below(program.process.pid)), program.process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    program.process.wait(30)
