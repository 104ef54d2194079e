"""No secret shows: every command with canary passwords at full verbosity, every output and every process searched."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis as redis_client

from tests.conftest import Spawn
from tests.integration.cli.pipeline import Pipeline
from tests.integration.cli.test_refusals import act_as
from tests.waiting import wait_until

BEFORE_CAPTURE = ("config lint", "check", "init", "snapshot")
BESIDE_CAPTURE = (
    "sink --until-caught-up",
    "status",
    "status --json",
    "verify --timeout 5",
    "wait cache 0/1 --timeout 1",
    "events --from-beginning --until-caught-up",
    "dead list",
)
AFTER_CAPTURE = ("check", "drop --yes --topics")


class Processes:
    """Command lines of all processes, sampled all the time."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._stopped = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    self.seen.add(path.read_bytes())


@pytest.fixture(scope="session")
def nursery() -> None:
    """Here each command is started from cold: with its own command line, which others may see."""


@pytest.fixture
def canary(role: str, pipeline: Pipeline, redis_url: str, opensearch: str) -> Iterator[str]:
    """The password of everything that the pipeline logs in to; it stands in the environment alone."""
    word = f"canary{secrets.token_hex(8)}"
    act_as(pipeline, role, "alter role {role} replication superuser password '" + word + "'")
    parts = urlsplit(redis_url)
    with redis_client.Redis.from_url(redis_url) as admin:
        admin.acl_setuser(role, enabled=True, passwords=[f"+{word}"], keys=["*"], channels=["*"], categories=["+@all"])
        pipeline.document["log"]["client_secrets"] = {"sasl.password": "env:SECRET"}
        pipeline.document["sinks"] = {
            "cache": {
                "kind": "redis",
                "url": f"redis://{role}@{parts.netloc}{parts.path}",
                "password": "env:SECRET",
                "prefix": role,
            },
            "search": {
                "kind": "opensearch",
                "url": opensearch,
                "user": "cdc",
                "password": "env:SECRET",
                "prefix": role,
            },
        }
        yield word
        admin.acl_deluser(role)
    pipeline.document["source"]["password"] = "env:SECRET"


def test_no_command_shows_a_secret(canary: str, pipeline: Pipeline, spawn: Spawn, tmp_path: Path) -> None:
    processes = Processes()
    said: dict[str, str] = {}

    def run(commands: Sequence[str]) -> None:
        for command in commands:
            done = pipeline.cdc("-vv", *command.split(), timeout_s=240, SECRET=canary)
            said[command] = done.stdout + done.stderr
            assert "Traceback" not in said[command], said[command]

    with processes.watched():
        run(BEFORE_CAPTURE)
        capture = spawn("cdc", "--config", pipeline.config, "-vv", "run", env={"SECRET": canary})
        wait_until(lambda: "streaming" in capture.stderr, 60, describe=lambda: capture.stderr)
        run(BESIDE_CAPTURE)
        assert capture.terminate() == 0, capture.stderr
        run(AFTER_CAPTURE)
    said["run"] = capture.stdout + capture.stderr
    assert {command for command, words in said.items() if canary in words} == set()
    assert [line for line in processes.seen if canary.encode() in line] == []
    assert any(b"spark" in line for line in processes.seen)
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()]
    assert kept == []


@pytest.mark.parametrize("command", ["check", "init", "run", "status", "verify", "wait cache 0/1", "events"])
def test_no_refusal_shows_a_secret(canary: str, pipeline: Pipeline, no_server: str, command: str) -> None:
    right = pipeline.document["log"]["bootstrap_servers"]
    for password, broker in ((f"wrong{canary}", right), (canary, f"127.0.0.1:{no_server}")):
        pipeline.document["log"]["bootstrap_servers"] = broker
        done = pipeline.cdc("-vv", *command.split(), SECRET=password)
        assert done.returncode != 0
        assert canary not in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
