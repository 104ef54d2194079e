"""``cdc up``: the whole pipeline in one command, its consent, its ends and its deaths."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest

from cdc.process.errors import Exit
from cdc.read import Cache
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import Spawn, Spawned
from tests.waiting import wait_until

START_S = 240.0


@pytest.fixture
def cached(pipeline: Pipeline, redis_url: str, topic_prefix: str) -> Pipeline:
    """With a cache. Nothing is made."""
    pipeline.document["sinks"] = {"cache": {"kind": "redis", "url": redis_url, "prefix": topic_prefix}}
    pipeline.document["spark"]["http_address"] = ""
    return pipeline


@pytest.fixture
def cache(cached: Pipeline, redis_url: str, topic_prefix: str) -> Iterator[Cache]:
    with Cache(redis_url, topic_prefix) as opened:
        yield opened


def _up(pipeline: Pipeline, spawn: Spawn, *options: str) -> Spawned:
    return spawn("cdc", "--config", pipeline.config, "up", "--logs", pipeline.folder / "logs", *options)


def _pids(pipeline: Pipeline) -> dict[int, list[str]]:
    """The processes of this pipeline: those that were given its settings file, and what they were asked for."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if str(pipeline.folder / "cdc.toml") in words:
            found[int(folder.name)] = words
    return found


def _slots(pipeline: Pipeline) -> int:
    with psycopg.connect(pipeline.dsn) as connection:
        asked = "select count(*) from pg_replication_slots where database = current_database()"
        [[count]] = connection.execute(asked).fetchall()
    return int(count)


def _shows(cache: Cache, status: str) -> bool:
    row = cache.get("public.orders", 42)
    return row is not None and row["status"] == status


def _text(url: str) -> str:
    with urlopen(url) as answer:
        found: str = answer.read().decode()
        return found


@pytest.mark.slow
@pytest.mark.long
def test_h254_a_store_of_a_view_alone_comes_up_with_it(pipeline: Pipeline, spawn: Spawn) -> None:
    """Stores are started first, to be filled while rows are read. The view has no topic before its runner."""
    (pipeline.folder / "slim.sql").write_text("select id, status from orders", encoding="utf-8")
    pipeline.document["views"] = {"slim": {"sql": str(pipeline.folder / "slim.sql")}}
    files = {"kind": "delta", "path": str(pipeline.folder / "files"), "tables": ["view.slim"]}
    pipeline.document["sinks"] = {"files": files}
    pipeline.document["spark"]["http_address"] = ""
    running = _up(pipeline, spawn, "--yes")
    compared = partial(pipeline.cdc, "verify", "files", "view.slim")
    wait_until(lambda: compared().returncode == 0, START_S, lambda: running.stderr[-2000:])
    assert running.process.poll() is None, running.stderr[-2000:]


@pytest.mark.slow
def test_a_slot_is_made_with_consent_alone(pipeline: Pipeline) -> None:
    refused = pipeline.cdc("up")
    assert_refused(refused, Exit.USAGE, "keeps WAL", "--yes")
    assert not _slots(pipeline)
    assert "publication" not in refused.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_slot_s_name_has_to_be_typed(pipeline: Pipeline) -> None:
    """At a terminal the question is asked, and another word is no consent."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cdc", "--config", str(pipeline.config), "up"]
    with subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=theirs, cwd=pipeline.folder) as process:
        os.close(theirs)
        os.write(ours, b"yes\n")
        said = b"".join(iter(partial(_read, ours), b"")).decode()
        assert process.wait(60) == Exit.USAGE, said
    os.close(ours)
    assert "Type the slot's name to go on" in said
    assert "that is not the slot's name: nothing was made" in said
    assert not _slots(pipeline)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""  # Linux says so that nobody is at the other end


@pytest.mark.slow
def test_a_step_that_fails_gives_its_own_words_and_code(cached: Pipeline, no_server: str) -> None:
    cached.document["log"]["bootstrap_servers"] = f"127.0.0.1:{no_server}"
    failed = cached.cdc("up", "--yes")
    assert failed.returncode == Exit.UNAVAILABLE, failed.stdout + failed.stderr
    assert failed.stderr.count("error: ") <= 1, failed.stderr
    assert "cdc check ended with exit code 69: everything ends" in failed.stderr
    assert not _slots(cached)


@pytest.mark.slow
def test_a_pipeline_lives_and_ends_in_one_command(cached: Pipeline, cache: Cache, spawn: Spawn) -> None:
    """Filled, followed, ended in order by one signal; gone on with; ended by a part; ended by its own death."""
    first = _up(cached, spawn, "--yes", "--http", "127.0.0.1:0")
    wait_until(lambda: _shows(cache, "open"), START_S, lambda: first.stderr[-3000:])
    page = first.stderr.partition("the page is at ")[2].split("\n", 1)[0]
    wait_until(lambda: '/sinks/cache/state" class="good">consistent</data>' in _text(page), 60, lambda: _text(page))
    cached.sql("update orders set status = 'paid'")
    wait_until(lambda: _shows(cache, "paid"), 60, lambda: first.stderr[-3000:])
    beside = cached.cdc("up", "--logs", str(cached.folder / "beside"), timeout_s=START_S)
    assert_refused(beside, Exit.ACTIVE, "is read by another cdc run")
    assert not (cached.folder / "beside" / "sink.log").exists(), "nothing was started"
    cached.sql("update orders set status = 'packed'")
    wait_until(lambda: _shows(cache, "packed"), 60, lambda: first.stderr[-3000:])
    assert first.terminate(90) == 0, first.stderr
    assert not _pids(cached)
    assert _slots(cached) == 1

    cached.sql("update orders set status = 'sent'")
    second = _up(cached, spawn)
    wait_until(lambda: _shows(cache, "sent"), START_S, lambda: second.stderr[-3000:])
    [sink] = [pid for pid, words in _pids(cached).items() if words[-2:] == ["sink", ""] and "-I" not in words]
    os.kill(sink, signal.SIGKILL)
    assert second.wait(90) == Exit.UNAVAILABLE, second.stderr
    assert "cdc sink was ended by SIGKILL" in second.stderr
    assert "Traceback" not in second.stderr
    assert not _pids(cached)

    third = _up(cached, spawn)
    wait_until(lambda: len(_pids(cached)) >= 2, START_S, lambda: third.stderr[-3000:])
    third.kill()
    wait_until(lambda: not _pids(cached), 30)
