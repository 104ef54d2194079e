"""``cdc sink`` as a process: how it ends, and what is left when it is killed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import Exit
from cdc.settings.model import Settings
from sinks.contract.port import OpenSink
from tests.conftest import Stack
from tests.faults.proxy import Fault, Proxy
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.family import Process, below, named
from tests.integration.spark.handmade import HandMadeLog
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

Opened = Callable[[Settings, str], OpenSink]
START_S = 240.0


class Job:
    """A pipeline with a cache, its settings in a file."""

    def __init__(self, pipeline: HandMadeLog, redis_url: str, folder: Path) -> None:
        self.pipeline = pipeline
        self.folder = folder
        self._sinks = {"cache": {"kind": "redis", "url": redis_url}}
        self._checkpoint = str(folder / "checkpoints")
        self.config = self.write()
        self.settings = pipeline.settings(self._sinks, checkpoint=self._checkpoint)

    def write(self, **spark: Any) -> Path:
        path = self.folder / "cdc.toml"
        path.write_text(self.pipeline.toml(self._sinks, checkpoint=self._checkpoint, **spark), encoding="utf-8")
        return path


@pytest.fixture
def job(pipeline: HandMadeLog, redis_url: str, tmp_path: Path) -> Job:
    return Job(pipeline, redis_url, tmp_path)


def rows(first: int, last: int, status: str = "new") -> list[dict[str, Any]]:
    return [{"id": n, "status": status, "total": "1.00"} for n in range(first, last)]


def events(program: Spawned) -> list[str]:
    """The names of the events that a program logged; anything on stderr that is no log line is an error."""
    return [orjson.loads(line)["event"] for line in program.stderr.splitlines()]


def assert_gone(family: list[Process]) -> None:
    """No JVM and no Python worker outlives its driver."""
    assert family, "there were some"
    wait_until(lambda: not any(process.runs() for process in family), 60)


@pytest.mark.slow
def test_a_stop_within_a_backlog_is_clean_the_next_run_goes_on(
    job: Job, spawn: Spawn, sinks: Sinks, opened: Opened
) -> None:
    job.write(max_offsets_per_trigger=500, driver_batch_rows=200)
    job.pipeline.put(rows(0, 20_000))
    program = spawn("cdc", "--config", job.config, "sink")
    store = opened(job.settings, "cache")
    wait_until(lambda: job.pipeline.shown(store), START_S, lambda: program.stderr)
    family = below(program.process.pid)
    assert program.terminate(60) == Exit.OK, program.stderr
    # A filling store also says how far it is, each ten seconds, wherever that falls.
    said = [event for event in events(program) if event != "store_filling"]
    assert set(said[-2:]) == {"stopping", "batch_applied"}, "the batch in hand is finished"
    assert program.stdout == ""
    assert 0 < len(job.pipeline.shown(store)) < 20_000
    assert_gone(family)
    sinks.catch_up(job.settings)
    job.pipeline.assert_shown(store)


@pytest.mark.slow
def test_h1_a_sigkill_leaves_no_process_and_nothing_wrong(job: Job, spawn: Spawn, sinks: Sinks, opened: Opened) -> None:
    job.write(max_offsets_per_trigger=300)
    job.pipeline.put(rows(0, 5000))
    program = spawn("cdc", "--config", job.config, "sink")
    store = opened(job.settings, "cache")
    wait_until(lambda: job.pipeline.shown(store), START_S, lambda: program.stderr)
    family = below(program.process.pid)
    program.kill()
    assert_gone(family)
    sinks.catch_up(job.settings)
    job.pipeline.assert_shown(store)


@pytest.mark.slow
def test_refusals_are_a_sentence_before_spark_starts(job: Job, run_cdc: RunCdc, tmp_path: Path) -> None:
    unknown = run_cdc("--config", job.config, "sink", "cahce")
    assert unknown.returncode == Exit.USAGE
    assert unknown.stderr == "error: there is no sink cahce\nhint: did you mean cache?\n"
    text = job.config.read_text(encoding="utf-8")
    nowhere = tmp_path / "nowhere.toml"
    nowhere.write_text(re.sub(r"redis://127.0.0.1:\d+", "redis://127.0.0.1:1", text), encoding="utf-8")
    away = run_cdc("--config", nowhere, "sink")
    assert away.returncode == Exit.UNAVAILABLE
    assert "error: " in away.stderr and "hint: " in away.stderr and "Traceback" not in away.stderr
    no_kafka = tmp_path / "nokafka.toml"
    no_kafka.write_text(text.replace(job.pipeline.bootstrap_servers, "127.0.0.1:1"), encoding="utf-8")
    silent = run_cdc("--config", no_kafka, "sink")
    assert silent.returncode == Exit.UNAVAILABLE
    assert "cannot reach Kafka at 127.0.0.1:1" in silent.stderr


def jvm_of(program: Spawned) -> int:
    [java] = [one.pid for one in below(program.process.pid) if named(one.pid) == "java"]
    return java


def workers_of(java: int) -> list[int]:
    """Spark's Python processes."""
    return [one.pid for one in below(java) if named(one.pid) != "java"]


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
@pytest.mark.slow
def test_h103_without_its_jvm_the_application_ends(
    job: Job, spawn: Spawn, sinks: Sinks, opened: Opened, number: int
) -> None:
    job.pipeline.put(rows(0, 50))
    program = spawn("cdc", "--config", job.config, "sink")
    store = opened(job.settings, "cache")
    wait_until(lambda: len(job.pipeline.shown(store)) == 50, START_S, lambda: program.stderr)
    java = jvm_of(program)
    os.kill(java, number)
    if number == signal.SIGKILL:
        assert program.wait(60) == Exit.UNAVAILABLE, program.stderr
        assert "Spark's JVM was killed by signal 9" in program.stderr
        assert "hint: start it again" in program.stderr
        at = program.stderr.find("Traceback")
        assert at < 0, program.stderr[max(0, at - 300) :][:3000]
    else:
        # It answers nothing: the end has a limit all the same.
        program.process.terminate()
        program.wait(120)
        assert "end_takes_too_long" in events(program) and "Traceback" not in program.stderr
    job.pipeline.put(rows(50, 60))
    sinks.catch_up(job.settings)
    job.pipeline.assert_shown(store)


