"""The processes of ``compose/pipeline.yaml`` as programs of this machine: a snapshot and changes by a Spark cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.jvm.java import LIGHT
from cdc.stack.local import free_ports
from tests.docs.test_composed_files import COMPOSE, SERVICES
from tests.programs import Spawned
from tests.settings_file import write_settings
from tests.waiting import wait_until

START_S = 240.0
ROWS = 30_000
"""More than a batch that the driver applies by itself: executors have a part in it."""


@pytest.fixture
def port() -> int:
    """Spark's master listens there."""
    return free_ports(["master"])["master"]


@pytest.fixture
def settings(
    database: str, kafka: str, topic_prefix: str, redis_url: str, opensearch: str, port: int, tmp_path: Path
) -> dict[str, Any]:
    """Those of the file. Only the addresses and folders are this machine's."""
    document = tomllib.loads((COMPOSE / "pipeline.toml").read_text(encoding="utf-8"))
    own = free_ports(["capture", "sink"])
    document["name"] = topic_prefix
    document["source"] = {"dsn": database, "tables": document["source"]["tables"]}
    document["log"]["bootstrap_servers"] = kafka
    document["capture"]["http_address"] = f"127.0.0.1:{own['capture']}"
    document["sinks"]["cache"]["url"] = redis_url
    document["sinks"]["search"]["url"] = opensearch
    document["sinks"]["warehouse"]["path"] = str(tmp_path / "warehouse")
    spark = document["spark"]
    spark["master"] = spark["master"].replace("spark-master:7077", f"127.0.0.1:{port}")
    spark |= {"checkpoint": str(tmp_path / "checkpoints"), "http_address": f"127.0.0.1:{own['sink']}"}
    spark["conf"] |= {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
    return document


class Processes:
    """The services, started one by one by the words of the file."""

    def __init__(self, folder: Path, config: Path, master_port: int, at_end: ExitStack) -> None:
        self._folder = folder
        self._config = config
        self._master = f"127.0.0.1:{master_port}"
        self._at_end = at_end

    def start(self, name: str) -> Spawned:
        service = SERVICES[name]
        words = [
            self._here(word)
            for word in [*service.get("entrypoint", [sys.executable, "-m", "cdc"]), *service["command"]]
        ]
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"PATH": programs, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": " ".join(LIGHT)}
        program = Spawned.cold(words, self._folder / f"{name}.out", self._folder / f"{name}.err", {**os.environ, **own})
        self._at_end.callback(program.kill)
        return program

    def finish(self, name: str) -> None:
        program = self.start(name)
        assert program.wait(START_S) == 0, program.stderr

    def _here(self, word: str) -> str:
        host, port = self._master.split(":")
        placed = word.replace("spark-master:7077", self._master).replace("/etc/headrace/cdc.toml", str(self._config))
        placed = placed.replace("--host spark-master --port 7077", f"--host {host} --port {port}")
        placed = re.sub(r"--webui-port \d+", "--webui-port 0", placed).replace("/tmp/work", str(self._folder / "work"))
        # Compose's way to write one dollar sign.
        return placed.replace("$$", "$").replace(" worker.Worker", " worker.Worker --webui-port 0")


@pytest.fixture
def processes(settings: dict[str, Any], port: int, tmp_path: Path) -> Iterator[Processes]:
    with ExitStack() as at_end:
        yield Processes(tmp_path, write_settings(tmp_path, settings), port, at_end)


def healthy(name: str, address: str) -> bool:
    """What the container's health check says of the process that answers at an address."""
    _, _, *words = SERVICES[name]["healthcheck"]["test"]
    words = [re.sub(r"127\.0\.0\.1:\d+", address, word) for word in words]
    return subprocess.run([sys.executable, *words], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.long
def test_the_pipeline_of_the_containers_ends_in_equal_stores(
    processes: Processes, settings: dict[str, Any], database: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table orders (id int primary key, status text)")
        connection.execute(f"insert into orders select n, 'open' from generate_series(1, {ROWS}) n")
    processes.finish("init")
    master = processes.start("spark-master")
    wait_until(lambda: "New state: ALIVE" in master.stderr, START_S, lambda: master.stderr)
    worker = processes.start("spark-worker")
    wait_until(lambda: "Successfully registered" in worker.stderr, START_S, lambda: worker.stderr)
    processes.finish("snapshot")
    capture, sink = processes.start("capture"), processes.start("sink")
    wait_until(lambda: '"streaming"' in capture.stderr, START_S, lambda: capture.stderr)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update orders set status = 'paid' where id <= 100; delete from orders where id > 29900")
    shown = Spawned.cold(
        [sys.executable, "-m", "cdc", "--config", str(tmp_path / "cdc.toml"), "verify", "--timeout", "300"],
        tmp_path / "verify.out", tmp_path / "verify.err", os.environ,
    )  # fmt: skip
    assert shown.wait(START_S) == 0, shown.stderr + sink.stderr[-3000:]
    assert len(re.findall(r"^public\.orders +(?:cache|search|warehouse) +29,900 +29,900 ", shown.stdout, re.M)) == 3
    ran = [log for log in (tmp_path / "work").glob("app-*/*/stderr") if "Finished task" in log.read_text()]
    assert ran, "an executor had a part in it"
    for name, address in (
        ("capture", settings["capture"]["http_address"]),
        ("sink", settings["spark"]["http_address"]),
    ):
        assert healthy(name, address)
    assert not healthy("sink", "127.0.0.1:1")
    for program in (sink, capture):
        assert program.terminate(90) == 0, program.stderr[-3000:]
