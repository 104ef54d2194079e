"""Finding what a stack left behind."""

from __future__ import annotations

import os
from pathlib import Path


def left_over(folder: Path) -> list[str]:
    """Command lines of running processes that name ``folder``, which all servers of a stack do, or lie in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            argv = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            state = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
            # Valkey shows a title of its own, but works in its folder.
            at = os.readlink(process / "cwd")
        except OSError:  # it ended meanwhile
            continue
        if (
            (str(folder) in argv or at.startswith(str(folder)))
            and "cdc stack" not in argv
            and state != "Z"
            and "-m cdc " not in argv
        ):
            found.append(argv)
    return found
