"""Options for MySQL and MariaDB, which share the binlog and most of their connector."""

from __future__ import annotations

import zlib

from cdc.process.errors import ConfigError
from cdc.settings.model import DebeziumSettings, Settings
from connectors.debezium.address import connection_options
from connectors.debezium.captured_tables import quoted, table_list
from connectors.debezium.postgres_options import signal_options

_PORT = 3306


def mysql_options(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """The connector for MySQL 8.0 and later, or a compatible server."""
    config = _binlog_options(settings, debezium)
    return config | {"connector.class": "io.debezium.connector.mysql.MySqlConnector"}


def mariadb_options(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """The connector for MariaDB 10.6 and later."""
    config = _binlog_options(settings, debezium)
    return config | {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector"}


def server_id(name: str) -> int:
    """A replica's id for this pipeline: stable, and apart from the small numbers that servers use.

    >>> 10_000 <= server_id("shop") < 2**31
    True
    """
    return 10_000 + zlib.crc32(name.encode()) % (2**31 - 10_000)


def databases(tables: tuple[str, ...]) -> list[str]:
    """The databases that the tables live in. ConfigError for a table without one."""
    found = []
    for table in tables:
        database, dot, _ = table.partition(".")
        if not dot or "*" in database:
            raise ConfigError(f'the table "{table}" names no database', hint='write "database.table" or "database.*"')
        if database not in found:
            found.append(database)
    return found


def _binlog_options(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    tables = [*settings.source.tables]
    config = {
        **connection_options(settings, _PORT),
        "database.server.id": str(server_id(settings.name)),
        "database.include.list": ",".join(f"(?-i){quoted(name)}" for name in databases(settings.source.tables)),
        "include.schema.changes": "false",
        "skipped.operations": "t",
        # A row without a primary key has a null key, which a compacted topic refuses: see the manual.
        **history_options(settings),
        **signal_options(settings, debezium, tables),
        "table.include.list": table_list(tables, settings.source.exclude),
    }
    if debezium.signal_table is None:
        # Watermarks by GTID. Without GTIDs a signal table is needed for incremental snapshots.
        config["read.only"] = "true"
    if settings.log.encoding == "readable":
        config["bigint.unsigned.handling.mode"] = "precise"
        if debezium.schemas:
            # As ISO text a TIME below zero or above a day would be NULL. The schema says what the number is.
            config["time.precision.mode"] = "adaptive_time_microseconds"
    return config


def history_options(settings: Settings) -> dict[str, str]:
    """``schema.history.internal.*``: a topic that must never be compacted nor deleted from."""
    return {
        "schema.history.internal.kafka.topic": f"{settings.name}.schema-history",
        "schema.history.internal.kafka.bootstrap.servers": settings.log.bootstrap_servers,
        # With the captured tables' alone, the first change of a table that is added later stops the connector.
        "schema.history.internal.store.only.captured.tables.ddl": "false",
        "schema.history.internal.store.only.captured.databases.ddl": "true",
    }
