"""The tree as it is cloned: its files, its lock, its make goals."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cdc

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", re.MULTILINE)
SUBJECT_CHARACTERS = 72
_SUBJECTS_SINCE = "2026-11-24T08:19:00Z"
"""The rule's beginning: of the commits before it, some have longer ones."""
# In pieces, so that this file is not the one that names them.
_REGISTRIES = tuple(
    ".".join(pieces)
    for pieces in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("maven", "org"),
        ("maven", "apache", "org"),
        ("sonatype", "com"),
        ("npmjs", "org"),
        ("quay", "io"),
        ("docker", "io"),
        ("ghcr", "io"),
    )
)


def tracked() -> list[Path]:
    """Files of the clone; all files where there is no git."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    return [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]


def test_no_file_names_a_registry() -> None:
    found = []
    for path in tracked():
        text = path.read_bytes()
        found += [(path.relative_to(ROOT), host) for host in _REGISTRIES if host.encode() in text]
    assert found == []


def test_subjects_of_commits_are_short() -> None:
    """At most 72 characters, in each commit behind the one that the rule came with. A shallow clone has few of them."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        return
    listed = subprocess.run(
        ["git", "log", "--no-merges", f"--since={_SUBJECTS_SINCE}", "--format=%s"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [subject for subject in listed.stdout.splitlines() if len(subject) > SUBJECT_CHARACTERS] == []


def test_licence_and_changelog() -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
    assert PROJECT["project"]["license"] == "Apache-2.0"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## .*{re.escape(cdc.__version__)}", changelog, re.MULTILINE)
    assert PROJECT["project"]["version"] == cdc.__version__


def test_the_lock_pins_everything_with_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert "://" not in lock
    entries = re.split(r"\n(?=\S)", lock.strip())
    assert len(entries) > 60
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_lock_satisfies_every_extra() -> None:
    lock = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    pinned: dict[str, list[str]] = {}
    for name, version in _PINNED.findall(lock):
        pinned.setdefault(canonicalize_name(name), []).append(version)
    project = PROJECT["project"]
    wanted = [Requirement(text) for group in project["optional-dependencies"].values() for text in group]
    wanted += [Requirement(text) for text in project["dependencies"]]
    for requirement in wanted:
        if requirement.name != "headrace":
            versions = pinned.get(canonicalize_name(requirement.name), [])
            assert versions, f"make lock: {requirement} is not in requirements.txt"
            assert all(requirement.specifier.contains(version) for version in versions), str(requirement)


def test_ci_runs_make_test_in_both_tiers_and_nothing_else() -> None:
    script = ROOT / ".ci" / "run"
    assert stat.S_IMODE(script.stat().st_mode) & stat.S_IXUSR
    commands = [line for line in script.read_text(encoding="utf-8").splitlines() if "make" in line and line[0] != "#"]
    assert commands == ["make test", "exec make test TIER=slow"]


def test_an_old_python_is_refused_in_one_sentence(tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("no make here")
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.10.13\n', encoding="utf-8")
    old.chmod(0o755)
    # This one answers every script with failure, as 3.10 does to the question whether it is 3.11.
    old.write_text(old.read_text(encoding="utf-8") + '[ "$1" = -V ]\n', encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(
        ["make", "setup", f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode != 0
    assert done.stderr.splitlines()[:2] == [
        f"error: Headrace needs Python 3.11 or newer, and {old} is Python 3.10.13.",
        "hint: name one by PYTHON=python3.12",
    ]
    assert not (tmp_path / ".venv").exists()


def test_goals_named_in_the_makefile_exist() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for goal in (
        "demo",
        "test",
        "bench",
        "faults",
        "release",
        "lint",
        "format",
        "lock",
        "wheel",
        "clean",
        "setup",
        "jars",
    ):
        assert re.search(rf"^{goal}:", text, re.MULTILINE), goal


def test_every_room_stands_in_a_layer() -> None:
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    lines = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    listed = {name.strip(" ()") for line in lines for name in re.split("[|:]", line)}
    rooms = {name for package in PROJECT["tool"]["importlinter"]["root_packages"] for name in _rooms(package, listed)}
    assert sorted(rooms - listed) == [], "say in pyproject.toml's layers what it may import"


def _rooms(package: str, listed: set[str]) -> list[str]:
    """The modules to be listed: those beside one that is, or the package itself."""
    if package in listed or not any(name.startswith(f"{package}.") for name in listed):
        return [package]
    folder = ROOT.joinpath(*package.split("."))
    modules = [path.stem for path in folder.glob("*.py") if path.name != "__init__.py"]
    packages = [path.name for path in folder.iterdir() if (path / "__init__.py").exists()]
    return [room for name in modules + packages for room in _rooms(f"{package}.{name}", listed)]
