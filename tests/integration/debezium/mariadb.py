"""A MariaDB of one's own: Debian's mariadb-server, its data below a test's folder, ended with the test process."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.stack.local import free_ports
from cdc.stack.supervised_server import ANYBODY
from tests.waiting import wait_until

ORDERS = """
create table orders (
  id int primary key auto_increment, status varchar(20) default 'new', total decimal(10, 2), big bigint unsigned,
  at datetime(6), ts timestamp null, d date, t time, doc json, b blob, flag bool, e enum('a', 'b')
);
insert into orders (status, total, big, at, ts, d, t, doc, b, flag, e) values
  ('open', 12.50, 18446744073709551615, '2024-01-02 03:04:05.678901', '2024-01-02 03:04:05', '2024-01-02', '-101:02:03',
   '{"a": 1}', x'0102', true, 'a'),
  (null, null, null, null, null, null, null, null, null, null, null);
"""

PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb")


def missing_program() -> str | None:
    """The first program of the server that this machine lacks."""
    return next((name for name in PROGRAMS if shutil.which(name) is None), None)


SKIPPED = pytest.mark.skipif(
    missing_program() is not None,
    reason=f"no {missing_program()} on this machine: apt-get install mariadb-server",
)


class MariaDb:
    """A running server; ``port`` on loopback, and its root by a socket."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self._socket = folder / "s"

    def run(self, statements: str) -> str:
        """Run SQL as root; what it prints, without headings."""
        command = ["mariadb", "--no-defaults", f"--socket={self._socket}", "--batch", "--skip-column-names", "--raw"]
        done = subprocess.run([*command, "-e", statements], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self, query: str) -> list[Any]:
        """The JSON documents that a query of one column gives."""
        return [orjson.loads(line) for line in self.run(query).splitlines()]

    def answers(self) -> bool:
        command = ["mariadb", "--no-defaults", f"--socket={self._socket}", "-e", "select 1"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def mariadb_server(folder: Path) -> Iterator[MariaDb]:
    """Make and start a server with a row-based binlog; it ends with the body."""
    port = free_ports(["mariadb"])["mariadb"]
    user = ["--user=root"] if os.geteuid() == 0 else []
    data = f"--datadir={folder / 'data'}"
    install = ["mariadb-install-db", "--no-defaults", data, "--auth-root-authentication-method=normal", *user]
    subprocess.run([*install, "--skip-test-db"], check=True, capture_output=True)
    options = [
        *("--no-defaults", data, f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder / 's'}"),
        *("--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-image=FULL", "--server-id=1"),
        *("--innodb-buffer-pool-size=32M", f"--pid-file={folder / 'pid'}", *user),
    ]
    program = str(shutil.which("mariadbd"))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ANYBODY.ending_with_parent([program, *options], death_signal=9, parent=os.getpid()),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        server = MariaDb(folder, port)
        wait_until(server.answers, 30, lambda: (folder / "log").read_text(errors="replace")[-2000:])
        yield server
    finally:
        process.terminate()
        process.wait(30)
