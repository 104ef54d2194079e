"""One writer after the other on the same topics, while the source never rests."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.crash import CRASH_EXIT
from cdc.errors import Exit
from connectors.debezium.source_progress import shown_lsn
from tests.integration.debezium.conftest import Pipeline
from tests.integration.debezium.following import Follower, restless, source_rows
from tests.integration.debezium.test_stores import SINK_S, cached
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

NATIVE = {"CDC_SOURCE__KIND": "postgres"}
POINTS = {
    "native": ("handover_begun", "handover_located", "handover_stopped"),
    "debezium": ("handover_begun", "handover_stopped", "handover_placed", "handover_resumed"),
}
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

    def good(self, *arguments: str, **environment: str) -> None:
        code, said = self.cdc(*arguments, **environment)
        assert code == 0, said

    def capture(self) -> Spawned:
        running = self._spawn("cdc", "--config", self.settings, "run", env=NATIVE)
        wait_until(lambda: '"streaming"' in running.stderr, 60, describe=lambda: running.stderr)
        return running

    def hand_over(self, to: str, *, killed: bool = False) -> None:
        for point in POINTS[to] if killed else ():
            code, said = self.cdc("connect", "handover", "--to", to, CDC_CRASH_AT=point)
            assert code == CRASH_EXIT, f"{point}: {said}"
        self.good("connect", "handover", "--to", to)

    def true_store(self) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "killed", [pytest.param(False, marks=pytest.mark.long), True], ids=["at once", "killed at each step"]
)
def test_h91_from_debezium_to_native_and_back_under_load(handing: Handing, database: str, killed: bool) -> None:
    handing.good("connect", "deploy")
    handing.pipeline.arrived("public.a", 40)
    with restless(database):
        wait_until(lambda: offset_stored(handing), 90, "an offset of a finished snapshot is stored")
        handing.hand_over("native", killed=killed)
        code, said = handing.cdc("connect", "deploy")
        assert code == Exit.CONFIG
        assert "the native capture writes" in said
        before = handing.follower.twice()
        capture = handing.capture()
        wait_until(lambda: len(native_records(handing)) > 100, 30, "the native capture writes")
        code, said = handing.cdc("connect", "handover", "--to", "debezium")
        assert code == Exit.ACTIVE, said
        assert "still writes" in said
        assert capture.terminate() == 0, capture.stderr
        handing.hand_over("debezium", killed=killed)
        count = len(handing.pipeline.records("public.a"))
        wait_until(lambda: len(handing.pipeline.records("public.a")) > count + 100, 60, "Debezium writes")
        code, said = handing.cdc("run", **NATIVE)
        assert code == Exit.CONFIG
        assert "Debezium writes" in said
    handing.true_store()
    assert handing.follower.twice() == before
    handing.good("connect", "diff")


def offset_stored(handing: Handing) -> bool:
    """Connect may have stored none yet."""
    stored = [found["offset"] for found in handing.pipeline.connector().offsets()]
    return bool(stored) and all(offset.get("lsn_commit") and not offset.get("snapshot") for offset in stored)


def native_records(handing: Handing) -> list[object]:
    return [value for _, value in handing.pipeline.records("public.a") if value and "commit_lsn" in str(value)]


@pytest.mark.slow
def test_from_native_to_debezium_stores_stay_true_throughout(
    handing: Handing, pipeline: Pipeline, database: str, redis_url: str, spawn: Spawn, tmp_path: Path
) -> None:
    handing.settings = pipeline.toml(
        tmp_path,
        sinks__cache={"kind": "redis", "url": redis_url},
        spark={"master": "local[1]", "checkpoint": str(tmp_path / "checkpoints"), "http_address": ""},
    )
    handing.good("init", **NATIVE)
    handing.good("snapshot", **NATIVE)
    capture = handing.capture()
    # The sinks are started once, before anything is handed over, and go on through it.
    sink = spawn("cdc", "--config", handing.settings, "sink", "cache", env=NATIVE)
    name = pipeline.settings().name
    wait_until(lambda: len(cached(redis_url, name, "public.a")) > 30, SINK_S, lambda: sink.stderr)
    with restless(database):
        wait_until(lambda: len(native_records(handing)) > 200, 30, "the native capture writes")
        assert capture.terminate() == 0, capture.stderr
        handing.hand_over("debezium")
        count = len(pipeline.records("public.a"))
        wait_until(lambda: len(pipeline.records("public.a")) > count + 100, 60, "Debezium writes")
    wanted = source_rows(pipeline)

    def shown() -> bool:
        assert sink.process.poll() is None, sink.stderr
        return {row["id"]: row for row in cached(redis_url, name, "public.a").values()} == wanted

    wait_until(shown, SINK_S, lambda: sink.stderr)
    handing.true_store()
    assert sink.terminate() == 0
    code, said = handing.cdc("dead", "list")
    assert code == 0, said
    assert "public.a" not in said


@pytest.mark.slow
def test_keys_written_differently_are_refused_before_the_stop(
    handing: Handing, pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.run("create table odd (k numeric primary key)", "insert into odd values ('NaN')")
    pipeline.document["source"]["tables"] += ["public.odd"]
    handing.settings = pipeline.toml(tmp_path)
    handing.good("connect", "deploy")
    wait_until(lambda: shown_lsn(pipeline.connector().offsets()), 90, "an offset of a finished snapshot is stored")
    code, said = handing.cdc("connect", "handover", "--to", "native")
    assert code == Exit.CONFIG, said
    assert "(D4)" in said
    assert pipeline.connector().status().runs


@pytest.mark.slow
def test_an_identity_index_is_refused(handing: Handing, pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.run(
        "create table odd (id int primary key, u int not null)",
        "create unique index odd_u on odd (u)",
        "alter table odd replica identity using index odd_u",
    )
    pipeline.document["source"]["tables"] += ["public.odd"]
    handing.settings = pipeline.toml(tmp_path)
    handing.good("init", **NATIVE)
    handing.good("snapshot", **NATIVE)
    code, said = handing.cdc("connect", "handover", "--to", "debezium")
    assert code == Exit.CONFIG, said
    assert "(D9)" in said


@pytest.mark.parametrize(("to", "exit_code"), [("native", Exit.CONFIG), ("debezium", Exit.TOPIC)])
def test_what_is_not_there_cannot_be_handed_over(handing: Handing, to: str, exit_code: Exit) -> None:
    code, said = handing.cdc("connect", "handover", "--to", to)
    assert code == exit_code, said
    assert "hint: cdc " in said
