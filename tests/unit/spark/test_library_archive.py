"""The archive of libraries for executors that have none."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from cdc.process.errors import ConfigError, Exit
from sinks.contract.kinds import kinds_of_ours
from spark.session.executor_fitness import LIBRARIES
from spark.session.library_archive import ARCHIVE, build_archive, main, needed_by_tasks, with_requirements


def bare_python_on(folder: Path, name: str) -> str:
    """A search path with a Python of that name that has no package."""
    folder.mkdir()
    program = folder / name
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.parametrize("name", [f"python3.{sys.version_info.minor}", "python3"])
def test_h423_a_bare_python_has_the_libraries_of_the_archive(tmp_path: Path, name: str) -> None:
    """The one of this version goes first. Where there is none, any is started, and the application names it."""
    archive = build_archive(tmp_path, ["tenacity"])
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    argv = ["./unpacked/bin/python", "-c", "import tenacity, sys; print(tenacity.__file__, *sys.path)"]
    path = bare_python_on(tmp_path / "own", name)
    own = {"PATH": path, "PYTHONPATH": "/of/spark"}
    shown = subprocess.run(argv, cwd=tmp_path, env=own, capture_output=True, text=True, check=True).stdout.split()
    assert shown[0] == str(tmp_path / "unpacked" / "lib" / "tenacity" / "__init__.py")
    assert shown.index("/of/spark") < shown.index(str(tmp_path / "unpacked" / "lib"))


ONLY = """
import sys
from importlib.metadata import packages_distributions
from spark.session.executor_fitness import look
from spark.session.library_archive import needed_by_tasks, with_requirements
shipped = {one.name for one in with_requirements(needed_by_tasks())} | {"pyspark", "py4j", "headrace"}
refused = {module for module, brought in packages_distributions().items() if not shipped & set(brought)}
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in refused:
            raise ModuleNotFoundError(name, name=name.partition(".")[0])
for name in [one for one in sys.modules if one.partition(".")[0] in refused | {"sinks", "spark", "cdc"}]:
    del sys.modules[name]
sys.meta_path.insert(0, Refusing())
import pyspark.worker
print(look(sys.argv[1:]).lacks)
"""


def test_h423_tasks_import_nothing_that_the_archive_lacks() -> None:
    """Of the stores that executors write to themselves, and of DataFrames of changes."""
    openers = [kind.opener.partition(":")[0] for kind in kinds_of_ours() if kind.parallel]
    assert {"sinks.cache.cache_store", "sinks.search.search_store"} <= set(openers)
    asked = [*LIBRARIES, "spark.queries.tasks", "pyspark_headrace", *openers]
    done = subprocess.run([sys.executable, "-c", ONLY, *asked], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("()\n", "")


def test_the_same_packages_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = (build_archive(tmp_path / name, ["tenacity", "orjson"]) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_a_package_brings_what_it_requires(tmp_path: Path) -> None:
    with tarfile.open(build_archive(tmp_path, ["requests"])) as archive:
        names = {name.split("/")[1] for name in archive.getnames()}
    assert {"requests", "urllib3", "idna", "certifi"} <= names
    assert not names & {"pyspark", "socks.py", "__pycache__"}


def test_tasks_need_what_the_probe_asks_for() -> None:
    assert set(needed_by_tasks(["mine"])) == {*LIBRARIES.values(), "redis[hiredis]", "opensearch-py", "mine"}


def test_an_extra_brings_its_packages() -> None:
    assert {"redis", "hiredis"} <= {one.name for one in with_requirements(["redis[hiredis]"])}
    assert "hiredis" not in {one.name for one in with_requirements(["redis"])}


def test_a_package_that_is_not_here_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"the package no_such[.]package is not installed here"):
        build_archive(tmp_path, ["no_such.package"])
    assert main([str(tmp_path), "no-such-package"]) == Exit.CONFIG
    assert capsys.readouterr().err.splitlines()[1] == "hint: pip install no-such-package"
    assert not (tmp_path / ARCHIVE).exists()
