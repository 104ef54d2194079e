"""Prometheus' own tool, which checks rules, their tests and a page of figures.

It is taken from Debian's package, by version and hash, and kept in the cache folder. Nothing is installed, and no right
is needed. ``CDC_PROMTOOL`` names another one.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from cdc.jvm.cache import cache_folder, only_one

PACKAGE, VERSION = "prometheus", "2.42.0+ds-5+deb12u1"
PACKAGE_SHA256 = "81d59a24fce84f7fbe97a45a4f2914b6a5881b5cd1db2a6a0e129e515e1a5f55"
TOOL_SHA256 = "14d9c8acdc5d1321dc2092400111c586f09ac350f23f2383d1679b2bf256e583"
_HINT = "sudo apt-get update makes apt know the package; or name a promtool by CDC_PROMTOOL"


def promtool() -> Path:
    """The tool, fetched where it is not there yet. AssertionError, with the remedy, where it cannot be had: a skipped
    test proves nothing."""
    named = os.environ.get("CDC_PROMTOOL")
    if named:
        return Path(named)
    folder = cache_folder() / "promtool"
    tool = folder / f"promtool-{VERSION}"
    with only_one(folder / "lock"):
        if not tool.exists() or _sha256(tool.read_bytes()) != TOOL_SHA256:
            _keep(_fetched(), tool)
    return tool


def run_promtool(
    *arguments: str | Path, page: str = "", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it to its end in a folder, with a page on its standard input."""
    words = [str(promtool()), *arguments]
    return subprocess.run(words, input=page, capture_output=True, text=True, check=False, cwd=folder, timeout=120)


def _fetched() -> bytes:
    """The package, by its hash."""
    with tempfile.TemporaryDirectory() as place:
        command = ["apt-get", "download", f"{PACKAGE}={VERSION}"]
        try:
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=600)
        except FileNotFoundError:
            raise AssertionError(f"there is no apt-get to fetch promtool with; {_HINT}") from None
        found = [file.read_bytes() for file in Path(place).glob("*.deb")]
        assert found, f"promtool cannot be fetched: {done.stderr.strip()[-500:]}; {_HINT}"
        assert _sha256(found[0]) == PACKAGE_SHA256, f"the package {PACKAGE} {VERSION} is not the one that is pinned"
        return found[0]


def _keep(package: bytes, tool: Path) -> None:
    with tempfile.NamedTemporaryFile(suffix=".deb") as file:
        file.write(package)
        file.flush()
        done = subprocess.run(["dpkg-deb", "--fsys-tarfile", file.name], capture_output=True, check=True, timeout=120)
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        member = archive.extractfile("./usr/bin/promtool")
        assert member is not None
        found = member.read()
    assert _sha256(found) == TOOL_SHA256
    draft = tool.with_suffix(".draft")
    draft.write_bytes(found)
    draft.chmod(0o755)
    draft.rename(tool)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
