"""The process that workers are forked from: it has imported what they need, and has neither sessions nor threads.

Only :mod:`multiprocessing`'s fork server imports this. It ends when the process that started it ends: the kernel sees
to it, so that it holds for a stopped one too, and workers die with the server as they ask for.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
PID = os.getpid()
"""The server's, in every worker that was forked from it."""


def die_with_parent() -> None:
    """Ask Linux for SIGKILL at the end of the process that started this one: it reaches even a stopped one."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


die_with_parent()
