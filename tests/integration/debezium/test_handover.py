"""From Debezium to the native capture on the same topics, while the source never rests."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Exit
from connectors.debezium.offsets import reads_incrementally, shown_lsn
from tests.integration.debezium.conftest import Pipeline
from tests.integration.debezium.following import Follower, restless, source_rows
from tests.integration.debezium.test_stores import SINK_S, cached
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

NATIVE = {"CDC_SOURCE__KIND": "postgres"}
POINTS = ("handover_begun", "handover_adopted", "handover_stopped")
CAUGHT_UP_S = 60.0


class Handing:
    """The commands of a handover, on one settings file."""

    def __init__(self, pipeline: Pipeline, run_cdc: RunCdc, spawn: Spawn, settings: Path) -> None:
        self.pipeline = pipeline
        self.settings = settings
        self._run = run_cdc
        self._spawn = spawn
        self.follower = Follower(pipeline, "public.a")

    def cdc(self, *arguments: str, **environment: str) -> tuple[int, str]:
        done = self._run("--config", self.settings, *arguments, env=environment, timeout_s=180)
        return done.returncode, done.stdout + done.stderr

    def good(self, *arguments: str, **environment: str) -> str:
        code, said = self.cdc(*arguments, **environment)
        assert code == 0, said
        return said

    def begin(self, *arguments: str) -> Spawned:
        return self._spawn("cdc", "--config", self.settings, *arguments)

    def reads(self) -> bool:
        """Whether the connector's offsets name a table that is to be read."""
        return reads_incrementally(self.pipeline.connector().offsets())

    def capture(self) -> Spawned:
        running = self._spawn("cdc", "--config", self.settings, "run", env=NATIVE)
        wait_until(lambda: '"streaming"' in running.stderr, 60, describe=lambda: running.stderr)
        return running

    def hand_over(self) -> str:
        """It is killed behind each of its steps, and begun again."""
        told = ""
        for point in POINTS:
            code, said = self.cdc("connect", "handover", CDC_CRASH_AT=point)
            assert code == CRASH_EXIT, f"{point}: {said}"
            told += said
        return told + self.good("connect", "handover")

    def complete(self) -> None:
        """Wait until an offset behind the snapshot is stored."""
        wait_until(lambda: shown_lsn(self.pipeline.connector().offsets()), 90, "an offset is stored")

    def true_log(self) -> None:
        """What a store shows, and what compaction keeps, come to equal the source, which rests now."""
        wanted = source_rows(self.pipeline)
        assert len(wanted) > 10
        wait_until(lambda: self.follower.rows() == wanted, CAUGHT_UP_S, lambda: difference(self.follower, wanted))
        assert self.follower.last_words() == wanted


def difference(follower: Follower, wanted: dict[int, dict[str, object]]) -> str:
    held = follower.rows()
    return str(
        {key: (held.get(key), wanted.get(key)) for key in held.keys() | wanted if held.get(key) != wanted.get(key)}
    )


@pytest.fixture
def handing(pipeline: Pipeline, run_cdc: RunCdc, spawn: Spawn, tmp_path: Path) -> Handing:
    pipeline.document["capture"] = {"http_address": ""}
    pipeline.run("insert into a select i, 's' || i, i from generate_series(1, 40) i")
    return Handing(pipeline, run_cdc, spawn, pipeline.toml(tmp_path))


def native_records(handing: Handing) -> list[object]:
    return [value for _, value in handing.pipeline.records("public.a") if value and "commit_lsn" in str(value)]


@pytest.mark.slow
def test_h91_to_native_under_load_and_back_by_new_topics(
    handing: Handing, pipeline: Pipeline, database: str, redis_url: str, spawn: Spawn, tmp_path: Path
) -> None:
    handing.settings = pipeline.toml(
        tmp_path,
        sinks__cache={"kind": "redis", "url": redis_url},
        spark={"master": "local[1]", "checkpoint": str(tmp_path / "checkpoints"), "http_address": ""},
    )
    handing.good("connect", "deploy")
    pipeline.arrived("public.a", 40)
    # The sink is started once, before anything is handed over, and goes on through it.
    sink = spawn("cdc", "--config", handing.settings, "sink", "cache")
    name = pipeline.settings().name
    pipeline.run("select pg_logical_emit_message(true, 'ours', 'a message')")
    with restless(database):
        handing.complete()
        assert f"logical messages are carried no more: {name}.message" in handing.hand_over()
        code, said = handing.cdc("connect", "deploy")
        assert code == Exit.CONFIG
        assert "the native capture writes" in said
        capture = handing.capture()
        wait_until(lambda: len(native_records(handing)) > 100, 30, "the native capture writes")
        code, said = handing.cdc("connect", "resnapshot", "--yes")
        assert code == Exit.ACTIVE, said
    handing.true_log()
    wanted = source_rows(pipeline)

    def shown() -> bool:
        assert sink.process.poll() is None, sink.stderr
        return {row["id"]: row for row in cached(redis_url, name, "public.a").values()} == wanted

    wait_until(shown, SINK_S, lambda: sink.stderr)
    assert sink.terminate() == 0
    assert "public.a" not in handing.good("dead", "list")
    with restless(database):
        assert capture.terminate() == 0, capture.stderr
        handing.good("connect", "resnapshot", "--yes")
        code, said = handing.cdc("run", **NATIVE)
    handing.true_log()
    assert native_records(handing) == []


@pytest.mark.slow
def test_no_handover_while_rows_of_a_table_are_read(handing: Handing, pipeline: Pipeline, tmp_path: Path) -> None:
    """200 rows were lost in silence so: of a table that was added a moment before."""
    handing.good("connect", "deploy")
    pipeline.arrived("public.a", 40)
    handing.complete()
    pipeline.run("create table c (id int primary key)", "insert into c select i from generate_series(1, 200) i")
    pipeline.document["source"]["tables"] += ["public.c"]
    handing.settings = pipeline.toml(tmp_path)
    deploying = handing.begin("connect", "deploy")
    wait_until(handing.reads, 60, lambda: deploying.stderr)
    # Its rows are asked for, and the connector is not up again: with the table locked none of them is read.
    pipeline.run("begin", "lock table c in access exclusive mode")
    assert deploying.wait(180) == 0, deploying.stderr
    code, said = handing.cdc("connect", "handover")
    pipeline.run("commit")
    assert code == Exit.CONFIG, said
    assert "and nobody would read the rest" in said
    assert pipeline.connector().status().runs
    pipeline.arrived("public.c", 200, 120)

    def handed() -> bool:
        # The offset that says the reading is over is stored a while later.
        code, said = handing.cdc("connect", "handover")
        assert code in (0, Exit.CONFIG), said
        return code == 0

    wait_until(handed, 150, "the reading is over")
    assert {key["id"] for key, _ in pipeline.records("public.c")} == set(range(1, 201))


@pytest.mark.slow
def test_keys_written_differently_are_refused_before_the_stop(
    handing: Handing, pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.run("create table odd (k numeric primary key)", "insert into odd values ('NaN')")
    pipeline.document["source"]["tables"] += ["public.odd"]
    handing.settings = pipeline.toml(tmp_path)
    handing.good("connect", "deploy")
    handing.complete()
    code, said = handing.cdc("connect", "handover")
    assert code == Exit.CONFIG, said
    assert "(D4)" in said
    assert pipeline.connector().status().runs


def test_what_is_not_there_cannot_be_handed_over(handing: Handing) -> None:
    code, said = handing.cdc("connect", "handover")
    assert code == Exit.CONFIG, said
    assert "hint: cdc " in said
