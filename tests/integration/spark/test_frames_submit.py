"""The manual's line for spark-submit, from the wheel, on a Python that has none of our packages by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pyspark
import pytest

from cdc.jvm.java import java_home
from cdc.record.position import Lsn
from tests.integration.spark.handmade import HandMadeLog

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]
_LINE = re.compile(r"<!-- submit -->\n```sh\n(.*?)```", re.DOTALL)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The wheel, in a folder of its own."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    return tmp_path / "installed"


def bare_python(path: Path, *more: Path) -> Path:
    """A Python with the libraries and, of ours, no more than is named."""
    places = ":".join([*map(str, more), sysconfig.get_paths()["purelib"]])
    # Without `site` no .pth file is read, and with that no package installed from its source folder.
    path.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{places}" exec {sys.executable} -S "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_manuals_line_for_spark_submit_works(pipeline: HandMadeLog, installed: Path, tmp_path: Path) -> None:
    pipeline.put({"id": number, "status": "a", "total": "1"} for number in range(5))
    lsn = pipeline.progress()
    folder = tmp_path / "own"
    (folder / "bin").mkdir(parents=True)
    (folder / "cdc.toml").write_text(pipeline.toml({}), encoding="utf-8")
    bare_python(folder / "bin" / "python", installed)
    found = _LINE.search((ROOT / "spark" / "FRAMES.md").read_text(encoding="utf-8"))
    assert found is not None
    environment = {
        "PATH": f"{folder / 'bin'}:{Path(pyspark.__file__).parent / 'bin'}:{os.environ['PATH']}",
        "JAVA_HOME": os.fspath(java_home()),
        "SPARK_HOME": os.fspath(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": os.fspath(bare_python(folder / "bin" / "executor")),
        "LSN": str(Lsn(lsn)),
    }
    done = subprocess.run(
        ["sh", "-e", "-c", found[1]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith('{"id":')]
    assert len(rows) == 5, done.stdout
    assert zipfile.ZipFile(folder / "headrace.zip").namelist()
