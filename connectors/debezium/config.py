"""The connector's configuration from ``cdc.toml``: pure, so that it can be printed, compared and checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cdc.capture.topic_specs import table_topic_spec
from cdc.process.errors import ConfigError
from cdc.record.topic_names import TableName, collisions
from cdc.settings.client_options import TOKEN, java_options
from cdc.settings.model import DebeziumSettings, LogSettings, Settings
from cdc.wire.debezium.reading import DebeziumReader
from cdc.wire.format import UNAVAILABLE
from connectors.debezium.databases import (
    captures,
    database_options,
    is_pattern,
    named_tables,
    quoted,
    spelled,
    topic_of,
    usual_topic,
)
from connectors.debezium.secrecy import is_reference, masked, refuse_plain_secrets

ConnectorConfig = dict[str, str]

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"
_RESELECT = "io.debezium.processors.reselect.ReselectColumnsPostProcessor"
_FLAT = (".ExtractNewRecordState", ".ExtractNewDocumentState")
"""Ends of the classes that make flat rows."""


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

    Raises ConfigError where the settings do not fit the database or each other, where a secret would stand in it, and
    for an option of ``[debezium.options]`` whose records the sinks could not read or find.
    """
    debezium = debezium_settings(settings)
    require_nameable(settings)
    _refuse_unreadable(settings, debezium)
    topics = table_topic_spec(settings.log, "")
    config = {
        "tasks.max": "1",
        "topic.prefix": settings.name,
        "snapshot.mode": debezium.snapshot_mode,
        "tombstones.on.delete": "true",
        "heartbeat.interval.ms": str(int(debezium.heartbeat.total_seconds() * 1000)),
        **_encodings(settings),
        "key.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": _JSON,
        "value.converter.schemas.enable": str(debezium.schemas).lower(),
        # Without it a NULL is written as the column's default.
        "value.converter.replace.null.with.default": "false",
        # Debezium's own types leave out a length, a precision and what kind of text it is.
        **({"column.propagate.source.type": ".*"} if debezium.schemas else {}),
        # Topics as cdc init makes them. Heartbeats get one partition of their own.
        "topic.creation.default.partitions": str(topics.partitions),
        "topic.creation.default.replication.factor": str(topics.replication_factor),
        **{f"topic.creation.default.{option}": value for option, value in topics.config.items()},
        "topic.creation.groups": "heartbeat",
        "topic.creation.heartbeat.include": "__debezium-heartbeat\\..*",
        "topic.creation.heartbeat.partitions": "1",
        "topic.creation.heartbeat.replication.factor": str(topics.replication_factor),
        "topic.creation.heartbeat.cleanup.policy": "compact",
        # The guarantees of the native writer. Java's default partitioner is murmur2 of the key already.
        "producer.override.acks": "all",
        "producer.override.compression.type": settings.log.compression,
        "producer.override.max.request.size": str(settings.log.max_message_bytes + 64 * 1024),
        **database_options(settings, debezium),
    }
    config |= _kafka_clients(settings.log, debezium, config | debezium.options) | debezium.options
    config |= _routers(settings, config.get("transforms", ""))
    password = "mongodb.password" if debezium.database == "mongodb" else "database.password"
    if debezium.database_password is not None:
        config.setdefault(password, debezium.database_password)
    elif settings.source.password is not None and password not in config:
        raise ConfigError(
            "[debezium] database_password is not set, and the password in [source] is read by cdc alone",
            hint='write it as Kafka Connect finds it: database_password = "${file:/secrets/db.properties:password}"',
        )
    refuse_plain_secrets(config)
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
    flat = any(value.endswith(_FLAT) for value in debezium.options.values())
    decimals = (_encodings(settings) | debezium.options).get("decimal.handling.mode", "precise")
    return DebeziumReader(documents=debezium.database == "mongodb" and not flat, precise=decimals == "precise")


def may_hold_debezium(settings: Settings) -> bool:
    """Whether the topics may hold records of Debezium's: it writes them, or a handover is or was possible."""
    own = settings.debezium is not None and settings.debezium.database == "postgres"
    return own or settings.source.kind == "debezium"


# Tables and topics by the settings alone.


def require_nameable(settings: Settings, met: Iterable[TableName] = ()) -> None:
    """ConfigError for the first of :func:`unnameable`."""
    for problem, hint in unnameable(settings, met):
        raise ConfigError(problem, hint=hint)


