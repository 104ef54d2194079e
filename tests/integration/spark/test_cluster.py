"""A standalone cluster: executors that have our packages from the zip alone write to the store themselves."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest

from cdc.errors import Exit
from cdc.jvm.java import LIGHT, java_home
from cdc.settings import Settings
from cdc.stack.free_ports import free_ports
from sinks.port import OpenSink
from tests.conftest import OTHER_STORE
from tests.integration.spark.handmade import HandMadeLog
from tests.programs import Spawn, Spawned
from tests.waiting import wait_until

Opened = Callable[[Settings, str], OpenSink]
START_S = 240.0
_DEPLOY = "org.apache.spark.deploy"
_LIGHT = {"JAVA_TOOL_OPTIONS": " ".join(LIGHT)}
"""For all JVMs of a cluster, those that start others too: each lives for half a minute."""


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python that has the libraries but, unlike the tests' own, none of our packages."""
    script = tmp_path / "bare-python"
    libraries = sysconfig.get_paths()["purelib"]
    # Without `site` no .pth file is read, and with that no package installed from its source folder.
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)
    return script


@dataclass
class Cluster:
    """A master, and workers of one core each. Their folders are ``work-1``, ``work-2`` of ``folder``."""

    url: str
    folder: Path
    at_end: ExitStack
    workers: int = 0

    def start(self, name: str, role: str, *arguments: str) -> Spawned:
        """A part of it. It ends with the cluster."""
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        own = {"JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
        argv = [str(spark_class), f"{_DEPLOY}.{role}", "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        program = Spawned.cold(
            argv, self.folder / f"{name}.out", self.folder / f"{name}.err", {**os.environ, **own, **_LIGHT}
        )
        self.at_end.callback(program.kill)
        return program

    def add_worker(self) -> None:
        """One worker more. Returns when the master knows it."""
        self.workers += 1
        size = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"work-{self.workers}")]
        worker = self.start(f"worker-{self.workers}", "worker.Worker", *size, self.url)
        wait_until(partial(_registered, worker), START_S, lambda: worker.stderr)

    def executor_logs(self) -> set[Path]:
        """What executors wrote, of all applications so far."""
        return set(self.folder.glob("work-*/app-*/*/stderr"))


@contextmanager
def bare_cluster(folder: Path) -> Iterator[Cluster]:
    """A master without workers."""
    port = free_ports(["kafka"])["kafka"]
    with ExitStack() as at_end:
        cluster = Cluster(f"spark://127.0.0.1:{port}", folder, at_end)
        master = cluster.start("master", "master.Master", "--port", str(port))
        wait_until(lambda: "New state: ALIVE" in master.stderr, START_S, lambda: master.stderr)
        yield cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests here: each runs an application of its own on it."""
    with bare_cluster(tmp_path_factory.mktemp("cluster")) as made:
        for _ in range(2):
            made.add_worker()
        yield made


def _registered(worker: Spawned) -> bool:
    return "Successfully registered with master" in worker.stderr


@pytest.fixture(params=["redis", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A section of ours, and one of another package, which executors get in the archive as well."""
    if request.param == "redis":
        return {"kind": "redis", "url": request.getfixturevalue("redis_url")}
    request.getfixturevalue("other_store")
    return {"kind": "folder", "path": str(tmp_path / "store")}


