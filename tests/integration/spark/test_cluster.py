"""A standalone cluster: executors that have our packages from the zip alone write to the store themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.jvm.java import java_home
from cdc.process.errors import Exit
from cdc.settings.model import Settings
from sinks.contract.port import OpenSink
from tests.conftest import OTHER_STORE
from tests.integration.spark.handmade import HandMadeLog
from tests.programs import Spawn
from tests.standalone_cluster import LIGHT_JVM, START_S, Cluster, bare_cluster, bare_python_in
from tests.waiting import wait_until

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]
Opened = Callable[[Settings, str], OpenSink]


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """See :func:`tests.standalone_cluster.bare_python_in`."""
    return bare_python_in(tmp_path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests here: each runs an application of its own on it."""
    with bare_cluster(tmp_path_factory.mktemp("cluster")) as made:
        for _ in range(2):
            made.add_worker()
        yield made


@pytest.fixture
def store(other_store: Path, tmp_path: Path) -> dict[str, Any]:
    """A section of another package, which executors get in the archive as well as ours."""
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
        "conf": {
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.cores.max": "2",
            # Else the executor that is there first may do all of it.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        },
    }
    config = tmp_path / "cdc.toml"
    config.write_text(pipeline.toml(sinks, **spark), encoding="utf-8")
    before = cluster.executor_logs()
    environment = {"PYSPARK_PYTHON": os.fspath(bare_python), "PYTHONPATH": os.fspath(OTHER_STORE), **LIGHT_JVM}
    program = spawn("python", "-m", "cdc", "--config", config, "sink", "--until-caught-up", env=environment)
    assert program.wait(START_S) == Exit.OK, program.stderr
    shown = opened(pipeline.settings(sinks), "cache")
    pipeline.assert_shown(shown)
    watermark = shown.watermarks.read()
    assert watermark is not None and watermark.lsn == lsn
    own = cluster.executor_logs() - before
    ran = [log for log in own if "Finished task" in log.read_text(encoding="utf-8")]
    assert len(ran) == 2, "both executors had a part in it"


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
        environment = {"PYSPARK_PYTHON": os.fspath(bare_python), **LIGHT_JVM}
        waiting = spawn(*arguments, env=environment)
        wait_until(lambda: "no_executors" in waiting.stderr, START_S, lambda: waiting.stderr[-3000:])
        assert waiting.terminate() == Exit.OK, waiting.stderr[-3000:]

        program = spawn(*arguments, "--until-caught-up", env=environment)
        wait_until(lambda: "no_executors" in program.stderr, START_S, lambda: program.stderr[-3000:])
        grown.add_worker()
        assert program.wait(START_S) == Exit.OK, program.stderr[-3000:]
        assert "executors_here" in program.stderr


def spark_of(cluster: Cluster, tmp_path: Path, **conf: str) -> dict[str, Any]:
    return {
        "master": cluster.url,
        "checkpoint": str(tmp_path / "checkpoints"),
        "driver_batch_rows": 0,
        "conf": {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.cores.max": "2", **conf},
    }


def test_h104_dynamic_allocation_rests_at_no_executor(
    pipeline: HandMadeLog, spawn: Spawn, opened: Opened, redis_url: str, bare_python: Path, tmp_path: Path
) -> None:
    """A batch waits for one, in words, and a stop is heard meanwhile. Later ones bring an executor each time."""
    dynamic = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "3s",
        "spark.executor.cores": "1",
    }
    sinks = {"cache": {"kind": "redis", "url": redis_url}}
    with bare_cluster(tmp_path) as grown:
        pipeline.put({"id": n, "status": "new", "total": "1.00"} for n in range(3000))
        pipeline.progress()
        config = tmp_path / "cdc.toml"
        config.write_text(pipeline.toml(sinks, **spark_of(grown, tmp_path, **dynamic)), encoding="utf-8")
        arguments = ("python", "-m", "cdc", "--config", config, "sink")
        environment = {"PYSPARK_PYTHON": os.fspath(bare_python), **LIGHT_JVM}
        waiting = spawn(*arguments, env=environment)
        wait_until(lambda: "no_executors" in waiting.stderr, START_S, lambda: waiting.stderr[-3000:])
        assert waiting.terminate() == Exit.OK, waiting.stderr[-3000:]

        grown.add_worker()
        program = spawn(*arguments, env=environment)
        store = opened(pipeline.settings(sinks), "cache")
        wait_until(lambda: len(pipeline.shown(store)) == 3000, START_S, lambda: program.stderr[-3000:])
        wait_until(lambda: grown.executors() == [], START_S, lambda: program.stderr[-3000:])
        pipeline.put({"id": n} for n in range(1000))
        pipeline.progress()
        wait_until(lambda: len(pipeline.shown(store)) == 2000, START_S, lambda: program.stderr[-3000:])
        pipeline.assert_shown(store)
        wait_until(lambda: grown.executors() == [], START_S, lambda: program.stderr[-3000:])
        assert program.terminate() == Exit.OK, program.stderr[-3000:]


