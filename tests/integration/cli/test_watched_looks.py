"""The watched status on real servers: beside a first snapshot, and with a source that hangs."""

from __future__ import annotations

import os
import re
import signal
from urllib.request import urlopen

import orjson
import psycopg
import pytest

from tests.integration.cli.pipeline import Pipeline
from tests.integration.cli.test_up import START_S, _up, cached  # noqa: F401
from tests.programs import Spawn, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def _address(running: Spawned) -> str:
    wait_until(lambda: "the page is at " in running.stderr, START_S, lambda: running.stderr[-2000:])
    return running.stderr.partition("the page is at ")[2].split("\n", 1)[0]


def _verdict(url: str) -> str:
    with urlopen(url) as answer:
        found = re.search(r'class="verdict[^>]*>([^<]*)<', answer.read().decode())
    assert found is not None
    return found[1]


def test_the_page_is_true_while_rows_are_read(cached: Pipeline, spawn: Spawn) -> None:  # noqa: F811
    """A first snapshot may take hours. A locked table stands for it."""
    cached.good("init")
    with psycopg.connect(cached.dsn) as holder:
        holder.execute("lock table orders in access exclusive mode")
        running = _up(cached, spawn, "--yes", "--http", "127.0.0.1:0")
        wait_until(lambda: "sink runs" in running.stderr, START_S, lambda: running.stderr[-2000:])
        url = _address(running)
        wait_until(lambda: "looking" not in _verdict(url), 60, lambda: _verdict(url))
        with urlopen(url + "status") as answer:
            seen = orjson.loads(answer.read())
        assert seen["source"]["wal_lsn"], seen
        assert set(seen["sinks"]) == {"cache"}


def test_h272_a_source_that_hangs_hides_no_other(cached: Pipeline, spawn: Spawn) -> None:  # noqa: F811
    """Its session is stopped between two looks, as by a disk that does not answer."""
    cached.good("init")
    watch = ("status", "--watch", "--every", "1", "--json", "--http", "127.0.0.1:0")
    running = spawn("cdc", "--config", cached.config, *watch)
    wait_until(lambda: running.stdout.count("\n") >= 2, 60, lambda: running.stderr)
    url = _address(running)
    with psycopg.connect(cached.dsn, autocommit=True) as admin:
        asked = (
            "select pid from pg_stat_activity where application_name = 'cdc status' and datname = current_database()"
        )
        [[pid]] = admin.execute(asked).fetchall()
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: _verdict(url) == "not known: source", 60, lambda: _verdict(url))
        silent = running.stdout.count("\n")
        wait_until(lambda: running.stdout.count("\n") > silent + 3, 20, lambda: running.stderr)
        last = orjson.loads(running.stdout.splitlines()[-1])
        assert last["unknown"] == {"source": "Postgres has not answered in 15 s"}
        assert last["sinks"]["cache"]["state"] == "empty"
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: "source" not in _verdict(url), 60, lambda: _verdict(url))
