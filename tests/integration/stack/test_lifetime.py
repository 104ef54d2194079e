"""Servers end with their supervisor, and the supervisor with its starter, however these end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psycopg
import pytest

from cdc.process.errors import ConfigError
from cdc.stack.local import LocalStack
from cdc.stack.supervised_server import StackError
from tests.integration.stack.processes import left_over
from tests.programs import Spawn
from tests.waiting import wait_until

_STARTER = """
import sys
from pathlib import Path
from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import ConfigError
from cdc.stack.local import LocalStack
stack = LocalStack(Path(sys.argv[1]))
stack.start(sys.argv[2].split(","))
stack.wait()
print("ready", flush=True)
SYSTEM_CLOCK.sleep(600)
"""
_PARTS = "postgres,kafka,redis"
"""One with a JVM, which takes five CPU-s to start."""


def servers(folder: Path) -> list[str]:
    """What runs there beside the starter."""
    return [argv for argv in left_over(folder) if "LocalStack" not in argv]


@pytest.mark.parametrize(("victim", "parts"), [("starter", "postgres,redis"), ("supervisor", _PARTS)])
@pytest.mark.slow
def test_nothing_outlives_a_killed_owner(spawn: Spawn, tmp_path: Path, victim: str, parts: str) -> None:
    folder = tmp_path / "stack"
    starter = spawn("python", "-c", _STARTER, folder, parts)
    wait_until(lambda: "ready" in starter.stdout, 120, lambda: starter.stderr)
    stack = LocalStack(folder)
    assert len(servers(folder)) > len(parts.split(",")), "the supervisor and its servers"
    with psycopg.connect(stack.connections()["postgres"]["dsn"], autocommit=True) as session:
        assert session.execute("select 1").fetchone() == (1,)
        os.kill(starter.process.pid if victim == "starter" else stack.status()["pid"], signal.SIGKILL)
        wait_until(lambda: servers(folder) == [], 20, lambda: left_over(folder))
    assert not stack.running()


@pytest.mark.slow
def test_a_starter_killed_while_servers_start_leaves_nothing(spawn: Spawn, tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    starter = spawn("python", "-c", _STARTER, folder, _PARTS)
    wait_until(lambda: any("kafka" in argv for argv in servers(folder)), 60)
    starter.kill()
    wait_until(lambda: left_over(folder) == [], 20, lambda: left_over(folder))


@pytest.mark.slow
def test_a_detached_stack_outlives_its_starter(spawn: Spawn, tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    detached = _STARTER.replace('print("ready"', 'stack.detach(); print("ready"')
    starter = spawn("python", "-c", detached, folder, "redis")
    wait_until(lambda: "ready" in starter.stdout, 30, lambda: starter.stderr)
    starter.kill()
    stack = LocalStack(folder)
    assert stack.ensure("redis")["redis"]["url"].startswith("redis://")
    stack.wipe()
    assert left_over(folder) == []


@pytest.mark.slow
def test_a_killed_part_comes_back_with_its_data(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path / "stack")
    stack.start(("postgres",))
    try:
        dsn = stack.wait()["postgres"]["dsn"]
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create table kept as select 42 as n")
        stack.stop_part("postgres", kill=True)
        with pytest.raises(StackError, match="postgres is not running"):
            stack.pid_of("postgres")
        assert stack.ensure("postgres")["postgres"]["dsn"] == dsn
        with psycopg.connect(dsn) as connection:
            assert connection.execute("select n from kept").fetchone() == (42,)
    finally:
        stack.wipe()
    assert left_over(stack.folder) == []


def test_one_folder_has_one_owner(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path / "stack")
    stack.start(("redis",))
    try:
        stack.wait()
        with pytest.raises(ConfigError, match=r"runs in .* already"):
            LocalStack(stack.folder).start(("redis",))
    finally:
        stack.wipe()
