"""Programs of Debian's packages for tests, unpacked into the cache folder with the libraries that the machine lacks.

apt checks the packages' signatures. Nothing is installed, and no right is needed. No version is pinned: Debian keeps
the newest alone.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cdc.jvm.java import cache_folder, only_one


def unpacked(
    name: str, packages: Sequence[str], *, hint: str, finish: Callable[[Path, Path], None] = lambda _tree, _place: None
) -> Path:
    """The folder ``name``/tree of the cache, with these packages and what they need in it.

    ``finish``: called once with the folder as it is unpacked, and with where it will be. Where apt fails the test
    fails, as a skipped one proves nothing. Where there is no apt at all the test is skipped, with ``hint``.
    """
    folder = cache_folder() / name
    tree = folder / "tree"
    with only_one(folder / "lock"):
        if not tree.exists():
            if shutil.which("apt-get") is None:
                pytest.skip(f"there is no apt-get to fetch {name} with; {hint}")
            with tempfile.TemporaryDirectory(dir=folder) as place:
                draft = Path(place) / "tree"
                for package in _fetched(Path(place), packages, hint):
                    subprocess.run(["dpkg-deb", "-x", package, draft], check=True, timeout=300)
                finish(draft, tree)
                draft.rename(tree)
    return tree


def libraries(tree: Path, *more: Path) -> dict[str, str]:
    """The environment in which programs of the folder find their libraries. ``more``: folders of others."""
    folders = [*(tree / "usr" / "lib").glob("*-linux-gnu"), *(tree / "lib").glob("*-linux-gnu"), *more]
    return {"LD_LIBRARY_PATH": ":".join(str(path) for path in folders)}


def _fetched(place: Path, packages: Sequence[str], hint: str) -> list[Path]:
    """The packages that are not installed here. Where apt knows none its lists are fetched, into a folder of our own,
    for which no right is needed."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (place / name).mkdir(parents=True)
    cache = {"Dir::Cache": place / "cache", "APT::Sandbox::User": "", "Debug::NoLocking": "true"}
    state = {"Dir::State": place / "state", "Dir::State::status": "/var/lib/dpkg/status"}
    download = ["install", "--yes", "--no-install-recommends", "--download-only", *packages]
    for settings, commands in ((cache, [download]), (cache | state, [["update"], download])):
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        for command in commands:
            words = ["apt-get", "-qq", *options, *command]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
        found = sorted((place / "cache" / "archives").glob("*.deb"))
        if done.returncode == 0 and found:
            return found
    pytest.fail(f"{packages[0]} cannot be fetched: {done.stderr.strip()[-500:]}; {hint}")
