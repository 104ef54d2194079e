"""CPU of a command's start: `cdc --help` beside bare Python, and what the clients would add; no server.

Each is a process of its own, started from cold. CPU time of user and system together, the least of five runs.
"""

from __future__ import annotations

import os
import sys

from tests.bench.setting import Bench

_RUNS = 5
_CLIENTS = "psycopg, confluent_kafka, redis, opensearchpy, deltalake, sqlalchemy, pyspark.sql"
_STARTS = {
    "bare Python": ("-c", "pass"),
    "cdc --version": ("-m", "cdc", "--version"),
    "cdc --help": ("-m", "cdc", "--help"),
    "cdc config example": ("-m", "cdc", "config", "example"),
    "cdc --help with every client": ("-c", f"import {_CLIENTS}; from cdc.cli.app import run; run(['--help'])"),
}


def bench(bench: Bench) -> None:
    for name, arguments in _STARTS.items():
        bench.say(f"{name}: {min(_cpu_s(*arguments) for _ in range(_RUNS)):.2f} s CPU")


def _cpu_s(*arguments: str) -> float:
    """CPU seconds of a process that ends well."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ, file_actions=quiet)
    _, status, used = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, arguments
    return used.ru_utime + used.ru_stime
