"""A server of the stack, as its supervisor sees it."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cdc.process.errors import CdcError, ConfigError, Exit
from cdc.stack.account import ANYBODY, Account

LOOPBACK = "127.0.0.1"


class StackError(CdcError):
    """A part of the local stack did not start, or is gone."""

    exit = Exit.UNAVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFiles:
    """The files and ports of one part: its own folder for data and settings, its log, and its ports by name."""

    folder: Path
    log: Path
    ports: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A server in the foreground. ``stop_signal`` asks it to end, ``death_signal`` is for when its owner died."""

    argv: Sequence[str]
    account: Account = ANYBODY
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    stop_timeout_s: float = 10.0


class StackPart(Protocol):
    """One server. ``prepare`` is safe to repeat and may take seconds. ``ready`` answers at once or within one."""

    place: PartFiles

    def prepare(self) -> Command:
        """Make folders and settings, and say how the server is run."""

    def ready(self) -> bool:
        """Whether the server answers."""

    def connection(self) -> dict[str, str]:
        """The addresses and logins for a client, as ``cdc stack status --json`` prints them."""


def refuse_taken_port(name: str, port: int) -> None:
    """ConfigError if something listens on ``port`` already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            raise ConfigError(
                f"port {port} for {name} is taken by another program",
                hint="stop that program, or let cdc stack up --free-ports choose",
            ) from None


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
