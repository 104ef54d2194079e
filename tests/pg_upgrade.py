"""A Postgres that ``pg_upgrade`` takes over to a new cluster, with its logical slots."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from cdc.stack.local import free_ports
from cdc.stack.postgres import SETTINGS, USER, install_folder
from cdc.stack.supervised_server import LOOPBACK, ordinary_account
from tests.programs import Spawn, Spawned
from tests.waiting import wait_until


class UpgradablePostgres:
    """One server at a time on one port, which never changes. ``dsn``: of the database ``shop``."""

    def __init__(self, folder: Path, spawn: Spawn) -> None:
        self._account = ordinary_account()
        self._folder = self._account.own_folder(folder / "upgraded")
        self._bin = install_folder() / "bin"
        self._spawn = spawn
        self._port = free_ports()["postgres"]
        self._clusters = 0
        self._running: Spawned | None = None
        self.dsn = make_conninfo(host=LOOPBACK, port=self._port, dbname="shop", user=USER)

    @property
    def _data(self) -> Path:
        return self._folder / f"data{self._clusters}"

    def make(self) -> None:
        """A new cluster, which is the one from now on. The one before is stopped."""
        self.stop()
        self._clusters += 1
        self._run("initdb", "-D", str(self._data), "-U", USER, "-E", "UTF8", "--no-locale", "-A", "trust", "-N")

    def start(self) -> None:
        options = [f"--{name}={value}" for name, value in {**SETTINGS, "fsync": "off"}.items()]
        argv = [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self._port), *options]
        ending = self._account.ending_with_parent(argv, death_signal=signal.SIGQUIT, parent=os.getpid())
        self._running = server = self._spawn(*ending)
        wait_until(self._answers, 60, lambda: server.stderr)

    def stop(self) -> None:
        if self._running is not None:
            self._running.process.send_signal(signal.SIGINT)
            self._running.wait(60)
            self._running = None

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """At the end the cluster is as it was at the beginning. It does not run then, neither here nor there."""
        copy = self._folder / "copy"
        subprocess.run(["cp", "-a", str(self._data), str(copy)], check=True)
        yield
        shutil.rmtree(self._data)
        copy.rename(self._data)

    def upgrade(self) -> None:
        """Into a new cluster, which is the one from now on. Neither runs behind it."""
        former = self._data
        self.make()
        ports = [str(free_ports()["postgres"]) for _ in range(2)]
        with tempfile.TemporaryDirectory() as sockets:
            os.chmod(sockets, 0o777)
            where = ["-b", str(self._bin), "-B", str(self._bin), "-d", str(former), "-D", str(self._data)]
            logical = "-c wal_level=logical -c max_replication_slots=10"
            more = ["-p", ports[0], "-P", ports[1], "-U", USER, "-s", sockets, "-o", logical, "-O", logical]
            self._run("pg_upgrade", *where, *more)

    def _run(self, program: str, *words: str) -> None:
        own = {"cwd": str(self._folder), "user": self._account.uid, "group": self._account.gid}
        argv = [*self._account.prefix, str(self._bin / program), *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, **own)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stdout + done.stderr

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.dsn, dbname="postgres", connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False


@contextmanager
def upgradable_postgres(folder: Path, spawn: Spawn) -> Iterator[UpgradablePostgres]:
    """A server with an empty database ``shop``, running."""
    server = UpgradablePostgres(folder, spawn)
    server.make()
    server.start()
    try:
        with psycopg.connect(server.dsn, dbname="postgres", autocommit=True) as session:
            session.execute("create database shop")
        yield server
    finally:
        server.stop()
