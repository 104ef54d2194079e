"""``cdc stack`` as its user sees it: up, status, down; data kept or wiped; refusals in one sentence."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from pathlib import Path

import psycopg
import pytest
import redis

from cdc.settings.model import load
from cdc.stack.local import LocalStack
from tests.integration.stack.processes import left_over
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until


@pytest.mark.slow
def test_up_status_down_and_wipe(run_cdc: RunCdc, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    up = run_cdc("stack", "up", "--dir", folder, "--free-ports", "--only", "postgres,redis")
    try:
        assert up.returncode == 0, up.stderr
        assert up.stdout == ""
        shown = run_cdc("stack", "status", "--json", "--dir", folder)
        assert shown.returncode == 0
        connections = json.loads(shown.stdout)
        assert set(connections) == {"postgres", "redis", "warehouse"}
        with psycopg.connect(connections["postgres"]["dsn"], autocommit=True) as connection:
            assert connection.execute("show password_encryption").fetchone() == ("scram-sha-256",)
            assert connection.execute("select 1 from pg_database where datname = 'shop'").fetchone() == (1,)
        with redis.Redis.from_url(connections["redis"]["url"]) as client:
            client.set("kept", "yes")
        settings = load(folder / "cdc.toml", environment={})
        assert settings.sinks["cache"].model_dump()["url"] == connections["redis"]["url"]
        for secret in ("cdc.toml", "pgpass"):
            assert stat.S_IMODE((folder / secret).stat().st_mode) == 0o600
        assert "kafka" not in run_cdc("stack", "status", "--dir", folder).stdout
    finally:
        down = run_cdc("stack", "down", "--dir", folder)
    assert (down.returncode, down.stdout) == (0, "")
    assert left_over(folder) == []

    again = run_cdc("stack", "up", "--dir", folder, "--free-ports", "--only", "redis")
    try:
        assert again.returncode == 0, again.stderr
        with redis.Redis.from_url(connections["redis"]["url"]) as client:
            assert client.get("kept") == b"yes"
    finally:
        run_cdc("stack", "down", "--dir", folder, "--wipe")
    assert not folder.exists()


@pytest.mark.slow
def test_the_password_is_in_no_argv_and_no_log(run_cdc: RunCdc, tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    up = run_cdc("stack", "up", "--dir", folder, "--free-ports", "--only", "postgres")
    try:
        assert up.returncode == 0, up.stderr
        password = (folder / "pgpass").read_text(encoding="utf-8").strip().rsplit(":", 1)[1]
        assert len(password) == 32
        argvs = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
        assert not [argv for argv in argvs if password.encode() in argv]
        holders = [p for p in folder.rglob("*") if p.is_file() and password.encode() in p.read_bytes()]
        assert holders == [folder / "pgpass"]
    finally:
        run_cdc("stack", "down", "--dir", folder, "--wipe")


def test_a_taken_port_is_one_sentence_and_a_hint(run_cdc: RunCdc, tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        folder = tmp_path / "stack"
        local = LocalStack(folder)
        local.start(("redis",))
        local.wait()
        ports = local.status()["ports"] | {"redis": port}
        local.stop()
        plan = json.loads((folder / "plan.json").read_text(encoding="utf-8")) | {"ports": ports}
        (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        refused = run_cdc("stack", "up", "--dir", folder, "--free-ports", "--only", "redis,postgres")
    assert refused.returncode == 78
    assert refused.stderr.splitlines() == [
        f"error: port {port} for redis is taken by another program",
        "hint: stop that program, or let cdc stack up --free-ports choose",
    ]
    assert left_over(folder) == []


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("up", "--only", "postgers"), 64, 'the stack has no part "postgers"'),
        (("status",), 69, "no stack runs in"),
    ],
)
def test_refusals(run_cdc: RunCdc, tmp_path: Path, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    refused = run_cdc("stack", *arguments, "--dir", tmp_path / "nothing")
    assert refused.returncode == code
    assert refused.stderr.startswith(f"error: {sentence}")
    assert refused.stderr.splitlines()[1].startswith("hint: ")
    assert not (tmp_path / "nothing").exists()


def test_down_without_a_stack_is_no_error(run_cdc: RunCdc, tmp_path: Path) -> None:
    assert run_cdc("stack", "down", "--dir", tmp_path / "nothing").returncode == 0


def test_interrupted_while_starting_leaves_nothing(spawn: Spawn, tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    program = spawn("cdc", "stack", "up", "--dir", folder, "--free-ports", "--only", "redis,opensearch")
    try:
        # The supervisor has begun, and a search server takes seconds.
        wait_until((folder / "status.json").exists, 60, lambda: program.stderr)
        assert left_over(folder)
        program.process.send_signal(signal.SIGINT)
        assert program.wait() == 130
        assert "Traceback" not in program.stderr
        wait_until(lambda: left_over(folder) == [], 15)
    finally:
        LocalStack(folder).stop()


@pytest.mark.slow
def test_a_server_that_ends_by_itself_is_shown(run_cdc: RunCdc, tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    local = LocalStack(folder)
    local.start(("redis",))
    try:
        local.wait()
        os.kill(local.pid_of("redis"), signal.SIGKILL)
        wait_until(lambda: local.status()["parts"]["redis"]["state"] == "failed")
        shown = run_cdc("stack", "status", "--dir", folder)
        assert shown.returncode == 1
        assert "failed" in shown.stdout
        assert "redis ended by itself with exit code -9" in shown.stderr
        assert local.ensure("redis")["redis"]["url"]
    finally:
        local.wipe()
