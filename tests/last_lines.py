"""The names of the tests that failed are the last lines of all: the end of a log is read first."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def last_lines(failed: Iterable[str]) -> list[str]:
    """One line for each, in order, none twice."""
    return [f"FAILED {name}" for name in dict.fromkeys(failed)]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Behind the line that counts. A worker prints nothing."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    found = [report.nodeid for kind in ("failed", "error") for report in reporter.stats.get(kind, ())]
    for line in last_lines(found):
        reporter.write_line(line)
