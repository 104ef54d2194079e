"""The stack of the tests as processes: the local stack, and what only tests want of it.

In a quick run the servers with a JVM are one set for all workers: to start them costs more than most tests. Every
worker has a Postgres and a Redis of its own: they start in a second, and making a slot waits for each transaction of
its server.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from cdc.jvm.java import only_one
from cdc.stack.local import Connections, LocalStack
from cdc.stack.supervisor import READY_TIMEOUT_S
from tests.waiting import TIME_SCALE


class ProcessStack(LocalStack):
    """All parts are processes of this machine, so each reaches the others and their files as we do."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ready_timeout_s=READY_TIMEOUT_S * TIME_SCALE)

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        server = self.pid_of(name)
        os.kill(server, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(server, signal.SIGCONT)

    def inside(self, name: str) -> str:
        connection = self.connections()[name]
        match name:
            case "postgres":
                place = conninfo_to_dict(connection["dsn"])
                return f"{place['host']}:{place['port']}"
            case "kafka":
                return connection["bootstrap_servers"]
            case _:
                return urlsplit(connection["url"]).netloc

    def hand_to_connect(self, name: str, text: str) -> str:
        path = self.folder / "connect" / name
        path.write_text(text, encoding="utf-8")
        return str(path)


COMMON = ("kafka", "opensearch", "connect")
"""Servers with a JVM."""


class WorkerStack:
    """A worker's own stack, beside one that has the servers with a JVM for all workers."""

    def __init__(self, own: ProcessStack, common: ProcessStack) -> None:
        self.folder = own.folder
        self._own = own
        self._common = common

    def ensure(self, *parts: str) -> Connections:
        shared = [name for name in parts if name in COMMON]
        with only_one(self._common.folder / "logs" / "workers.lock"):
            found = self._common.ensure(*shared) if shared else self._common.connections()
        return found | self._own.ensure(*(name for name in parts if name not in COMMON))

    def start_part(self, name: str) -> None:
        self._of(name).start_part(name)

    def stop_part(self, name: str, *, kill: bool = False) -> None:
        self._of(name).stop_part(name, kill=kill)

    def pid_of(self, name: str) -> int:
        return self._of(name).pid_of(name)

    def paused(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self._of(name).paused(name)

    def inside(self, name: str) -> str:
        return (self._common if name in COMMON else self._own).inside(name)

    def hand_to_connect(self, name: str, text: str) -> str:
        return self._common.hand_to_connect(name, text)

    def _of(self, name: str) -> ProcessStack:
        assert name not in COMMON, f"{name} is one for all workers of a quick run: a test that stops it is slow"
        return self._own
