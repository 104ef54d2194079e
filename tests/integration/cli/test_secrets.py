"""No secret shows: every command with canary passwords at full verbosity, every output and every process searched."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from cdc.cli.app import COMMANDS, _command
from cdc.cli.app import run as run_here
from cdc.process.errors import Exit
from cdc.settings.model import Settings, load
from cdc.stack.local import free_ports
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from tests.integration.cli.pipeline import Pipeline
from tests.programs import Spawn
from tests.settings_file import write_settings
from tests.waiting import wait_until

BEFORE_CAPTURE = ("config lint", "check", "up", "init", "snapshot")
BESIDE_CAPTURE = (
    "status",
    "status --json",
    "diff",
    "verify --timeout 5",
    "wait cache 0/1 --timeout 1",
    "events --from-beginning --until-caught-up",
    "dead list",
)
IN_THIS_PROCESS = (
    "config new --dsn host=127.0.0.1",
    "config example",
    "config schema",
    "config lint",
    "snapshot public.orders --where id=42",
    "dead show cache nonsense",
    "dead retry --timeout 1",
    "dead drop --key 1 --timeout 1",
    "rebuild cache --rollback",
    "forget orders 1",
    "connect status",
    "view check",
    "view import nowhere.json",
    "view run --until-caught-up",
    "view list",
    "view show orders 1",
    "view rebuild orders",
    "view drop orders --yes",
    "stream check",
    "stream run --until-caught-up",
    "stream list",
    "stream verify traffic",
    "stream rebuild traffic",
    "stream drop traffic --yes",
)
"""Quick ones: their outputs are searched, and what they start is nothing."""
AFTER_CAPTURE = ("check", "drop --yes --topics")
OF_CONNECT = (
    "config", "validate", "deploy", "status", "restart", "resume", "stop", "signal execute-snapshot",
    "resnapshot --yes", "delete --yes", "handover",
)  # fmt: skip
WITHOUT_SETTINGS = ("stack up", "stack status", "stack down", "stack fetch", "demo")
"""They read no settings, and so no secret."""
_LOOK_S = 0.02
_YOUNG_LOOKS, _OLD_LOOKS = 100, 25
"""Each of its first two seconds' looks, then every half second."""


class Processes:
    """Command lines and environments of all processes, sampled all the time.

    A young process is looked at every 20 ms: it may live no longer, and a fork becomes its program by another line.
    An old one is looked at twice a second: there are hundreds of those, most of them other tests' servers.
    """

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self.environments: set[bytes] = set()
        self._stopped = threading.Event()
        self._looks = dict.fromkeys(_running(), _YOUNG_LOOKS)

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
        while not self._stopped.wait(_LOOK_S):
            self._looks = {pid: self._looks.get(pid, 0) + 1 for pid in _running()}
            for pid, looks in self._looks.items():
                if looks <= _YOUNG_LOOKS or (looks + pid) % _OLD_LOOKS == 0:
                    with suppress(OSError):
                        self.seen.add(Path(f"/proc/{pid}/cmdline").read_bytes())
                        self.environments.add(Path(f"/proc/{pid}/environ").read_bytes())


def _running() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


@pytest.fixture(scope="session")
def fork_server() -> None:
    """Here each command is started from cold: with its own command line, which others may see."""


def every_command() -> set[str]:
    """Each command, as it is typed."""
    found = set()
    for entry in COMMANDS:
        made = _command(entry)
        below = getattr(made, "commands", None)
        found |= {f"{entry.name} {name}" for name in below} if below else {entry.name}
    return found


def test_h112_no_command_is_left_out() -> None:
    searched = {*BEFORE_CAPTURE, *BESIDE_CAPTURE, *AFTER_CAPTURE, *IN_THIS_PROCESS, *WITHOUT_SETTINGS, "run", "sink"}
    searched |= {f"connect {one}" for one in OF_CONNECT}
    commands = every_command()
    named = {command for command in commands for typed in searched if f"{typed} ".startswith(f"{command} ")}
    assert commands == named


def in_files(document: dict[str, Any], place: Path) -> dict[str, Any]:
    """The settings with each secret in a file instead of the environment."""
    text = json.dumps(document).replace("env:SECRET", f"file:{place}")
    found: dict[str, Any] = json.loads(text)
    return found