def unnameable(settings: Settings, met: Iterable[TableName] = ()) -> Iterator[tuple[str, str]]:
    """Each sentence and its hint: a table whose topic is not its own, or that no source is asked for.

    ``met``: the tables that the patterns of ``[source] tables`` meet, where that is known. A router of Kafka Connect
    sees the usual topic, and behind another router the topic that that one made. So no two tables may have one usual
    topic, and a topic of another name may not be a usual one.
    """
    debezium, hint = settings.debezium, '[source.topics] gives one of them another: "schema.table" = "topic"'
    if settings.source.kind == "debezium" and debezium is not None and debezium.database != "postgres":
        for text in filter(is_pattern, settings.source.tables):
            yield (
                f'[source] tables: "{text}" is a pattern, and a {debezium.database} source is not asked for its tables',
                "name each table",
            )
    renamed = [TableName(*table.rsplit(".", 1)) for table in map(spelled, settings.source.topics)]
    meant = [table for table in (*named_tables(settings), *renamed) if captures(settings, str(table))]
    tables = dict.fromkeys([*meant, *met])
    yield from ((one, hint) for one in collisions(settings.name, [(t, topic_of(settings, str(t))) for t in tables]))
    if settings.source.kind != "debezium":
        return
    alike = "[source] exclude leaves one of them out; a pipeline of its own can have it"
    yield from ((one, alike) for one in collisions(settings.name, [(t, usual_topic(settings, str(t))) for t in tables]))
    for table, topic in settings.source.topics.items():
        if topic.startswith((f"{settings.name}.", "__debezium-heartbeat.")):
            yield (
                f"the table {table} would use the topic {topic}, and that name is Debezium's to give",
                f"let it begin otherwise than {settings.name}., as all of the connector's do",
            )


def _routers(settings: Settings, theirs: str) -> ConnectorConfig:
    """A router for each table of ``[source.topics]``, behind the user's own transformations."""
    config, names = ConnectorConfig(), [theirs] if theirs else []
    for number, (table, topic) in enumerate(sorted(settings.source.topics.items()), 1):
        names.append(f"topic{number}")
        usual = quoted(usual_topic(settings, spelled(table)))
        config |= {
            f"transforms.topic{number}.type": _ROUTER,
            f"transforms.topic{number}.regex": usual,
            f"transforms.topic{number}.replacement": topic,
        }
    return config | ({"transforms": ",".join(names)} if config else {})


# The connector's own clients of Kafka: one reads signals, two keep the schema history. Neither takes the worker's
# security settings. They get those of ``[log.client]``, in Java's words.

_SIGNALS = "signal.consumer."
_HISTORY = "schema.history.internal."
_CARRIED = ("security.", "sasl.", "ssl.", "client.dns.lookup")
_SECRETS = ("sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.pem", "ssl.key.password")
_KEY_FILE, _KEY = "ssl.key.location", "ssl.key.pem"


def _kafka_clients(log: LogSettings, debezium: DebeziumSettings, config: Mapping[str, str]) -> ConnectorConfig:
    """TLS and login of the clients that ``config`` makes use of, for Kafka Connect to resolve.

    A client whose ``security.protocol`` stands in ``[debezium.options]`` gets nothing. Raises ConfigError for a
    secret without a reference, and for an option that Java has no word for.
    """
    signals = [_SIGNALS] if "kafka" in config.get("signal.enabled.channels", "") else []
    history = [f"{_HISTORY}producer.", f"{_HISTORY}consumer."] if any(o.startswith(_HISTORY) for o in config) else []
    clients = [prefix for prefix in (*signals, *history) if f"{prefix}security.protocol" not in debezium.options]
    options = java_options(_client(log, debezium.kafka_secrets)) if clients else {}
    return {f"{prefix}{name}": value for prefix in clients for name, value in options.items()}


def _client(log: LogSettings, references: Mapping[str, str]) -> dict[str, str | int | bool]:
    """``[log.client]`` with references in the place of secrets."""
    client = {name: value for name, value in log.client.items() if name.startswith(_CARRIED)}
    secret = {name for name in client if name in _SECRETS}
    # A token goes to no Java client, which says so itself.
    secret |= {name for name in log.client_secrets if name.startswith(_CARRIED) and name != TOKEN}
    if client.pop(_KEY_FILE, None) is not None:
        secret.add(_KEY)
    for name in sorted(secret - references.keys()):
        raise ConfigError(
            f"the connector needs {name} for its own clients of Kafka, and the one in [log] is read by cdc alone",
            hint="write it as Kafka Connect finds it: "
            f'[debezium.kafka_secrets] "{name}" = "${{file:/secrets/kafka.properties:key}}"',
        )
    for name, value in references.items():
        if not is_reference(value) or '"' in value or "\\" in value:
            raise ConfigError(
                f"[debezium.kafka_secrets] {name} is not a reference that Kafka Connect resolves",
                hint=f'write it as "{name}" = "${{file:/secrets/kafka.properties:key}}" or "${{env:NAME}}"',
            )
    return client | dict(references)


