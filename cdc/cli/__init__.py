"""The command line: one file per command, :mod:`cdc.cli.app` puts them together.

Data goes to stdout, talk to stderr. Only here do errors become text and exit codes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def main() -> NoReturn:
    """The console script."""
    with ending_at_once():
        from cdc.cli.app import run  # noqa: PLC0415 - it takes half a second, in which Ctrl-C has to be quiet
    sys.exit(run(sys.argv[1:]))


@contextmanager
def ending_at_once() -> Iterator[None]:
    """While the body imports, Ctrl-C ends the process with 130, without a word. For code that has nothing open yet.

    An import that is broken off leaves tracebacks.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        # Ignored under nohup, or somebody else's.
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