def pages(address: str) -> str:
    """All that Spark's pages show, and what they are made of."""
    interface = f"{address}/api/v1/applications"
    (application,) = requests.get(interface, timeout=30).json()
    own = f"{interface}/{application['id']}"
    paths = ["/environment/", "/jobs/", "/stages/", "/executors/", "/SQL/", "/StreamingQuery/"]
    places = [*(address + path for path in paths), *(own + path for path in ("/environment", "/sql", "/jobs"))]
    answers = [requests.get(place, timeout=30) for place in places]
    assert all(answer.ok for answer in answers)
    return "".join(answer.text for answer in answers)


def records(settings: Settings) -> bytes:
    """Everything in every topic of the pipeline."""
    admin = TopicAdmin(settings.log)
    topics = admin.describe([topic for topic in admin.names() if topic.startswith(settings.name)])
    found = [
        b"".join([message.key() or b"", message.value() or b"", str(message.headers()).encode()])
        for topic, facts in topics.items()
        for partition in range(facts.partitions)
        for message in read_range(settings.log, topic, partition)
    ]
    assert len(found) > 5
    return b"".join(found)


@pytest.mark.slow
def test_h112_no_command_shows_a_secret(
    canary: str,
    pipeline: Pipeline,
    spawn: Spawn,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    secret = tmp_path_factory.mktemp("secret") / "password"
    secret.write_text(canary, encoding="utf-8")
    secret.chmod(0o600)
    pipeline.document = in_files(pipeline.document, secret)
    address = f"127.0.0.1:{free_ports()['kafka']}"
    pipeline.document["spark"] |= {
        "http_address": "",
        "conf": {"spark.ui.enabled": "true", "spark.ui.port": address.rpartition(":")[2]},
    }
    processes = Processes()
    said: dict[str, str] = {}

    def run(commands: Sequence[str]) -> None:
        for command in commands:
            done = pipeline.cdc("-vv", *command.split(), timeout_s=240)
            said[command] = done.stdout + done.stderr
            assert "Traceback" not in said[command], said[command]

    with processes.watched():
        run(BEFORE_CAPTURE)
        capture = spawn("cdc", "--config", pipeline.config, "-vv", "run")
        sink = spawn("cdc", "--config", pipeline.config, "-vv", "sink")
        wait_until(lambda: "streaming" in capture.stderr, 60, describe=lambda: capture.stderr)
        wait_until(lambda: "sink_started" in sink.stderr, 120, describe=lambda: sink.stderr)
        run(BESIDE_CAPTURE)
        for command in IN_THIS_PROCESS:
            code = run_here(["--config", str(pipeline.config), "-vv", *command.split()])
            out, err = capsys.readouterr()
            said[command] = out + err
            assert code != Exit.BUG, said[command]
        said["Spark's pages"] = pages(f"http://{address}")
        assert canary.encode() not in records(load(pipeline.config))
        assert sink.terminate() == 0, sink.stderr
        assert capture.terminate() == 0, capture.stderr
        run(AFTER_CAPTURE)
    said["run"] = capture.stdout + capture.stderr
    said["sink"] = sink.stdout + sink.stderr
    assert {command for command, words in said.items() if canary in words} == set()
    assert [line for line in processes.seen if canary.encode() in line] == []
    assert any(b"spark" in line for line in processes.seen)
    assert [variables for variables in processes.environments if canary.encode() in variables] == []
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()]
    assert kept == []


@pytest.mark.parametrize("command", OF_CONNECT)
@pytest.mark.slow
def test_h112_no_command_of_connect_shows_a_secret(
    tmp_path: Path, no_server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    word = f"canary{secrets.token_hex(8)}"
    monkeypatch.setenv("SECRET", word)
    document = {
        "name": "shop",
        "source": {
            "kind": "debezium", "dsn": f"host=127.0.0.1 port={no_server} user=cdc dbname=shop",
            "tables": ["public.orders"], "password": "env:SECRET",
        },
        "log": {
            "bootstrap_servers": f"127.0.0.1:{no_server}", "client": {"security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN", "sasl.username": "cdc"}, "client_secrets": {"sasl.password": "env:SECRET"},
        },
        "debezium": {
            "url": f"http://127.0.0.1:{no_server}", "user": "cdc", "password": "env:SECRET",
            "database_password": "${file:/secrets/db.properties:password}",
        },
    }  # fmt: skip
    path = write_settings(tmp_path, document)
    code = run_here(["--config", str(path), "-vv", "connect", *command.split()])
    out, err = capsys.readouterr()
    assert code != Exit.BUG, err
    assert word not in out + err
    assert "Traceback" not in out + err
