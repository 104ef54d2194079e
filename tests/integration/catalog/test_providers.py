"""A server as a provider gives it: functions that are taken away or answer otherwise, rights that come another way.

The functions and views are exchanged in a database of its own, which a superuser of plain Postgres may do. What a
provider's own machinery does is not shown here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cdc.checks.findings import Finding, Level
from cdc.checks.postgres import check_source
from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.server_facts import SourceFacts
from cdc.settings.mask_rules import NO_MASKS
from cdc.settings.model import Settings, parse
from connectors.postgres.server.catalog_facts import read_source
from connectors.postgres.server.connections import connect
from connectors.postgres.server.cut_reader import SourceCut

RAISING = """
create function pg_catalog.pg_current_wal_insert_lsn() returns pg_lsn language plpgsql as
    $$ begin raise exception 'not here' using errcode = '{code}'; end $$
"""
EXCHANGED_ROLES = """
alter view pg_catalog.pg_roles rename to kept_roles;
create view pg_catalog.pg_roles as
    select rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, {attribute} as rolreplication, oid
    from pg_catalog.kept_roles;
grant select on pg_catalog.pg_roles to public;
"""
EXCHANGED_SETTINGS = """
alter view pg_catalog.pg_settings rename to kept_settings;
create view pg_catalog.pg_settings as
    select name, setting from pg_catalog.kept_settings union all select 'rds.logical_replication', 'on';
grant select on pg_catalog.pg_settings to public;
"""


class Server:
    """A database whose catalog is changed, and a role that captures from it."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.role = f"r{secrets.token_hex(4)}"
        self._passfile = folder / "pgpass"

    def sql(self, *statements: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as owner:
            owner.execute("set allow_system_table_mods = on")
            for statement in statements:
                owner.execute(statement.encode())

    def make_role(self, attributes: str) -> None:
        password = secrets.token_hex(8)
        self.sql(f"create role {self.role} login {attributes} password '{password}'")
        self._passfile.write_text(f"*:*:*:{self.role}:{password}\n")
        self._passfile.chmod(0o600)

    @property
    def settings(self) -> Settings:
        dsn = make_conninfo(self.dsn, user=self.role, passfile=str(self._passfile))
        source = {"dsn": dsn, "tables": ["public.*"]}
        return parse({"name": "shop", "source": source, "log": {"bootstrap_servers": "127.0.0.1:1"}})

    def facts(self) -> SourceFacts:
        with closing(connect(self.settings.source)) as session:
            return read_source(session, self.settings)

    def check(self) -> dict[str, Finding]:
        """The last finding of each check."""
        return {finding.check: finding for finding in check_source(self.facts(), self.settings, None)}


@pytest.fixture
def server(database: str, tmp_path: Path) -> Iterator[Server]:
    made = Server(database, tmp_path)
    made.sql("create table orders (id int primary key)", "grant select on orders to public")
    yield made
    made.sql(f"drop owned by {made.role}", f"drop role {made.role}")


def test_x1_a_right_that_no_attribute_shows_is_tried(server: Server) -> None:
    """The catalog says that the role may not replicate, and a session is opened all the same: RDS's way."""
    server.make_role("replication")
    server.sql(*EXCHANGED_ROLES.format(attribute="false").split(";\n")[:-1], *EXCHANGED_SETTINGS.split(";\n")[:-1])
    facts, found = server.facts(), server.check()
    assert not facts.server.granted_replication
    assert facts.server.provider.name == "Amazon RDS or Aurora"
    assert found["replication_right"].level is Level.OK
    assert "on Amazon RDS or Aurora" in found["version"].message


def test_x1_a_refusal_is_answered_as_the_provider_gives_it(server: Server) -> None:
    server.make_role("")
    refused = server.check()["replication_right"]
    assert (refused.level, refused.fix) == (Level.FAIL, f'alter role "{server.role}" replication;')
    assert "refuses a replication session" in refused.message
    server.sql(*EXCHANGED_SETTINGS.split(";\n")[:-1])
    assert server.check()["replication_right"].fix == f'grant rds_replication to "{server.role}";'


def test_x1_an_attribute_that_lies_is_not_believed(server: Server) -> None:
    """The catalog shows the right, and the server refuses: it is said as it was seen, without the SQL of the right."""
    server.make_role("")
    server.sql(*EXCHANGED_ROLES.format(attribute="true").split(";\n")[:-1])
    refused = server.check()["replication_right"]
    assert refused.level is Level.FAIL
    assert "though the catalog says" in refused.message
    assert "alter role" not in refused.fix


@pytest.mark.parametrize("code", ["55000", "42501", "42883", "0A000"])
def test_x2_a_function_that_is_taken_away_costs_its_fact(server: Server, code: str) -> None:
    """As Aurora before logical replication is switched on. All else is known, and the check says what is not."""
    server.make_role("replication")
    server.sql(
        "alter function pg_catalog.pg_current_wal_insert_lsn() rename to kept_insert_lsn", RAISING.format(code=code)
    )
    facts, found = server.facts(), server.check()
    assert (facts.server.wal_lsn, facts.server.timeline) == (None, 1)
    assert found["wal_lsn"].level is Level.FAIL
    assert "pg_current_wal_insert_lsn" in found["wal_lsn"].message
    assert found["table"].level is Level.OK


def test_x2_a_fence_is_the_servers_place_whatever_a_message_says(server: Server) -> None:
    """Aurora's answer to pg_logical_emit_message is of another numbering. A fence of it was never reached."""
    server.make_role("replication")
    server.sql(
        "alter function pg_catalog.pg_logical_emit_message(bool, text, text, bool) rename to kept_emit_message",
        "create function pg_catalog.pg_logical_emit_message(bool, text, text, bool default false) returns pg_lsn "
        "language sql as $$ select pg_catalog.kept_emit_message($1, $2, $3, $4) + 1e15::numeric $$",
    )
    source = SourceCut(
        lambda autocommit: connect(server.settings.source, autocommit=autocommit), "none", SYSTEM_CLOCK, masks=NO_MASKS
    )
    with closing(source):
        first = source.insert_lsn()
        cut, fence = source.cut(), source.fence()
        assert first <= cut.settled <= cut.fence <= fence <= source.insert_lsn()


def test_x6_sessions_that_are_hidden_are_said_to_be(server: Server) -> None:
    """Another role's transaction, open for how long the role cannot see. Walsenders are counted all the same."""
    server.make_role("replication")
    with psycopg.connect(server.dsn) as other, psycopg.connect(server.dsn, replication="database"):
        other.execute("select pg_current_xact_id()")
        facts, found = server.facts(), server.check()
        assert facts.hidden
        assert facts.server.senders_used > 0
        assert found["transactions"].level is Level.WARN
        assert "not known" in found["transactions"].message
        other.rollback()
        assert server.check()["transactions"].level is Level.OK
        other.execute("select pg_current_xact_id()")
        server.sql(f"grant pg_read_all_stats to {server.role}")
        assert not server.facts().hidden
        assert server.check()["transactions"].level is Level.OK
