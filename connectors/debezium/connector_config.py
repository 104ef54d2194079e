"""The connector's configuration from ``cdc.toml``: pure, so that it can be printed, compared and tested.

One module per database (postgres, binlog, mongodb, oracle, sqlserver) says what is particular to it. Shared options
stand here. Later parts win: shared, the database's own, then ``[debezium.options]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cdc.errors import ConfigError
from cdc.settings import DebeziumSettings, Settings
from cdc.topic_specs import table_topic_spec
from cdc.wire.debezium.reading import DebeziumReader
from cdc.wire.format import UNAVAILABLE
from connectors.debezium import binlog, oracle, sqlserver
from connectors.debezium import mongodb_options as mongodb
from connectors.debezium import postgres_options as postgres
from connectors.debezium.agreed import FLAT, JSON_CONVERTER, joined_transforms, refuse_unreadable
from connectors.debezium.assignments import routers
from connectors.debezium.hidden_options import masked, refuse_plain_secrets
from connectors.debezium.kafka_clients import client_options

ConnectorConfig = dict[str, str]

_RESELECT = "io.debezium.processors.reselect.ReselectColumnsPostProcessor"
_PLACEHOLDER = "unavailable.value.placeholder"

_DATABASES: Mapping[str, Callable[[Settings, DebeziumSettings], ConnectorConfig]] = MappingProxyType(
    {
        "postgres": postgres.options,
        "mysql": binlog.mysql_options,
        "mariadb": binlog.mariadb_options,
        "mongodb": mongodb.options,
        "oracle": oracle.options,
        "sqlserver": sqlserver.options,
    }
)


def debezium_settings(settings: Settings) -> DebeziumSettings:
    """The ``[debezium]`` section. ConfigError where there is none."""
    if settings.debezium is None:
        raise ConfigError(
            "the settings have no [debezium] section",
            hint='add it with url = "http://127.0.0.1:8083", the address of Kafka Connect',
        )
    return settings.debezium


def connector_name(settings: Settings) -> str:
    """The connector's name on Kafka Connect."""
    return debezium_settings(settings).connector or settings.name


def signal_topic(settings: Settings) -> str:
    """The topic that takes signals for this connector: one partition, never compacted."""
    return f"{settings.name}.signals"


def connector_config(settings: Settings) -> ConnectorConfig:
    """Every option of the connector, as Kafka Connect takes it.

    Raises ConfigError where the settings do not fit the database, or where a secret would stand in it.
    """
    debezium = debezium_settings(settings)
    config = {
        "tasks.max": "1",
        "topic.prefix": settings.name,
        "snapshot.mode": debezium.snapshot_mode,
        "tombstones.on.delete": "true",
        "heartbeat.interval.ms": str(int(debezium.heartbeat.total_seconds() * 1000)),
        **_encodings(settings),
        **_converters(debezium),
        **_topic_creation(settings),
        **routers(settings),
        **_producer(settings),
        **_DATABASES[debezium.database](settings, debezium),
    }
    refuse_unreadable(settings, debezium)
    transforms = joined_transforms(config, debezium.options)
    config |= client_options(settings.log, debezium, config | debezium.options) | debezium.options | transforms
    if debezium.database_password is not None:
        config.setdefault(_password_option(debezium), debezium.database_password)
    elif settings.source.password is not None and _password_option(debezium) not in config:
        raise ConfigError(
            "[debezium] database_password is not set, and the password in [source] is read by cdc alone",
            hint='write it as Kafka Connect finds it: database_password = "${file:/secrets/db.properties:password}"',
        )
    refuse_plain_secrets(config)
    if config.get(_PLACEHOLDER, UNAVAILABLE) != UNAVAILABLE:
        raise ConfigError(
            f"[debezium.options] {_PLACEHOLDER} is not {UNAVAILABLE}, the one that the sinks know",
            hint=f"leave {_PLACEHOLDER} out: another one would reach the stores as a value",
        )
    return dict(sorted(config.items()))


def changed_options(wanted: Mapping[str, str], running: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """option -> (running, wanted) where they differ, masked. Connect's own ``name`` left out."""
    options = sorted((wanted.keys() | running.keys()) - {"name"})
    return {
        option: (masked(option, running.get(option)), masked(option, wanted.get(option)))
        for option in options
        if wanted.get(option) != running.get(option)
    }


def _encodings(settings: Settings) -> ConnectorConfig:
    if settings.log.encoding == "debezium":
        return {}
    return {"decimal.handling.mode": "string", "time.precision.mode": "isostring"}


def _converters(debezium: DebeziumSettings) -> ConnectorConfig:
    config = {
        "key.converter": JSON_CONVERTER,
        "key.converter.schemas.enable": "false",
        "value.converter": JSON_CONVERTER,
        "value.converter.schemas.enable": str(debezium.schemas).lower(),
        # Without it a NULL is written as the column's default.
        "value.converter.replace.null.with.default": "false",
    }
    if debezium.schemas:
        # Debezium's own types leave out a length, a precision and what kind of text it is.
        config["column.propagate.source.type"] = ".*"
    return config


def _topic_creation(settings: Settings) -> ConnectorConfig:
    """Topics as ``cdc init`` makes them. Heartbeats get one partition of their own."""
    spec = table_topic_spec(settings.log, "")
    config = {
        "topic.creation.default.partitions": str(spec.partitions),
        "topic.creation.default.replication.factor": str(spec.replication_factor),
        "topic.creation.groups": "heartbeat",
        "topic.creation.heartbeat.include": "__debezium-heartbeat\\..*",
        "topic.creation.heartbeat.partitions": "1",
        "topic.creation.heartbeat.replication.factor": str(spec.replication_factor),
        "topic.creation.heartbeat.cleanup.policy": "compact",
    }
    return config | {f"topic.creation.default.{option}": value for option, value in spec.config.items()}


def _producer(settings: Settings) -> ConnectorConfig:
    """The same guarantees as the native writer's. Java's default partitioner is murmur2 of the key already."""
    return {
        "producer.override.acks": "all",
        "producer.override.compression.type": settings.log.compression,
        "producer.override.max.request.size": str(settings.log.max_message_bytes + 64 * 1024),
    }


def _password_option(debezium: DebeziumSettings) -> str:
    return "mongodb.password" if debezium.database == "mongodb" else "database.password"


def reselects(settings: Settings) -> bool:
    """Whether the connector has Debezium's post-processor that asks the database for NULLs again."""
    options = settings.debezium.options if settings.debezium is not None else {}
    made = [name.rpartition(".")[0] for name, value in options.items() if value == _RESELECT]
    return any(options.get(f"{name}.reselect.null.values", "true") == "true" for name in made)


def reader_of(settings: Settings) -> DebeziumReader:
    """The reader of the connector's records, as its settings make it write them."""
    debezium = settings.debezium
    if debezium is None:
        return DebeziumReader()
    flat = any(value.endswith(FLAT) for value in debezium.options.values())
    decimals = (_encodings(settings) | debezium.options).get("decimal.handling.mode", "precise")
    return DebeziumReader(documents=debezium.database == "mongodb" and not flat, precise=decimals == "precise")


def may_hold_debezium(settings: Settings) -> bool:
    """Whether the topics may hold records of Debezium's: it writes them, or a handover is or was possible."""
    own = settings.debezium is not None and settings.debezium.database == "postgres"
    return own or settings.source.kind == "debezium"
