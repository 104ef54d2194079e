"""The stack of the tests as processes: the local stack, and what only tests want of it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from cdc.stack.local import LocalStack
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
