"""Options for MongoDB, by change streams."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit, urlunsplit

from cdc.errors import ConfigError
from cdc.settings import DebeziumSettings, Settings
from connectors.debezium.regex import table_list

_FULL, _PATCHES, _PRE_IMAGES = "change_streams_update_full", "change_streams", "change_streams_with_pre_image"


def patch_cautions(settings: Settings) -> list[tuple[str, str]]:
    """Warnings for a connector whose updates are patches: (one sentence, what to do)."""
    debezium = settings.debezium
    if debezium is None or debezium.database != "mongodb":
        return []
    mode = debezium.options.get("capture.mode", _FULL)
    found: list[tuple[str, str]] = []
    if mode == _PATCHES:
        lag_s = int(settings.log.min_compaction_lag.total_seconds())
        message = (
            f"capture.mode={mode}: updates are patches, and those for a store that is built later, or whose sink was "
            f"away for {lag_s} s, go to the dead letters"
        )
        fix = f'capture.mode = "{_FULL}" or "{_PRE_IMAGES}", or a [log] min_compaction_lag longer than a sink is away'
        found.append((message, fix))
    if mode == _PRE_IMAGES:
        message = (
            f"capture.mode={mode}: updates of a collection without pre-images are patches that need a held document"
        )
        found.append((message, "db.runCommand({collMod: NAME, changeStreamPreAndPostImages: {enabled: true}})"))
    if mode in (_PATCHES, _PRE_IMAGES) and debezium.options.get("json.serialization.mode") == "legacy":
        message = "json.serialization.mode=legacy: patches have dates as text and long integers plain, documents do not"
        found.append((message, "leave it out of [debezium.options]: strict is generated"))
    return found


def options(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """The connector for a replica set or a sharded cluster, MongoDB 6.0 and later.

    Raises ConfigError for a dsn that is no MongoDB URL or holds a password, and for a collection without its database.

    Updates carry the whole document after the change (``change_streams_update_full``): a compacted topic has to hold
    whole rows, or compaction destroys what a patch leaves out. Where the options ask for patches all the same,
    documents and patches are written alike (``strict``). Before 3.7 a connector knows no such option, and a patch's
    dates are text and its long integers plain numbers.
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
