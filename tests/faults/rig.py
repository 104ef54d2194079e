"""A pipeline of an experiment's own: fresh database and topics, lives of ``cdc run``, the oracle at the end."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.process.errors import LogError
from cdc.settings.model import Settings, parse
from cdc.wiring.pipeline import build_snapshot, prepare_pipeline
from connectors.kafka.admin import TopicAdmin
from snapshot.source.ports import NoReport
from tests.faults import oracle, workload
from tests.faults.lab import Found, Lab
from tests.faults.lives import Life, command
from tests.fresh import drop_database
from tests.settings_file import write_settings
from tests.waiting import wait_until

START_S = 60.0


class Rig:
    """One pipeline. ``dsn`` leads to the server itself, whatever the settings go through."""

    def __init__(self, dsn: str, document: dict[str, Any], folder: Path) -> None:
        self.dsn = dsn
        self.document = document
        self.folder = folder
        self.err = folder / "run.err"
        self.lives: list[Life] = []

    @property
    def settings(self) -> Settings:
        return parse(self.document)

    @property
    def slot(self) -> str:
        return self.settings.slot

    @property
    def config(self) -> Path:
        """The settings as a file, as they are now."""
        return write_settings(self.folder, self.document)

    def session(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)

    def execute(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        with self.session() as session:
            for statement in statements:
                session.execute(statement.encode())

    def one(self, statement: str, *values: object) -> Any:
        with self.session() as session:
            row = session.execute(statement.encode(), values or None).fetchone()
            return row[0] if row else None

    def init(self, *schema: str) -> None:
        """Make the tables (those of the workload by default), publication and topics."""
        workload.make(self.dsn, schema or workload.SCHEMA)
        prepare_pipeline(self.settings)

    def prepare(self, *schema: str) -> None:
        """The same and the slot, so that a capture streams from here on."""
        self.init(*schema)
        build_snapshot(self.settings, NoReport(), workers=1).run(rows=False)

    def start(self, crash_at: str = "") -> Life:
        """Start ``cdc run``; it may end by itself at a crash point."""
        life = Life(command, ["--config", str(self.config), "run"], self.err, crash_at=crash_at)
        self.lives.append(life)
        return life

    def stream(self) -> Life:
        """Start ``cdc run`` and return when it streams."""
        life = self.start()
        wait_until(lambda: _streams(life), START_S, lambda: life.stderr)
        return life

    def settle(self, deadline_s: float = 60) -> None:
        """Return when the log holds everything committed so far; by the last life, which has to live."""
        oracle.settled(self.settings, self.dsn, deadline_s, self.last_words)

    def last_words(self) -> str:
        if not self.lives:
            return "nobody was started"
        life = self.lives[-1]
        return f"exit {life.exit}: {life.stderr[-3000:]}"

    def count(self, table: str) -> int:
        """How many records the table's topic has taken."""
        topic = f"{self.settings.name}.public.{table}"
        partitions = self.settings.log.partitions
        return sum(TopicAdmin(self.settings.log).end_offsets({topic: partitions})[topic].values())

    def judge(self, lab: Lab) -> None:
        """All that must hold when everything has settled; counts what was looked at."""
        log = oracle.read_log(self.settings)
        twice = oracle.duplicates(log)
        oracle.require_progress_true(log)
        oracle.require_no_aborted(log)
        memory = oracle.replayed(log, self.settings)
        compared = oracle.compare(self.settings, {"memory": memory.open().reader})
        lab.count(records=log.records, rows_compared=compared.rows, lost=compared.lost, wrong=compared.wrong)
        lab.count(duplicates=twice)
        compared.require_equal()
        oracle.require_wal_released(self.dsn, self.slot)
        if twice:
            raise Found(f"{twice} records stand in their partition twice")


def _streams(life: Life) -> bool:
    assert life.exit is None, f"ended with {life.exit}: {life.stderr}"
    return life.said("streaming")


@contextmanager
def fresh_rig(lab: Lab, parts: Sequence[str] = ("postgres", "kafka"), **sections: Mapping[str, Any]) -> Iterator[Rig]:
    """A rig of its own on the lab's servers; its processes, database and topics are gone afterwards."""
    connections = lab.stack.ensure(*parts)
    name = f"f{secrets.token_hex(4)}"
    admin_dsn = connections["postgres"]["dsn"]
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    dsn = make_conninfo(admin_dsn, dbname=name)
    folder = lab.folder / name
    folder.mkdir(parents=True)
    document: dict[str, Any] = {
        "name": name,
        "source": {"dsn": dsn, "tables": ["public.*"]},
        "log": {"bootstrap_servers": connections["kafka"]["bootstrap_servers"], "partitions": 3},
        "capture": {"http_address": ""},
    }
    for section, values in sections.items():
        document.setdefault(section, {}).update(values)
    rig = Rig(dsn, document, folder)
    try:
        yield rig
    finally:
        for life in rig.lives:
            if life.exit is None:
                life.kill()
        log = rig.settings.log.model_copy(
            update={"bootstrap_servers": lab.stack.ensure("kafka")["kafka"]["bootstrap_servers"]}
        )
        wait_until(_tried(lambda: _forget(TopicAdmin(log), name)), 60, f"topics of {name} deleted")
        wait_until(_tried(lambda: _drop(admin_dsn, name)), 60, f"database {name} dropped")


def _forget(admin: TopicAdmin, name: str) -> bool:
    admin.delete([topic for topic in admin.names() if topic.startswith(f"{name}.")])
    return True


def _drop(dsn: str, name: str) -> bool:
    with psycopg.connect(dsn, autocommit=True) as admin:
        drop_database(admin, name)
    return True


def _tried(action: Callable[[], bool]) -> Callable[[], bool]:
    """Not yet where the server just went away: it comes back."""

    def attempt() -> bool:
        try:
            return action()
        except (psycopg.Error, LogError):
            return False

    return attempt
