"""``cdc-rights.sql``, run by an administrator who is no superuser, as providers have them: what works with it, and what
its role leaves to the tables' owner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import psycopg
import pytest
from psycopg import sql

from cdc.process.errors import Exit
from tests.fresh import fresh_name
from tests.integration.cli.pipeline import assert_refused
from tests.programs import RunCdc

TABLES = """
create schema sales;
create table sales.orders (id int primary key, note text);
create table sales.events (id int, at date, primary key (at, id)) partition by range (at);
create table sales.events_1 partition of sales.events for values from ('2026-01-01') to ('2026-02-01');
insert into sales.orders select n, 'x' from generate_series(1, 20) n;
insert into sales.events select n, '2026-01-02' from generate_series(1, 20) n;
"""
ROLES = ("role", "admin", "owner")


@dataclass
class Managed:
    """A database of ``owner``, whose administrator made ``role`` by the file. No part of it is a superuser."""

    dsn: str
    folder: Path
    run: RunCdc
    role: str
    admin: str
    owner: str

    def as_role(self, name: str, statements: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as session:
            session.execute(sql.SQL("set role {}").format(sql.Identifier(name)))
            session.execute(statements.encode())

    def cdc(self, *arguments: str) -> CompletedProcess[str]:
        return self.run(*arguments, cwd=self.folder, env={"CDC_SOURCE_PASSWORD": "secret"})

    def findings(self, check: str) -> list[tuple[str, str]]:
        """Level and message of each."""
        found = json.loads(self.cdc("check", "--json").stdout)
        return [(one["level"], one["message"]) for one in found if one["check"] == check]


@pytest.fixture
def managed(
    postgres: str, database: str, kafka: str, topic_prefix: str, redis_url: str, tmp_path: Path, run_cdc: RunCdc
) -> Iterator[Managed]:
    made = Managed(database, tmp_path, run_cdc, *(f"{fresh_name()}_{what}" for what in ROLES))
    with psycopg.connect(database, autocommit=True) as superuser:
        for statement in (
            "create role {owner}", "create role {admin} createrole replication", "grant {owner} to {admin}",
            "grant create on database {database} to {owner}, {admin} with grant option",
        ):  # fmt: skip
            names = {"owner": made.owner, "admin": made.admin, "database": superuser.info.dbname}
            superuser.execute(sql.SQL(statement).format(**{k: sql.Identifier(v) for k, v in names.items()}))
    made.as_role(made.owner, TABLES)
    command = ("--dsn", database, "--name", topic_prefix, "--role", made.role, "--kafka", kafka)
    done = run_cdc("config", "new", *command, "--sink", f"redis={redis_url}", cwd=tmp_path)
    assert done.returncode == Exit.OK, done.stderr
    made.as_role(made.admin, (tmp_path / "cdc-rights.sql").read_text(encoding="utf-8"))
    with psycopg.connect(database, autocommit=True) as superuser:
        superuser.execute(sql.SQL("alter role {} password 'secret'").format(sql.Identifier(made.role)))
    yield made
    with psycopg.connect(database, autocommit=True) as superuser:
        superuser.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = current_database()"
        )
        for name in (made.role, made.admin, made.owner):
            superuser.execute(sql.SQL("drop owned by {} cascade").format(sql.Identifier(name)))
        for name in (made.role, made.admin, made.owner):
            superuser.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.mark.slow
def test_x6_y5_an_administrator_gives_what_capture_needs(managed: Managed) -> None:
    """Without a superuser: all but the statistics, which are not the administrator's to give, and check says so."""
    checked = managed.cdc("check", "--json")
    assert '"level": "fail"' not in checked.stdout, checked.stdout
    assert managed.findings("replication_right")[0][0] == "ok"
    with psycopg.connect(managed.dsn) as other:
        other.execute("select pg_current_xact_id()")
        ((level, message),) = managed.findings("transactions")
    assert level == "warn"
    assert "not known" in message
    later = "create table sales.events_2 partition of sales.events for values from ('2026-02-01') to ('2026-03-01')"
    managed.as_role(managed.owner, later)
    assert [level for level, message in managed.findings("table") if "events" in message] == ["ok"]
    assert '"level": "fail"' not in managed.cdc("check", "--json").stdout


@pytest.mark.slow
def test_y8_what_is_the_owners_is_said_in_sql(managed: Managed) -> None:
    """A table that comes later, and the end: the role does what it may, and names the rest."""
    for command in (("init",), ("snapshot", "--workers", "1")):
        done = managed.cdc(*command)
        assert done.returncode == Exit.OK, done.stderr
    managed.as_role(managed.owner, "create table sales.later (id int primary key)")
    managed.as_role(managed.owner, f"grant select on sales.later to {managed.role}")
    config = managed.folder / "cdc.toml"
    config.write_text(config.read_text(encoding="utf-8").replace("tables = [", 'tables = ["sales.later",'))
    refused = managed.cdc("init")
    assert_refused(refused, Exit.CONFIG, "may not change the publication", "alter publication", '"sales"."later"')
    managed.as_role(managed.admin, refused.stderr.partition("run: ")[2])
    again = managed.cdc("init")
    assert again.returncode == Exit.OK, again.stderr
    dropped = managed.cdc("drop", "--yes", "--topics")
    assert "dropped" in dropped.stderr + dropped.stdout
    assert_refused(dropped, Exit.CONFIG, "may not change the publication", "drop publication if exists")
    with psycopg.connect(managed.dsn) as session:
        assert session.execute(
            "select count(*) from pg_replication_slots where database = current_database()"
        ).fetchone() == (0,)
    managed.as_role(managed.admin, dropped.stderr.partition("run: ")[2])
    ended = managed.cdc("drop", "--yes")
    assert ended.returncode == Exit.OK, ended.stderr


def test_y8_a_role_without_a_session_left_is_told_its_limit(managed: Managed) -> None:
    with psycopg.connect(managed.dsn, autocommit=True) as superuser:
        superuser.execute(sql.SQL("alter role {} connection limit 0").format(sql.Identifier(managed.role)))
    done = managed.cdc("init")
    assert_refused(done, Exit.UNAVAILABLE, "too many connections for role", "connection limit")
