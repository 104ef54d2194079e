"""Options for Postgres: the same slot, publication and topics as the native capture would use."""

from __future__ import annotations

from cdc.settings.model import DebeziumSettings, Settings
from connectors.debezium.address import address, connection_options, database_name
from connectors.debezium.captured_tables import table_list

_PORT = 5432
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")


def options(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """The connector for Postgres 10 and later, by pgoutput."""
    parts = address(settings, _PORT)
    tables = [*settings.source.tables]
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        **connection_options(settings, _PORT),
        "database.dbname": database_name(settings, _PORT),
        "plugin.name": "pgoutput",
        "slot.name": settings.slot,
        "publication.name": settings.publication,
        # cdc connect deploy makes it: Debezium would alter it at each start, by a statement that fails (see
        # connectors/connect/connector_publication.py).
        "publication.autocreate.mode": "disabled",
        # A compacted topic refuses the null key that Debezium gives a TRUNCATE, and the task would fail.
        "skipped.operations": "t",
        # Else the fences of cdc verify and cdc wait would be records of a topic of their own.
        "message.prefix.exclude.list": "cdc\\..*",
        # Else a column whose type Debezium does not know is left out without a word in the record.
        "include.unknown.datatypes": "true",
        **signal_options(settings, debezium, tables),
    }
    config["table.include.list"] = table_list(tables, settings.source.exclude)
    if settings.log.encoding == "readable":
        config["interval.handling.mode"] = "string"
    return config | {f"database.{name}": parts[name] for name in _TLS if name in parts}


def signal_options(settings: Settings, debezium: DebeziumSettings, tables: list[str]) -> dict[str, str]:
    """Signals through a topic, so that SELECT rights are enough, or through a table, which joins ``tables``."""
    config = {
        "signal.kafka.topic": f"{settings.name}.signals",
        "signal.kafka.bootstrap.servers": settings.log.bootstrap_servers,
        "signal.kafka.groupId": f"{settings.name}-signals",
    }
    if debezium.signal_table is None:
        return config | {"signal.enabled.channels": "kafka", "read.only": "true"}
    tables.append(debezium.signal_table)
    return config | {"signal.enabled.channels": "source,kafka", "signal.data.collection": debezium.signal_table}
