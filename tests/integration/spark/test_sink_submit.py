"""The manual's line that submits the sinks, from the wheel, on a Python that has none of our packages by itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from cdc.errors import Exit
from cdc.jvm.jars import class_path
from cdc.jvm.java import java_home
from cdc.settings import Settings
from sinks.port import OpenSink
from spark.stop import STOP_FILE
from tests.integration.spark.handmade import HandMadeLog
from tests.integration.spark.test_frames_submit import bare_python, installed
from tests.programs import Spawn
from tests.standalone_cluster import LIGHT_JVM, START_S, Cluster, bare_cluster
from tests.waiting import wait_until

__all__ = ["installed"]
pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
_LINE = re.compile(r"<!-- submit -->\n```sh\n(.*?)```", re.DOTALL)
Opened = Callable[[Settings, str], OpenSink]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with bare_cluster(tmp_path) as made:
        made.add_worker()
        yield made


@pytest.mark.parametrize("where", ["local[2]", "cluster"])
def test_the_manuals_line_submits_the_sinks(
    pipeline: HandMadeLog,
    installed: Path,
    spawn: Spawn,
    opened: Opened,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    where: str,
) -> None:
    """The settings say nothing of a cluster: the submitter's master counts, and the zip goes along."""
    pipeline.put({"id": n, "status": "a", "total": "1.00"} for n in range(500))
    pipeline.progress()
    folder = tmp_path / "own"
    (folder / "bin").mkdir(parents=True)
    sinks = {"cache": {"kind": "redis", "url": request.getfixturevalue("redis_url")}}
    spark = {"checkpoint": str(folder / "checkpoints"), "driver_batch_rows": 0}
    (folder / "cdc.toml").write_text(pipeline.toml(sinks, **spark), encoding="utf-8")
    bare_python(folder / "bin" / "python", installed)
    found = _LINE.search((ROOT / "spark" / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    line = found[1]
    if where == "cluster":
        url = request.getfixturevalue("cluster").url
        line = line.replace("'local[2]'", f"{url} --conf spark.executor.memory=512m")
    environment = {
        "PATH": f"{folder / 'bin'}:{Path(pyspark.__file__).parent / 'bin'}:{os.environ['PATH']}",
        "JAVA_HOME": os.fspath(java_home()),
        "SPARK_HOME": os.fspath(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "XDG_CACHE_HOME": os.fspath(class_path("spark-kafka").parents[2]),
        "PYSPARK_DRIVER_PYTHON": os.fspath(folder / "bin" / "python"),
        "PYSPARK_PYTHON": os.fspath(bare_python(folder / "bin" / "executor")),
        **LIGHT_JVM,
    }
    program = spawn("sh", "-e", "-c", f"cd {folder}; {line}", env=environment)
    store = opened(pipeline.settings(sinks), "cache")
    wait_until(lambda: len(pipeline.shown(store)) == 500, START_S, lambda: program.stderr[-3000:])
    (folder / "checkpoints" / STOP_FILE).touch()
    assert program.wait(60) == Exit.OK, program.stderr[-3000:]