# Options of the user's whose records the sinks could not read or find.

_LISTS = (
    *("table.include.list", "table.exclude.list", "collection.include.list", "collection.exclude.list"),
    *("schema.include.list", "schema.exclude.list"),
)
_LACKS = "stores would lack what {} passes over"
_MISREAD = {
    "binary.handling.mode": (("hex", "base64-url-safe"), "sinks would take its text for base64"),
    "time.precision.mode": (("structured",), "sinks read no times of several members"),
    "key.converter.decimal.format": (("numeric",), "sinks read decimals of bytes or text"),
    "value.converter.decimal.format": (("numeric",), "sinks read decimals of bytes or text"),
    "event.processing.failure.handling.mode": (("skip", "warn", "ignore"), _LACKS.format("the connector")),
    "inconsistent.schema.handling.mode": (("skip", "warn", "ignore"), _LACKS.format("the connector")),
    "capture.mode": (
        ("change_streams", "change_streams_with_pre_image"),
        "stores take whole documents, and updates would bring what changed alone",
    ),
    "errors.tolerance": (("all",), _LACKS.format("Kafka Connect")),
}
"""Values, in any case, whose records look as if they could be read, or are missing without a word."""
_DELETES = ".delete.tombstone.handling.mode"
"""Of a transformation that makes flat rows. ``tombstone`` unless set."""
_MODES = {
    "decimal.handling.mode": ("string", "precise"),
    "time.precision.mode": ("isostring", "adaptive"),
    "interval.handling.mode": ("string", "numeric"),
}
"""How values are written, in the readable encoding and in Debezium's own."""
_NAMINGS = ("io.debezium.schema.SchemaTopicNamingStrategy", "io.debezium.schema.DefaultTopicNamingStrategy")
_ROW_OPERATIONS = frozenset("cud")


def _refuse_unreadable(settings: Settings, debezium: DebeziumSettings) -> None:
    for option, why, hint in _faults(settings, debezium):
        raise ConfigError(f"[debezium.options] {option}: {why}", hint=hint)
    if not debezium.schemas and debezium.database != "postgres":
        raise ConfigError(
            f"[debezium] schemas = false needs types from a catalog, and a {debezium.database} source is not asked",
            hint="leave schemas out: each value then carries its own types",
        )


def _faults(settings: Settings, debezium: DebeziumSettings) -> Iterator[tuple[str, str, str]]:
    """option, why, what to do."""
    agreed = {
        "topic.prefix": (settings.name, "name in the settings is the prefix of all topics"),
        "topic.delimiter": (".", "leave it out"),
        "key.converter": (_JSON, "leave it out: sinks read JSON alone"),
        "value.converter": (_JSON, "leave it out: sinks read JSON alone"),
        "unavailable.value.placeholder": (UNAVAILABLE, "leave it out: another would reach the stores as a value"),
    }
    for option, value in debezium.options.items():
        word = value.strip().lower()
        if option in agreed and value != agreed[option][0]:
            yield option, f"sinks know {agreed[option][0]} alone, not {value}", agreed[option][1]
        if option in _LISTS:
            yield option, "sinks would look for other tables", "[source] tables and exclude say which are captured"
        values, why = _MISREAD.get(option, ((), ""))
        if word in values:
            yield option, f"{why} ({value})", "leave it out"
        if option.endswith(_DELETES) and word == "drop":
            yield option, "stores would keep what was deleted", "leave it out: each delete leaves a tombstone"
        modes = () if debezium.schemas else _MODES.get(option, ())
        if modes and word != modes[settings.log.encoding == "debezium"]:
            yield (
                option,
                f"without schemas nobody tells the sinks of {value}",
                "leave it out, or leave out schemas = false",
            )
        if option == "topic.naming.strategy" and value not in _NAMINGS:
            yield option, "sinks would look for other topics", "[source.topics] renames a table's topic"
        if option == "skipped.operations" and not _ROW_OPERATIONS.isdisjoint(map(str.strip, value.split(","))):
            yield option, f"stores would keep what {value} changed", "leave it out: t is skipped, and no row's change"
        if option == "tombstones.on.delete" and word == "false" and _lacks_deletes(debezium.options):
            yield option, "stores would keep what was deleted", "leave it out: flat rows have no other delete"


def _lacks_deletes(options: Mapping[str, str]) -> bool:
    """Whether a transformation of rows to flat ones leaves nothing of a delete but its tombstone."""
    flat = [name.removesuffix(".type") for name, value in options.items() if value.endswith(_FLAT)]
    return any(options.get(f"{name}{_DELETES}", "tombstone").strip().lower() == "tombstone" for name in flat)
