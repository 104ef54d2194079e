"""A standalone cluster of Spark on this machine, and a Python for its executors that has none of our packages."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyspark

from cdc.jvm.java import LIGHT, java_home
from cdc.stack.free_ports import free_ports
from tests.programs import Spawned
from tests.waiting import wait_until

START_S = 240.0
_DEPLOY = "org.apache.spark.deploy"
LIGHT_JVM = {"JAVA_TOOL_OPTIONS": " ".join(LIGHT)}
"""For all JVMs of a cluster, those that start others too: each lives for half a minute."""


def bare_python_in(folder: Path) -> Path:
    """A Python that has the libraries but, unlike the tests' own, none of our packages."""
    script = folder / "bare-python"
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
    started: list[Spawned] = field(default_factory=list)

    def start(self, name: str, role: str, *arguments: str) -> Spawned:
        """A part of it. It ends with the cluster."""
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        own = {"JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
        argv = [str(spark_class), f"{_DEPLOY}.{role}", "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        program = Spawned.cold(
            argv, self.folder / f"{name}.out", self.folder / f"{name}.err", {**os.environ, **own, **LIGHT_JVM}
        )
        self.at_end.callback(program.kill)
        return program

    def kill_worker(self) -> None:
        """The last worker that was started ends at once, and its executors with it."""
        self.started.pop().kill()

    def add_worker(self) -> None:
        """One worker more. Returns when the master knows it."""
        self.workers += 1
        size = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"work-{self.workers}")]
        worker = self.start(f"worker-{self.workers}", "worker.Worker", *size, self.url)
        self.started.append(worker)
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


def _registered(worker: Spawned) -> bool:
    return "Successfully registered with master" in worker.stderr
