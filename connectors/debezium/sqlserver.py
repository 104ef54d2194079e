"""Options for SQL Server, by its change tables."""

from __future__ import annotations

from cdc.settings.model import DebeziumSettings, Settings
from connectors.debezium.address import address, connection_options, database_name
from connectors.debezium.binlog import history_options
from connectors.debezium.captured_tables import table_list
from connectors.debezium.postgres_options import signal_options

_PORT = 1433


def options(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """The connector for SQL Server 2017 and later, with CDC enabled on the database and on each table.

    TLS is asked for unless the dsn says ``sslmode=disable``.
    """
    database = database_name(settings, _PORT)
    config = {
        "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
        **connection_options(settings, _PORT),
        "database.names": database,
        "database.encrypt": "false" if address(settings, _PORT).get("sslmode") == "disable" else "true",
        "table.include.list": table_list(settings.source.tables, settings.source.exclude),
        "include.schema.changes": "false",
        "skipped.operations": "t",
        **history_options(settings),
        **signal_options(settings, debezium, []),
    }
    config.pop("read.only", None)
    return config
