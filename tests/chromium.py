"""The browser that opens our pages: Debian's Chromium, with what the machine lacks for it.

Its packages are taken through apt, which checks their signatures, and unpacked into the cache folder. Nothing is
installed, and no right is needed. No version is pinned: Debian keeps the newest alone. ``CDC_CHROMIUM`` names another.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from tests.debian_packages import libraries, unpacked

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
    tree = unpacked("chromium", _PACKAGES, hint=_HINT, finish=_with_fonts)
    # Sound is in a folder of its own, which its library names by no path.
    sound = (tree / "usr" / "lib").glob("*-linux-gnu/pulseaudio")
    environment = libraries(tree, *sound) | {"FONTCONFIG_FILE": str(tree / "fonts.conf")}
    return Program(str(tree / "usr" / "lib" / "chromium" / "chromium"), environment)


def _with_fonts(tree: Path, place: Path) -> None:
    (tree / "fonts.conf").write_text(_FONTS.format(fonts=place / "usr" / "share" / "fonts"), encoding="utf-8")
