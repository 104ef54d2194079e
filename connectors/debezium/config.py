"""The connector's configuration from ``cdc.toml``: pure, so that it can be printed, compared and tested.

One module per database (postgres, binlog, mongodb, oracle, sqlserver) says what is particular to it; what all
share stands here. Later parts win: shared, the database's own, then ``[debezium.options]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from cdc.errors import ConfigError
from cdc.settings import DebeziumSettings, Settings
from cdc.topic_specs import table_topic_spec
from connectors.debezium import binlog, mongodb, oracle, postgres, sqlserver
from connectors.debezium.regex import quoted

ConnectorConfig = dict[str, str]

_REFERENCE = re.compile(r"\$\{[A-Za-z0-9_.-]+:(?:[^}$]|\$(?!\{))*\}")
_SECRET = re.compile(r"pass(word|phrase)|secret|token|credential|jaas|private[._]?key", re.IGNORECASE)
_JSON = "org.apache.kafka.connect.json.JsonConverter"

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
    """The ``[debezium]`` section; ConfigError where there is none."""
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
        **_renamed_topics(settings),
        **_producer(settings),
        **_DATABASES[debezium.database](settings, debezium),
        **debezium.options,
    }
    if debezium.database_password is not None:
        config.setdefault(_password_option(debezium), debezium.database_password)
    elif settings.source.password is not None and _password_option(debezium) not in config:
        raise ConfigError(
            "[debezium] database_password is not set, and the password in [source] is read by cdc alone",
            hint='write it as Kafka Connect finds it: database_password = "${file:/secrets/db.properties:password}"',
        )
    refuse_plain_secrets(config)
    return dict(sorted(config.items()))


def refuse_plain_secrets(config: Mapping[str, str]) -> None:
    """ConfigError for a secret that stands as itself: whoever reaches the REST API could read it."""
    for option, value in config.items():
        if is_secret(option) and not _REFERENCE.search(value):
            raise ConfigError(
                f"the connector option {option} must not hold the secret itself",
                hint='name where Kafka Connect finds it: "${file:/path/to.properties:key}" or "${env:NAME}"',
            )


def is_secret(option: str) -> bool:
    """Whether an option by this name holds a secret."""
    return _SECRET.search(option) is not None


def masked(option: str, value: str | None) -> str | None:
    """The value as it may be printed: a reference as it is, a secret as ``***``."""
    if value is None or not is_secret(option) or _REFERENCE.fullmatch(value):
        return value
    return "***"


def changed_options(wanted: Mapping[str, str], running: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """option -> (running, wanted) where they differ, masked; Connect's own ``name`` left out."""
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
        "key.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": _JSON,
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


def _renamed_topics(settings: Settings) -> ConnectorConfig:
    """``[source.topics]``: one router per renamed table."""
    config: ConnectorConfig = {}
    names: list[str] = []
    for number, (table, topic) in enumerate(sorted(settings.source.topics.items()), start=1):
        name = f"topic{number}"
        names.append(name)
        usual = re.sub(r"[^a-zA-Z0-9._-]", "_", f"{settings.name}.{table}")
        config |= {
            f"transforms.{name}.type": "org.apache.kafka.connect.transforms.RegexRouter",
            f"transforms.{name}.regex": quoted(usual),
            f"transforms.{name}.replacement": topic,
        }
    return config | ({"transforms": ",".join(names)} if names else {})


def _producer(settings: Settings) -> ConnectorConfig:
    """The same guarantees as the native writer's. Java's default partitioner is murmur2 of the key already."""
    return {
        "producer.override.acks": "all",
        "producer.override.compression.type": settings.log.compression,
        "producer.override.max.request.size": str(settings.log.max_message_bytes + 64 * 1024),
    }


def _password_option(debezium: DebeziumSettings) -> str:
    return "mongodb.password" if debezium.database == "mongodb" else "database.password"
