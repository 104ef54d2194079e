"""Named crash points: no-ops in production, places to die at in tests.

``CDC_CRASH_AT=name`` or ``name:3`` (the third time) ends the process there at once, without cleaning up, as
a SIGKILL would.
"""

from __future__ import annotations

import os

CRASH_EXIT = 137

_at = ""
_left = 1

POINTS: set[str] = set()
"""Every declared point's name, for tests that visit them all."""


def declare(*names: str) -> None:
    """Make names known. A module declares its own points where it is imported."""
    POINTS.update(names)


def arm(where: str) -> None:
    """Die at ``where``, as with that environment at the start: for a process that was forked later."""
    global _at, _left  # noqa: PLW0603 - the countdown belongs to the process
    _at, _, nth = where.partition(":")
    _left = int(nth) if nth.isdigit() else 1


def crash_point(name: str) -> None:
    """Die here if the environment asks for it. One string comparison otherwise."""
    global _left  # noqa: PLW0603 - the countdown belongs to the process
    if name != _at:
        return
    _left -= 1
    if _left <= 0:
        os._exit(CRASH_EXIT)


arm(os.environ.get("CDC_CRASH_AT", ""))
