"""Reads a database for a proposal: its tables with their keys and sizes, and what the server lacks."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

from psycopg.conninfo import make_conninfo
from psycopg.rows import namedtuple_row

from cdc.operate.settings_proposal import FoundDatabase, FoundTable
from cdc.process.errors import ConfigError
from cdc.process.sql_files import load
from cdc.record.server_facts import ServerFacts
from cdc.settings.dsn import parts_of, secrets_in
from cdc.settings.model import Settings, parse
from connectors.postgres.server.catalog_facts import read_server
from connectors.postgres.server.catalog_shapes import CapturedTable, survey
from connectors.postgres.server.connections import Connection, connect
from connectors.postgres.server.table_problems import GENERATED_SINCE

PASSWORD = "CDC_SOURCE_PASSWORD"


def read_database(dsn: str, role: str) -> tuple[FoundDatabase, bool]:
    """Look at the database, and whether its publications can carry stored generated columns.

    ``dsn``: libpq's, of a role that may read the catalog. Its password is taken from CDC_SOURCE_PASSWORD, or as libpq
    finds it. ``role``: whom capture logs in as. ConfigError where the dsn holds a password or cannot be read, and
    where the database has no table. SourceError where no server answers.
    """
    given = _given(dsn)
    source: dict[str, Any] = {"dsn": dsn, "tables": ["*.*"]}
    if os.environ.get(PASSWORD):
        source["password"] = f"env:{PASSWORD}"
    settings = parse({"name": "cdc", "source": source, "log": {"bootstrap_servers": "127.0.0.1:9092"}})
    with closing(connect(settings.source, application_name="cdc config new")) as conn:
        server = read_server(conn)
        reached = {"host": conn.info.host, "port": str(conn.info.port), "dbname": conn.info.dbname}
        kept = {name: value for name, value in given.items() if name not in ("user", "passfile")}
        found = FoundDatabase(
            database=server.database, dsn=make_conninfo("", **{**reached, **kept, "user": role}),
            faults=tuple(_faults(server)), provider=server.provider, **_tables(conn, settings, server),
        )  # fmt: skip
        return found, conn.info.server_version >= GENERATED_SINCE


def _given(dsn: str) -> dict[str, str]:
    try:
        given = parts_of(dsn)
    except ConfigError:
        raise ConfigError(
            "--dsn is no libpq connection string", hint='write it as --dsn "host=127.0.0.1 dbname=shop user=me"'
        ) from None
    if secrets_in(given):
        raise ConfigError(
            "--dsn holds a password, which every user of this machine can read in the list of processes",
            hint=f"take it out, change it at the server, and set {PASSWORD} or use ~/.pgpass",
        )
    return given


def _tables(conn: Connection, settings: Settings, server: ServerFacts) -> dict[str, Any]:
    found = survey(conn, settings, lambda none: None)
    if not found.tables:
        raise ConfigError(
            f"the database {server.database} has no table that could be captured", hint="check dbname in --dsn"
        )
    with conn.cursor(row_factory=namedtuple_row) as cursor:
        query = load(__package__)["sizes"]
        oids = [table.oid for table in found.tables]
        rows: list[Any] = cursor.execute(query.encode(), {"oids": oids}).fetchall()
    sizes = {row.oid: row for row in rows}
    return {
        "tables": [_found(table, sizes.get(table.oid)) for table in found.tables],
        "undelivered": {out.table: out.reason for out in found.left_out},
    }


def _found(table: CapturedTable, sized: Any) -> FoundTable:
    return FoundTable(
        table=table.table, key=table.key, identity=table.identity,
        rows=None if sized is None or sized.rows is None else int(sized.rows),
        size_bytes=0 if sized is None else sized.size_bytes, toast_bytes=0 if sized is None else sized.toast_bytes,
        leaves=tuple(leaf.table for leaf in table.leaves), partitioned=table.partitioned,
        owner="" if sized is None else sized.owner,
        problems=tuple(problem.message for problem in table.problems),
    )  # fmt: skip


def _faults(server: ServerFacts) -> list[tuple[str, str]]:
    """The server's own hindrances to capture, each with its cure."""
    faults = []
    if not server.decodes:
        faults.append((f"wal_level is {server.wal_level}, and a slot needs logical", server.provider.logical))
    if server.slots_used >= server.slots_max:
        cure = server.provider.changing("max_replication_slots", server.slots_max + 2)
        faults.append((f"all {server.slots_max} replication slots are taken", cure))
    if server.in_recovery:
        faults.append(("this server is a standby", "name the primary in --dsn"))
    return faults
