"""The command line: one file per command, :mod:`cdc.cli.app` puts them together.

Data goes to stdout, talk to stderr. Only here do errors become text and exit codes.
"""

from __future__ import annotations

from cdc.cli.app import main

__all__ = ["main"]