@pytest.mark.slow
@pytest.mark.long
def test_h103_a_python_worker_killed_is_started_again(job: Job, spawn: Spawn, opened: Opened) -> None:
    job.write(driver_batch_rows=0, max_offsets_per_trigger=500)
    job.pipeline.put(rows(0, 20_000))
    program = spawn("cdc", "--config", job.config, "sink", "--until-caught-up")
    store = opened(job.settings, "cache")
    wait_until(lambda: job.pipeline.shown(store), START_S, lambda: program.stderr)
    for _ in range(3):
        workers = wait_until(partial(workers_of, jvm_of(program)), 60)
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert program.wait(START_S) == Exit.OK, program.stderr
    job.pipeline.assert_shown(store)


@pytest.mark.slow
def test_h115_sigterm_is_heard_while_a_server_is_silent(
    pipeline: HandMadeLog, spawn: Spawn, stack: Stack, redis_url: str, tmp_path: Path
) -> None:
    own = {"store": {"kind": "redis", "url": redis_url, "prefix": pipeline.name}}
    config = tmp_path / "cdc.toml"
    config.write_text(pipeline.toml(own, checkpoint=str(tmp_path / "checkpoints")), encoding="utf-8")
    pipeline.put(rows(0, 50))
    program = spawn("cdc", "--config", config, "sink")
    wait_until(lambda: "batch_applied" in program.stderr, START_S, lambda: program.stderr)
    with stack.paused("redis"):
        stopped_while_silent(pipeline, program)


@pytest.mark.slow
@pytest.mark.long
def test_h115_sigterm_is_heard_at_a_black_hole(
    pipeline: HandMadeLog, spawn: Spawn, redis_url: str, tmp_path: Path
) -> None:
    """A firewall that forgot the connection, and lets no new one through: nobody answers, and nobody says so."""
    with Proxy(urlsplit(redis_url).port or 0) as hole:
        url = urlsplit(redis_url)._replace(netloc=f"127.0.0.1:{hole.port}").geturl()
        own = {"kind": "redis", "url": url, "prefix": pipeline.name}
        config = tmp_path / "cdc.toml"
        config.write_text(pipeline.toml({"store": own}, checkpoint=str(tmp_path / "checkpoints")), encoding="utf-8")
        pipeline.put(rows(0, 50))
        program = spawn("cdc", "--config", config, "sink")
        wait_until(lambda: "batch_applied" in program.stderr, START_S, lambda: program.stderr)
        hole.set(Fault(stall=True))
        hole.half_open()
        stopped_while_silent(pipeline, program)


def stopped_while_silent(pipeline: HandMadeLog, program: Spawned) -> None:
    pipeline.put(rows(50, 100))
    # At rest the store is asked every 2 s: by then a call goes on.
    silent_s = SYSTEM_CLOCK.monotonic()
    wait_until(lambda: SYSTEM_CLOCK.monotonic() > silent_s + 4)
    program.process.terminate()
    assert program.wait(90) == Exit.OK, program.stderr
    assert "Traceback" not in program.stderr
