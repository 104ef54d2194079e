"""Prometheus' own tool, which checks rules, their tests and a page of figures, and the server beside it.

Both are taken from Debian's package, by version and hash, and kept in the cache folder. Nothing is installed, and no
right is needed. ``CDC_PROMTOOL`` and ``CDC_PROMETHEUS`` name others.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

import pytest

from cdc.jvm.java import cache_folder, only_one

PACKAGE, VERSION = "prometheus", "2.42.0+ds-5+deb12u1"
PACKAGE_SHA256 = "81d59a24fce84f7fbe97a45a4f2914b6a5881b5cd1db2a6a0e129e515e1a5f55"
PROGRAMS = {
    "promtool": "14d9c8acdc5d1321dc2092400111c586f09ac350f23f2383d1679b2bf256e583",
    "prometheus": "814f078f68af9ad7b644fd25299211399c8f19ad9adf8b0a1b86a3bd9755baa0",
}
"""The programs of the package, each with its SHA-256."""
_HINT = "name a promtool by CDC_PROMTOOL, or a server by CDC_PROMETHEUS"


def prometheus_program(name: str) -> Path:
    """One of :data:`PROGRAMS`, fetched where it is not there yet. Where it cannot be had the test fails: a skipped
    one proves nothing. A file of another hash is an AssertionError."""
    named = os.environ.get(f"CDC_{name.upper()}")
    if named:
        return Path(named)
    folder = cache_folder() / "promtool"
    program = folder / f"{name}-{VERSION}"
    with only_one(folder / "lock"):
        if not program.exists() or _sha256(program.read_bytes()) != PROGRAMS[name]:
            _keep(_fetched(), name, program)
    return program


def run_promtool(
    *arguments: str | Path, page: str = "", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it to its end in a folder, with a page on its standard input."""
    words = [str(prometheus_program("promtool")), *arguments]
    return subprocess.run(words, input=page, capture_output=True, text=True, check=False, cwd=folder, timeout=120)


def _fetched() -> bytes:
    """The package, by its hash. Where apt does not know it yet, apt's lists are fetched into a folder of its own,
    for which no right is needed."""
    with tempfile.TemporaryDirectory() as place:
        own = _own_state(Path(place) / "apt")
        for commands in ([["download"]], [[*own, "update"], [*own, "download"]]):
            done = [_apt(place, command) for command in commands][-1]
            found = [file.read_bytes() for file in Path(place).glob("*.deb")]
            if found:
                assert _sha256(found[0]) == PACKAGE_SHA256, f"{PACKAGE} {VERSION} is not the package that is pinned"
                return found[0]
        pytest.fail(f"promtool cannot be fetched: {done.stderr.strip()[-500:]}; {_HINT}")


def _own_state(folder: Path) -> list[str]:
    """Options by which apt keeps what it knows in ``folder``."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    places = {"Dir::State": folder / "state", "Dir::Cache": folder / "cache", "APT::Sandbox::User": ""}
    settings = {**places, "Dir::State::status": "/var/lib/dpkg/status"}
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _apt(place: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    package = [f"{PACKAGE}={VERSION}"] if command[-1] == "download" else []
    words = ["apt-get", "-qq", *command, *package]
    try:
        return subprocess.run(words, cwd=place, capture_output=True, text=True, check=False, timeout=300)
    except FileNotFoundError:
        pytest.fail(f"there is no apt-get to fetch promtool with; {_HINT}")


def _keep(package: bytes, name: str, program: Path) -> None:
    with tempfile.NamedTemporaryFile(suffix=".deb") as file:
        file.write(package)
        file.flush()
        done = subprocess.run(["dpkg-deb", "--fsys-tarfile", file.name], capture_output=True, check=True, timeout=120)
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        member = archive.extractfile(f"./usr/bin/{name}")
        assert member is not None
        found = member.read()
    assert _sha256(found) == PROGRAMS[name]
    draft = program.with_suffix(".draft")
    draft.write_bytes(found)
    draft.chmod(0o755)
    draft.rename(program)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
