"""A standalone cluster: executors that have our packages from the zip alone write to the store themselves."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest

from cdc.errors import Exit
from cdc.jvm.java import java_home
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


@pytest.fixture
def cluster(spawn: Spawn, tmp_path: Path) -> str:
    """The URL of a master with two workers of one core each; their folders are ``work-1`` and ``work-2``."""
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {"JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    port = free_ports(["kafka"])["kafka"]
    where: list[str | Path] = ["--host", "127.0.0.1", "--webui-port", "0"]
    master = spawn(spark_class, f"{_DEPLOY}.master.Master", *where, "--port", str(port), env=environment)
    url = f"spark://127.0.0.1:{port}"
    for number in (1, 2):
        own: list[str | Path] = ["--cores", "1", "--memory", "1g", "--work-dir", tmp_path / f"work-{number}", url]
        worker = spawn(spark_class, f"{_DEPLOY}.worker.Worker", *where, *own, env=environment)
        wait_until(partial(_registered, worker), START_S, lambda: master.stderr)
    return url


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
    cluster: str,
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
        "master": cluster,
        "checkpoint": str(tmp_path / "checkpoints"),
        "driver_batch_rows": 0,
        "conf": {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.cores.max": "2"},
    }
    config = tmp_path / "cdc.toml"
    config.write_text(pipeline.toml(sinks, **spark), encoding="utf-8")
    environment = {"PYSPARK_PYTHON": os.fspath(bare_python), "PYTHONPATH": os.fspath(OTHER_STORE)}
    program = spawn("python", "-m", "cdc", "--config", config, "sink", "--until-caught-up", env=environment)
    assert program.wait(START_S) == Exit.OK, program.stderr
    shown = opened(pipeline.settings(sinks), "cache")
    pipeline.assert_shown(shown)
    watermark = shown.watermarks.read()
    assert watermark is not None and watermark.lsn == lsn
    ran = [log for log in tmp_path.glob("work-*/app-*/*/stderr") if "Finished task" in log.read_text(encoding="utf-8")]
    assert len(ran) == 2, "both executors had a part in it"
