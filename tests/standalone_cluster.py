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
from cdc.stack.local import free_ports
from tests.integration.spark.family import below, named
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
    masters: list[Spawned] = field(default_factory=list)
    recovers: bool = False
    """Whether a master that is started again knows what the one before it knew."""

    @property
    def port(self) -> str:
        """The master's."""
        return self.url.rpartition(":")[2]

    def start(self, name: str, role: str, *arguments: str) -> Spawned:
        """A part of it. It ends with the cluster."""
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        own = {"JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
        if self.recovers:
            kept = self.folder / "recovery"
            mode = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={kept}"
            own["SPARK_DAEMON_JAVA_OPTS"] = mode
        argv = [str(spark_class), f"{_DEPLOY}.{role}", "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        program = Spawned.cold(
            argv, self.folder / f"{name}.out", self.folder / f"{name}.err", {**os.environ, **own, **LIGHT_JVM}
        )
        self.at_end.callback(program.kill)
        return program

    def start_master(self) -> None:
        """Returns when it takes applications."""
        name = f"master-{len(self.masters) + 1}"
        master = self.start(name, "master.Master", "--port", self.port)
        self.masters.append(master)
        wait_until(partial(_alive, master), START_S, lambda: master.stderr)

    def kill_master(self) -> None:
        """It ends at once. Workers and applications go on, and look for it."""
        self.masters[-1].kill()

    def kill_worker(self, place: int = -1) -> None:
        """A worker, unless told otherwise the last one that was started, ends at once, and its executors with it."""
        self.started.pop(place).kill()

    def executors(self) -> list[int]:
        """The processes that workers have started."""
        return [one.pid for worker in self.started for one in below(worker.process.pid) if named(one.pid) == "java"]

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
def bare_cluster(folder: Path, *, recovers: bool = False) -> Iterator[Cluster]:
    """A master without workers. ``recovers``: with its notes in files."""
    port = free_ports(["kafka"])["kafka"]
    with ExitStack() as at_end:
        cluster = Cluster(f"spark://127.0.0.1:{port}", folder, at_end, recovers=recovers)
        cluster.start_master()
        yield cluster


def _alive(master: Spawned) -> bool:
    return "New state: ALIVE" in master.stderr or "Recovery complete" in master.stderr


def _registered(worker: Spawned) -> bool:
    return "Successfully registered with master" in worker.stderr
