"""The command line: one file per command, :mod:`cdc.cli.app` puts them together.

Data goes to stdout, talk to stderr. Only here do errors become text and exit codes.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from cdc.process.interrupted_imports import ending_at_once


def main() -> NoReturn:
    """The console script."""
    with ending_at_once():
        from cdc.cli.app import run  # noqa: PLC0415 - it takes half a second, in which Ctrl-C has to be quiet
    sys.exit(run(sys.argv[1:]))
