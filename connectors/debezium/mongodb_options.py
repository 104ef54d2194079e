"""Options for MongoDB, by change streams."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit, urlunsplit

from cdc.process.errors import ConfigError
from cdc.settings.model import DebeziumSettings, Settings
from connectors.debezium.captured_tables import table_list

_FULL = "change_streams_update_full"


def options(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """The connector for a replica set or a sharded cluster, MongoDB 6.0 and later.

    Raises ConfigError for a dsn that is no MongoDB URL or holds a password, and for a collection without its database.

    Updates carry the whole document after the change (``change_streams_update_full``): a compacted topic has to hold
    whole rows.
    """
    url = urlsplit(settings.source.dsn)
    if url.scheme not in ("mongodb", "mongodb+srv") or not url.hostname:
        raise ConfigError(
            "[source] dsn is not a MongoDB connection string",
            hint='write it as dsn = "mongodb://cdc@127.0.0.1:27017/?replicaSet=rs0"',
        )
    if url.password is not None:
        raise ConfigError("[source] dsn holds a password", hint="use [debezium] database_password")
    for collection in settings.source.tables:
        if "." not in collection:
            raise ConfigError(f'the collection "{collection}" names no database', hint='write "database.collection"')
    user, _, hosts = url.netloc.rpartition("@")
    config = {
        "connector.class": "io.debezium.connector.mongodb.MongoDbConnector",
        "mongodb.connection.string": urlunsplit(url._replace(netloc=hosts, path=url.path or "/")),
        "capture.mode": _FULL,
        "json.serialization.mode": "strict",
        "collection.include.list": table_list(settings.source.tables, settings.source.exclude),
        "signal.enabled.channels": "kafka",
        "signal.kafka.topic": f"{settings.name}.signals",
        "signal.kafka.bootstrap.servers": settings.log.bootstrap_servers,
        "signal.kafka.groupId": f"{settings.name}-signals",
    }
    if debezium.signal_table is not None:
        config |= {"signal.enabled.channels": "source,kafka", "signal.data.collection": debezium.signal_table}
    return config | ({"mongodb.user": unquote(user)} if user else {})
