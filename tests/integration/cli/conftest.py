"""Pipelines on the session's servers, and a Postgres of one's own to break."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis as redis_client
from psycopg import sql

from cdc.stack.local import free_ports
from cdc.stack.postgres import PostgresPart
from cdc.stack.supervised_server import PartFiles
from tests.fresh import fresh_name
from tests.integration.cli.pipeline import Pipeline, act_as
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
def canary(role: str, pipeline: Pipeline, redis_url: str, opensearch: str) -> Iterator[str]:
    """The password of everything that the pipeline logs in to; it stands in the environment alone."""
    word = f"canary{secrets.token_hex(8)}"
    act_as(pipeline, role, "alter role {role} replication superuser password '" + word + "'")
    parts = urlsplit(redis_url)
    with redis_client.Redis.from_url(redis_url) as admin:
        admin.acl_setuser(role, enabled=True, passwords=[f"+{word}"], keys=["*"], channels=["*"], categories=["+@all"])
        pipeline.document["log"]["client_secrets"] = {"sasl.password": "env:SECRET"}
        pipeline.document["sinks"] = {
            "cache": {
                "kind": "redis",
                "url": f"redis://{role}@{parts.netloc}{parts.path}",
                "password": "env:SECRET",
                "prefix": role,
            },
            "search": {
                "kind": "opensearch",
                "url": opensearch,
                "user": "cdc",
                "password": "env:SECRET",
                "prefix": role,
            },
        }
        yield word
        admin.acl_deluser(role)
    pipeline.document["source"]["password"] = "env:SECRET"


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
        command_line = command.account.ending_with_parent(argv, death_signal=command.death_signal, parent=os.getpid())
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command_line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
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