SLOTS = """
import sys
from pathlib import Path
from cdc.process.clock import SYSTEM_CLOCK
from cdc.jvm.java import java_home
from spark.session.executor_fitness import slots_of
from spark.session.spark_session import SessionSpec, start_session
session = start_session(SessionSpec(
    name="slots", master=sys.argv[1], driver_memory="512m", log_folder=Path(sys.argv[2]), java_home=java_home(),
    conf={"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"},
))
while True:
    print(slots_of(session), flush=True)
    SYSTEM_CLOCK.sleep(0.2)
"""


def test_h104_a_batch_has_as_many_tasks_as_run_now(spawn: Spawn, tmp_path: Path) -> None:
    """Spark itself says two where there is less."""
    with bare_cluster(tmp_path) as changing:
        for _ in range(3):
            changing.add_worker()
        program = spawn("python", "-c", SLOTS, changing.url, tmp_path / "logs", env=LIGHT_JVM)

        def slots() -> str:
            return (program.stdout.split() or ["0"])[-1]

        wait_until(lambda: slots() == "3", START_S, lambda: program.stderr)
        changing.kill_worker()
        wait_until(lambda: slots() == "2", START_S, lambda: program.stdout[-50:])
        changing.add_worker()
        wait_until(lambda: slots() == "3", START_S, lambda: program.stdout[-50:])


OTHER_PYTHON = """
import runpy, sys
class Version(tuple):
    major, minor, micro = 3, 99, 0
sys.version_info = Version((3, 99, 0, "final", 0))
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("kind", ["module", "python"])
def test_h360_executors_that_are_not_fit_are_named(
    pipeline: HandMadeLog, cluster: Cluster, spawn: Spawn, redis_url: str, bare_python: Path, tmp_path: Path, kind: str
) -> None:
    """Before the first batch: there is none here."""
    pipeline.progress()
    config = tmp_path / "cdc.toml"
    sinks = {"cache": {"kind": "redis", "url": redis_url}}
    config.write_text(pipeline.toml(sinks, **spark_of(cluster, tmp_path)), encoding="utf-8")
    unfit = tmp_path / "unfit"
    if kind == "module":
        (tmp_path / "blocked").mkdir()
        (tmp_path / "blocked" / "confluent_kafka.py").write_text("raise ImportError", encoding="utf-8")
        unfit.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}/blocked:$PYTHONPATH" exec {bare_python} "$@"\n')
        said = "lacks the module confluent_kafka"
    else:
        (tmp_path / "other.py").write_text(OTHER_PYTHON, encoding="utf-8")
        unfit.write_text(f'#!/bin/sh\nexec {bare_python} {tmp_path}/other.py "$@"\n')
        said = "have Python 3.99"
    unfit.chmod(0o755)
    program = spawn(
        "python", "-m", "cdc", "--config", config, "sink", env={"PYSPARK_PYTHON": os.fspath(unfit), **LIGHT_JVM}
    )
    assert program.wait(START_S) == Exit.CONFIG, program.stderr[-3000:]
    assert said in program.stderr and "hint: " in program.stderr and "Traceback" not in program.stderr


ARCHIVED = re.compile(r"<!-- archive -->\n```sh\n(.*?)```\n```toml\n(.*?)```", re.DOTALL)


def test_h423_executors_get_their_libraries_from_an_archive(
    pipeline: HandMadeLog, cluster: Cluster, spawn: Spawn, redis_url: str, opened: Opened, tmp_path: Path
) -> None:
    """The manual's commands. The machines of the executors have a Python of the right version and nothing else."""
    bare = tmp_path / "bin" / f"python3.{sys.version_info.minor}"
    bare.parent.mkdir()
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    assert subprocess.run([bare, "-c", "import pyarrow"], capture_output=True, check=False).returncode != 0
    found = ARCHIVED.search((ROOT / "spark" / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    conf = tomllib.loads(found[2])["spark"]["conf"] | {"spark.executorEnv.PATH": f"{bare.parent}:/usr/bin:/bin"}
    pipeline.put({"id": n, "status": "new", "total": "1.00"} for n in range(3000))
    lsn = pipeline.progress()
    sinks = {"cache": {"kind": "redis", "url": redis_url}}
    config = tmp_path / "cdc.toml"
    config.write_text(pipeline.toml(sinks, **spark_of(cluster, tmp_path, **conf)), encoding="utf-8")
    before = cluster.executor_logs()
    line = f"cd {tmp_path}; {found[1]}python -m cdc --config cdc.toml sink --until-caught-up"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    program = spawn("sh", "-e", "-c", line, env={"PATH": path, **LIGHT_JVM})
    assert program.wait(START_S) == Exit.OK, program.stderr[-3000:]
    store = opened(pipeline.settings(sinks), "cache")
    pipeline.assert_shown(store)
    watermark = store.watermarks.read()
    assert watermark is not None and watermark.lsn == lsn
    assert [log for log in cluster.executor_logs() - before if "Finished task" in log.read_text(encoding="utf-8")]
    assert "executor_differs" not in program.stderr


FRAME = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark_headrace import register
from spark.session.package_zip import build_zip
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
    program = spawn("python", "-c", FRAME, *arguments, env={**own, **LIGHT_JVM})
    assert program.wait(START_S) == Exit.OK, program.stderr
    assert "lacks the module" in program.stdout
    assert "install headrace[spark] on every executor" in program.stdout
    assert "rows 300" in program.stdout
