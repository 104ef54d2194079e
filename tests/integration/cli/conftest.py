"""Pipelines on the session's servers, and a Postgres of one's own to break."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from cdc.stack.free_ports import free_ports
from cdc.stack.part import PartFiles
from cdc.stack.postgres import PostgresPart
from tests.fresh import fresh_name
from tests.integration.cli.pipeline import Pipeline
from tests.programs import RunCdc
from tests.waiting import wait_until

TABLES = "create table orders (id int primary key, status text); insert into orders values (42, 'open')"


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    """A pipeline over one table, nothing made yet, no sink."""
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.orders"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "spark": {"checkpoint": str(tmp_path / "checkpoints")},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(TABLES)
    return made


@pytest.fixture
def role(postgres: str) -> Iterator[str]:
    """A role with the password ``secret`` and no rights. Ask for it before the database that it gets rights in."""
    name = fresh_name()
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(sql.SQL("create role {} login password 'secret'").format(sql.Identifier(name)))
        yield name
        admin.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.fixture
def no_server() -> str:
    """A port of this machine on which nobody listens."""
    return str(free_ports()["kafka"])


class OwnPostgres:
    """A second Postgres, started as a test wants it; settings given at the start win over the stack's."""

    def __init__(self, folder: Path) -> None:
        place = PartFiles(folder=folder / "postgres", log=folder / "postgres.log", ports=free_ports())
        self._part = PostgresPart(place, durable=False)
        self._log = place.log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """Connection string of its superuser."""
        return self._part.connection()["dsn"]

    def start(self, **settings: str) -> None:
        """Start it, or start it again, and wait until it answers."""
        self.stop()
        command = self._part.prepare()
        argv = [*command.argv, *(f"--{name}={value}" for name, value in settings.items())]
        tethered = command.account.tethered(argv, death_signal=command.death_signal, parent=os.getpid())
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(tethered, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        wait_until(self._part.ready, 30, describe=lambda: self._log.read_text()[-500:])

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30)
            self._process = None


@pytest.fixture
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnPostgres]:
    """A second Postgres, not started yet."""
    own = OwnPostgres(tmp_path_factory.mktemp("own"))
    yield own
    own.stop()
