"""Run a program that ends when its parent does, even when that is killed: ``with_parent.py SIGNAL PARENT -- PROGRAM…``.

A file of its own, started by path and without site-packages: it runs in front of every server.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Become PROGRAM. The kernel sends it SIGNAL when PARENT ends."""
    death_signal, parent, _, *program = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != int(parent):  # it ended before we could ask
            sys.exit(1)
    # A shell's background job inherits that Ctrl-C is ignored. It has to end this program.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
