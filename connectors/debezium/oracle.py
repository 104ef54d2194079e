"""Options for Oracle, by LogMiner."""

from __future__ import annotations

from cdc.process.errors import ConfigError
from cdc.settings.model import DebeziumSettings, Settings
from connectors.debezium.address import connection_options, database_name
from connectors.debezium.binlog import history_options
from connectors.debezium.captured_tables import table_list
from connectors.debezium.postgres_options import signal_options

_PORT = 1521


def options(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """The connector for Oracle 19c and later. ``dbname`` is the (container) database's service name.

    Raises ConfigError for a signal table that is not named with its database and schema.

    The pluggable database, where there is one, stands in ``[debezium.options] "database.pdb.name"``. The JDBC driver is
    not Debezium's to give: it belongs into the worker's plugin folder.
    """
    if debezium.signal_table is not None and debezium.signal_table.count(".") != 2:
        raise ConfigError(
            "Oracle's signal table is named with its database",
            hint='write signal_table = "DATABASE.SCHEMA.TABLE"',
        )
    config = {
        "connector.class": "io.debezium.connector.oracle.OracleConnector",
        **connection_options(settings, _PORT),
        "database.dbname": database_name(settings, _PORT),
        "log.mining.strategy": "online_catalog",
        "table.include.list": table_list(settings.source.tables, settings.source.exclude),
        "include.schema.changes": "false",
        "skipped.operations": "t",
        "lob.enabled": "true",
        **history_options(settings),
        **signal_options(settings, debezium, []),
    }
    if settings.log.encoding == "readable":
        config["interval.handling.mode"] = "string"
    # Incremental snapshots of Oracle need the signal table.
    config.pop("read.only", None)
    return config
