"""What a user installs: the wheel, built and looked into, and imported where nothing else is."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("cdc", "connectors", "pyspark_headrace", "sinks", "snapshot", "spark")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> frozenset[str]:
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


def test_it_holds_the_packages_and_nothing_else(wheel: Path, names: frozenset[str]) -> None:
    assert wheel.name == "headrace-0.1.0-py3-none-any.whl"
    assert {name.split("/")[0] for name in names} == {*PACKAGES, "headrace-0.1.0.dist-info"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert not [name for name in names if "test" in Path(name).name]


def test_it_holds_every_file_of_the_packages(names: frozenset[str]) -> None:
    there = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert there - names == set()
    kinds = {Path(name).suffix for name in there}
    assert {".py", ".sql", ".lock"} <= kinds


def test_it_carries_the_licence(names: frozenset[str]) -> None:
    assert "headrace-0.1.0.dist-info/licenses/LICENSE" in names


def test_it_installs_alone_and_imports(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, env={"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    script = "import cdc, connectors, sinks, snapshot, spark; print(cdc.__version__, cdc.__file__)"
    shown = subprocess.run(
        [python, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True, env={}
    ).stdout
    version, place = shown.split()
    assert version == "0.1.0"
    assert Path(place).is_relative_to(tmp_path), "the installed package, not the checkout"
    assert (tmp_path / "venv" / "bin" / "cdc").exists()
