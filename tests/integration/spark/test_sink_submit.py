"""The manual's line that submits the sinks, from the wheel, on a Python that has none of our packages by itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyspark
import pytest

from cdc.jvm.jars import class_path
from cdc.jvm.java import java_home
from cdc.process.errors import Exit
from cdc.settings.model import Settings
from sinks.contract.port import OpenSink
from spark.session.stop import STOP_FILE
from tests.integration.spark.handmade import HandMadeLog
from tests.integration.spark.test_frames_submit import bare_python, installed
from tests.programs import Spawn, Spawned
from tests.standalone_cluster import LIGHT_JVM, START_S, Cluster, bare_cluster
from tests.waiting import wait_until

__all__ = ["installed"]
pytestmark = [pytest.mark.slow, pytest.mark.long]
ROOT = Path(__file__).parents[3]
_LINE = re.compile(r"<!-- submit -->\n```sh\n(.*?)```", re.DOTALL)
Opened = Callable[[Settings, str], OpenSink]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with bare_cluster(tmp_path) as made:
        made.add_worker()
        yield made


class Submission:
    """A folder with settings and with Pythons that have none of our packages by themselves, in which the manual's line
    is typed."""

    def __init__(self, pipeline: HandMadeLog, installed: Path, spawn: Spawn, folder: Path) -> None:
        (folder / "bin").mkdir(parents=True)
        bare_python(folder / "bin" / "python", installed)
        self._pipeline, self._spawn, self.folder = pipeline, spawn, folder

    def configure(self, sinks: Mapping[str, Mapping[str, Any]]) -> None:
        spark = {"checkpoint": str(self.folder / "checkpoints"), "driver_batch_rows": 0}
        (self.folder / "cdc.toml").write_text(self._pipeline.toml(sinks, **spark), encoding="utf-8")

    def begin(self, line: str) -> Spawned:
        environment = {
            "PATH": f"{self.folder / 'bin'}:{Path(pyspark.__file__).parent / 'bin'}:{os.environ['PATH']}",
            "JAVA_HOME": os.fspath(java_home()),
            "SPARK_HOME": os.fspath(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "XDG_CACHE_HOME": os.fspath(class_path("spark-kafka").parents[2]),
            "PYSPARK_DRIVER_PYTHON": os.fspath(self.folder / "bin" / "python"),
            "PYSPARK_PYTHON": os.fspath(bare_python(self.folder / "bin" / "executor")),
            **LIGHT_JVM,
        }
        return self._spawn("sh", "-e", "-c", f"cd {self.folder}; {line}", env=environment)

    def end(self, program: Spawned) -> None:
        (self.folder / "checkpoints" / STOP_FILE).touch()
        assert program.wait(60) == Exit.OK, program.stderr[-3000:]


@pytest.fixture
def submission(pipeline: HandMadeLog, installed: Path, spawn: Spawn, tmp_path: Path) -> Submission:
    return Submission(pipeline, installed, spawn, tmp_path / "own")


@pytest.fixture
def line() -> str:
    found = _LINE.search((ROOT / "spark" / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def test_the_manuals_line_submits_the_sinks(
    pipeline: HandMadeLog,
    submission: Submission,
    line: str,
    opened: Opened,
    redis_url: str,
    cluster: Cluster,
) -> None:
    """The settings say nothing of a cluster: the submitter's master counts, and the zip goes along."""
    pipeline.put({"id": n, "status": "a", "total": "1.00"} for n in range(500))
    pipeline.progress()
    sinks = {"cache": {"kind": "redis", "url": redis_url}}
    submission.configure(sinks)
    program = submission.begin(line.replace("'local[2]'", f"{cluster.url} --conf spark.executor.memory=512m"))
    store = opened(pipeline.settings(sinks), "cache")
    wait_until(lambda: len(pipeline.shown(store)) == 500, START_S, lambda: program.stderr[-3000:])
    submission.end(program)


def _shows(pipeline: HandMadeLog, store: OpenSink) -> bool:
    return pipeline.shown(store) == pipeline.rows["orders"]


def test_h458_the_manuals_line_brings_what_a_warehouse_needs(
    pipeline: HandMadeLog, submission: Submission, line: str, opened: Opened, warehouse: Path
) -> None:
    """Delta tables that Spark merges. An extension that the submitter has of his own stays beside the sink's."""
    sinks = {"lake": {"kind": "delta", "path": str(warehouse), "engine": "spark"}}
    submission.configure(sinks)
    own = "--conf spark.sql.extensions=org.apache.spark.sql.ExtensionOfNobody"
    program = submission.begin(line.replace("'local[2]'", f"'local[2]' {own}"))
    store = opened(pipeline.settings(sinks), "lake")
    for status in ("first", "second"):
        pipeline.put({"id": n, "status": status, "total": "1.00"} for n in range(20))
        pipeline.progress()
        whole = partial(_shows, pipeline, store)
        wait_until(whole, START_S, lambda: (program.stdout + program.stderr)[-3000:])
    submission.end(program)
    [table] = {path.parent for path in warehouse.rglob("_delta_log") if path.parent.name != "_watermark"}
    assert "MERGE" in {one["operation"] for one in deltalake.DeltaTable(str(table)).history()}
