"""The browser that opens our pages: Debian's Chromium, with what the machine lacks for it.

Its packages are taken through apt, which checks their signatures, and unpacked into the cache folder. Nothing is
installed, and no right is needed. No version is pinned: Debian keeps the newest alone. ``CDC_CHROMIUM`` names another.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from cdc.jvm.cache import cache_folder, only_one

_PACKAGES = ("chromium", "fonts-liberation")
_HINT = "name a browser by CDC_CHROMIUM"
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><dir>/usr/share/fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>
"""


class Program(NamedTuple):
    """The command, and the environment that it needs beside the one that is there."""

    command: str
    environment: dict[str, str]


def chromium() -> Program:
    """The browser, fetched where it is not there yet. Where apt fails the test fails, as a skipped one proves nothing.
    Where there is no apt at all the test is skipped."""
    named = os.environ.get("CDC_CHROMIUM") or shutil.which("chromium")
    if named:
        return Program(named, {})
    folder = cache_folder() / "chromium"
    tree = folder / "tree"
    with only_one(folder / "lock"):
        if not tree.exists():
            _fetch(folder, tree)
    # Sound is in a folder of its own, which its library names by no path.
    folders = [*(tree / "usr" / "lib").glob("*-linux-gnu"), *(tree / "usr" / "lib").glob("*-linux-gnu/pulseaudio")]
    libraries = [str(path) for path in folders]
    environment = {"LD_LIBRARY_PATH": ":".join(libraries), "FONTCONFIG_FILE": str(tree / "fonts.conf")}
    return Program(str(tree / "usr" / "lib" / "chromium" / "chromium"), environment)


def _fetch(folder: Path, tree: Path) -> None:
    if shutil.which("apt-get") is None:
        pytest.skip(f"there is no apt-get to fetch a browser with; {_HINT}")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        packages = _packages(Path(place))
        draft = Path(place) / "tree"
        for package in packages:
            subprocess.run(["dpkg-deb", "-x", package, draft], check=True, timeout=300)
        fonts = tree / "usr" / "share" / "fonts"
        (draft / "fonts.conf").write_text(_FONTS.format(fonts=fonts), encoding="utf-8")
        draft.rename(tree)


def _packages(place: Path) -> list[Path]:
    """The packages that are not installed here. Where apt knows none its lists are fetched, into a folder of our own,
    for which no right is needed."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (place / name).mkdir(parents=True)
    cache = {"Dir::Cache": place / "cache", "APT::Sandbox::User": "", "Debug::NoLocking": "true"}
    state = {"Dir::State": place / "state", "Dir::State::status": "/var/lib/dpkg/status"}
    download = ["install", "--yes", "--no-install-recommends", "--download-only", *_PACKAGES]
    for settings, commands in ((cache, [download]), (cache | state, [["update"], download])):
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        for command in commands:
            words = ["apt-get", "-qq", *options, *command]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
        found = sorted((place / "cache" / "archives").glob("*.deb"))
        if done.returncode == 0 and found:
            return found
    pytest.fail(f"a browser cannot be fetched: {done.stderr.strip()[-500:]}; {_HINT}")