def test_executors_of_a_cluster_write_to_the_store(
    pipeline: HandMadeLog,
    store: dict[str, Any],
    cluster: Cluster,
    bare_python: Path,
    spawn: Spawn,
    opened: Opened,
    tmp_path: Path,
) -> None:
    pipeline.put({"id": n, "status": "new", "total": "1.00"} for n in range(3000))
    pipeline.put({"id": n} for n in range(0, 3000, 7))
    lsn = pipeline.progress()
    sinks = {"cache": store}
    spark = {
        "master": cluster.url,
        "checkpoint": str(tmp_path / "checkpoints"),
        "driver_batch_rows": 0,
        "conf": {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.cores.max": "2"},
    }
    config = tmp_path / "cdc.toml"
    config.write_text(pipeline.toml(sinks, **spark), encoding="utf-8")
    before = cluster.executor_logs()
    environment = {"PYSPARK_PYTHON": os.fspath(bare_python), "PYTHONPATH": os.fspath(OTHER_STORE), **_LIGHT}
    program = spawn("python", "-m", "cdc", "--config", config, "sink", "--until-caught-up", env=environment)
    assert program.wait(START_S) == Exit.OK, program.stderr
    shown = opened(pipeline.settings(sinks), "cache")
    pipeline.assert_shown(shown)
    watermark = shown.watermarks.read()
    assert watermark is not None and watermark.lsn == lsn
    own = cluster.executor_logs() - before
    ran = [log for log in own if "Finished task" in log.read_text(encoding="utf-8")]
    assert len(ran) == 2, "both executors had a part in it"


@pytest.mark.slow
def test_h104_a_cluster_without_executors_says_so_and_grows(
    pipeline: HandMadeLog, spawn: Spawn, redis_url: str, bare_python: Path, tmp_path: Path
) -> None:
    """A stop is heard while a batch waits for one, and the next batch has as many tasks as there are executors then."""
    with bare_cluster(tmp_path) as grown:
        pipeline.put({"id": n, "status": "new", "total": "1.00"} for n in range(3000))
        pipeline.progress()
        spark = {
            "master": grown.url,
            "checkpoint": str(tmp_path / "checkpoints"),
            "driver_batch_rows": 0,
            "conf": {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"},
        }
        config = tmp_path / "cdc.toml"
        config.write_text(pipeline.toml({"cache": {"kind": "redis", "url": redis_url}}, **spark), encoding="utf-8")
        arguments = ("python", "-m", "cdc", "--config", config, "sink")
        environment = {"PYSPARK_PYTHON": os.fspath(bare_python), **_LIGHT}
        waiting = spawn(*arguments, env=environment)
        wait_until(lambda: "no_executors" in waiting.stderr, START_S, lambda: waiting.stderr[-3000:])
        assert waiting.terminate() == Exit.OK, waiting.stderr[-3000:]

        program = spawn(*arguments, "--until-caught-up", env=environment)
        wait_until(lambda: "no_executors" in program.stderr, START_S, lambda: program.stderr[-3000:])
        grown.add_worker()
        assert program.wait(START_S) == Exit.OK, program.stderr[-3000:]
        assert "executors_here" in program.stderr


FRAME = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark_headrace import register
from spark.package import build_zip
session = (
    SparkSession.builder.master(sys.argv[1])
    .config("spark.executor.memory", "512m").config("spark.cores.max", "2").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").getOrCreate()
)
reader = session.read.format("headrace").option("bootstrap_servers", sys.argv[2]).option("pipeline", sys.argv[3])
reader = reader.option("table", "public.orders").option("slots", "2")
try:
    reader.load().count()
except Exception as refused:
    print("refused", refused)
session.sparkContext.addPyFile(str(build_zip(Path(sys.argv[4]))))
register(session)
print("rows", reader.load().count())
session.stop()
"""


@pytest.mark.slow
def test_h170_executors_without_the_package_say_so(
    pipeline: HandMadeLog, cluster: Cluster, bare_python: Path, spawn: Spawn, tmp_path: Path
) -> None:
    pipeline.put({"id": n, "status": "new", "total": "1.00"} for n in range(300))
    either = tmp_path / "either"
    # The driver's machine has our packages. What an executor starts has none.
    text = f'#!/bin/sh\n[ -n "$SPARK_EXECUTOR_DIRS" ] && exec {bare_python} "$@"\nexec {sys.executable} "$@"\n'
    either.write_text(text, encoding="utf-8")
    either.chmod(0o755)
    arguments = (cluster.url, pipeline.bootstrap_servers, pipeline.name, str(tmp_path / "zip"))
    own = {"JAVA_HOME": os.fspath(java_home()), "PYSPARK_PYTHON": os.fspath(either), "SPARK_LOCAL_IP": "127.0.0.1"}
    program = spawn("python", "-c", FRAME, *arguments, env={**own, **_LIGHT})
    assert program.wait(START_S) == Exit.OK, program.stderr
    assert "lacks the module" in program.stdout
    assert "install headrace[spark] on every executor" in program.stdout
    assert "rows 300" in program.stdout
