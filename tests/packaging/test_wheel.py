"""What a user installs: the wheel, built and looked into, and imported where nothing else is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
STORES = ("redis", "opensearch", "delta", "sql", "spark", "debezium", "views")
"""The extras of the image, and of the lock beside the wheel."""
LOCKED = re.compile(r"^([a-z0-9._-]+)(?:\[[^]]*\])?==(\S+)", re.MULTILINE)
INSTALLS = re.compile(r"pip install --require-hashes -r (\S+) && pip install --no-deps (\S+)")
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


def needed(wheel: Path) -> Iterator[Requirement]:
    """All that the wheel needs with every store, and what that needs in turn, as the packages here say."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        told = message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    waiting = [(Requirement(line), extra) for line in told for extra in STORES]
    seen: set[str] = set()
    while waiting:
        one, extra = waiting.pop()
        if one.marker is not None and not one.marker.evaluate({"extra": extra}):
            continue
        yield one
        if canonicalize_name(one.name) not in seen:
            seen.add(canonicalize_name(one.name))
            further = [Requirement(line) for line in requires(one.name) or ()]
            waiting += [(later, wanted) for later in further for wanted in ("", *one.extras)]


def test_its_lock_has_all_that_it_needs_and_nothing_else(wheel: Path) -> None:
    locked = dict(LOCKED.findall((ROOT / "compose" / "image" / "requirements.txt").read_text(encoding="utf-8")))
    wanted = list(needed(wheel))
    missing = [str(one) for one in wanted if canonicalize_name(one.name) not in locked]
    assert missing == []
    assert [str(one) for one in wanted if not one.specifier.contains(locked[canonicalize_name(one.name)])] == []
    assert {"pyspark", "deltalake", "redis", "opensearch-py", "sqlalchemy"} <= locked.keys()


def test_the_readme_installs_what_make_puts_into_dist() -> None:
    made = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nwheel: setup\n")[2].partition("\n\n")[0]
    assert "hatchling build -t wheel" in made
    assert "cp compose/image/requirements.txt dist/requirements.txt" in made
    shown = INSTALLS.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert shown is not None
    assert (shown[1], shown[2]) == ("dist/requirements.txt", "dist/headrace-*.whl")


@pytest.mark.long
def test_the_wheel_and_its_lock_make_a_program(wheel: Path, tmp_path: Path) -> None:
    """The README's line, word for word, in an environment of its own: 500 MB, once."""
    shown = INSTALLS.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert shown is not None
    (tmp_path / "dist").mkdir()
    shutil.copy(wheel, tmp_path / "dist")
    shutil.copy(ROOT / "compose" / "image" / "requirements.txt", tmp_path / "dist")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    own = {"PATH": f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}
    subprocess.run(["sh", "-c", shown[0]], cwd=tmp_path, check=True, env=own, capture_output=True)
    for words in (["--version"], ["config", "example"], ["stack", "--help"]):
        done = subprocess.run(["cdc", *words], cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    done = subprocess.run(["pip", "check"], cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
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
