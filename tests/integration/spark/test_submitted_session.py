"""The session of a driver that spark-submit started: the submitter's settings go first, and its jars are looked at."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
import pytest

from cdc.jvm.java import java_home
from cdc.process.errors import Exit
from tests.programs import Spawn, Spawned
from tests.standalone_cluster import LIGHT_JVM, START_S

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]

PROGRAM = """
import sys
from pathlib import Path
from cdc.cli.terminal import report
from cdc.process.errors import CdcError
from rich.console import Console
from spark.session.spark_session import SessionSpec, start_session

conf = {"spark.sql.extensions": "of.Ours"}
needs = dict.fromkeys(sys.argv[2:], "a:b:1")
spec = SessionSpec(
    name="x", master="local[1]", driver_memory="512m", log_folder=Path(sys.argv[1]), conf=conf, needs=needs
)
try:
    session = start_session(spec)
except CdcError as refused:
    sys.exit(report(refused, Console(stderr=True, soft_wrap=True)))
for name in ("spark.locality.wait", "spark.sql.adaptive.enabled", "spark.sql.extensions", "spark.master"):
    print("found", name, session.sparkContext.getConf().get(name))
"""


def submitted(spawn: Spawn, folder: Path, *needs: str) -> Spawned:
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    given = {"spark.locality.wait": "7s", "spark.sql.extensions": "of.Theirs"}
    return spawn(
        Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local[2]",
        *(word for name, value in given.items() for word in ("--conf", f"{name}={value}")),
        program, str(folder / "logs"), *needs,
        env={
            "JAVA_HOME": str(java_home()),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **LIGHT_JVM,
        },
    )  # fmt: skip


def test_the_submitters_settings_go_before_ours(spawn: Spawn, tmp_path: Path) -> None:
    program = submitted(spawn, tmp_path, "org.apache.spark.SparkContext")
    assert program.wait(START_S) == Exit.OK, program.stderr[-3000:]
    found = dict(line.split()[1:] for line in program.stdout.splitlines() if line.startswith("found "))
    assert found == {
        "spark.locality.wait": "7s",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.extensions": "of.Theirs,of.Ours",
        "spark.master": "local[2]",
    }


def test_h458_a_class_that_no_jar_brought_ends_it(spawn: Spawn, tmp_path: Path) -> None:
    program = submitted(spawn, tmp_path, "org.apache.spark.SparkContext", "no.such.Class")
    assert program.wait(START_S) == Exit.CONFIG, program.stderr[-3000:]
    # Spark joins the two streams of a Python program.
    assert "error: spark-submit was not given the jars that these sinks need: a:b:1\n" in program.stdout
