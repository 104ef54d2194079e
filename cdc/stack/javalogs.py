"""Shared by the stack's Java servers: their heap, and a log of warnings and errors."""

from __future__ import annotations

from collections.abc import Iterable

HEAP = ("-Xms256m", "-Xmx512m")

_LOG4J = """\
Configuration:
  status: warn
  Appenders:
    Console:
      name: out
      PatternLayout: {pattern: "%d{ISO8601} %p %c{1} %m%n"}
  Loggers:
    Root:
      level: info
      AppenderRef: {ref: out}
    Logger:
"""


def log4j(quiet: Iterable[str]) -> str:
    """Log4j's settings as YAML. ``quiet``: loggers of which only warnings are shown, one at least."""
    return _LOG4J + "".join(f"      - {{name: {name}, level: warn}}\n" for name in quiet)
