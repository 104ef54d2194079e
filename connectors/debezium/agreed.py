"""Options that connector and sinks have to agree on: with another value records would be written that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cdc.errors import ConfigError
from cdc.settings import DebeziumSettings, Settings

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
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
FLAT = (".ExtractNewRecordState", ".ExtractNewDocumentState")
"""Ends of the classes that make flat rows."""
_NAMINGS = ("io.debezium.schema.SchemaTopicNamingStrategy", "io.debezium.schema.DefaultTopicNamingStrategy")
_ROW_OPERATIONS = frozenset("cud")


def refuse_unreadable(settings: Settings, debezium: DebeziumSettings) -> None:
    """ConfigError for the first option of ``[debezium.options]`` whose records the sinks could not read or find."""
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
        "key.converter": (JSON_CONVERTER, "leave it out: sinks read JSON alone"),
        "value.converter": (JSON_CONVERTER, "leave it out: sinks read JSON alone"),
    }
    for option, value in debezium.options.items():
        if option in agreed and value != agreed[option][0]:
            yield option, f"sinks know {agreed[option][0]} alone, not {value}", agreed[option][1]
        if option in _LISTS:
            yield option, "sinks would look for other tables", "[source] tables and exclude say which are captured"
        values, why = _MISREAD.get(option, ((), ""))
        if value.strip().lower() in values:
            yield option, f"{why} ({value})", "leave it out"
        if option.endswith(_DELETES) and value.strip().lower() == "drop":
            yield option, "stores would keep what was deleted", "leave it out: each delete leaves a tombstone"
        modes = () if debezium.schemas else _MODES.get(option, ())
        if modes and value.strip().lower() != modes[settings.log.encoding == "debezium"]:
            yield (
                option,
                f"without schemas nobody tells the sinks of {value}",
                "leave it out, or leave out schemas = false",
            )
        if option == "topic.naming.strategy" and value not in _NAMINGS:
            yield option, "sinks would look for other topics", "[source.topics] renames a table's topic"
        if option == "skipped.operations" and not _ROW_OPERATIONS.isdisjoint(map(str.strip, value.split(","))):
            yield option, f"stores would keep what {value} changed", "leave it out: t is skipped, and no row's change"
    if debezium.options.get("tombstones.on.delete", "true").strip().lower() == "false" and _lacks_deletes(debezium):
        yield (
            "tombstones.on.delete",
            "stores would keep what was deleted",
            "leave it out: flat rows have no other delete",
        )


def _lacks_deletes(debezium: DebeziumSettings) -> bool:
    """Whether a transformation of rows to flat ones leaves nothing of a delete but its tombstone."""
    options = debezium.options
    flat = [name.removesuffix(".type") for name, value in options.items() if value.endswith(FLAT)]
    return any(options.get(f"{name}{_DELETES}", "tombstone").strip().lower() == "tombstone" for name in flat)


def joined_transforms(config: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """``transforms`` of the options, and behind them the generated ones, which move renamed tables."""
    ours, theirs = config.get("transforms", ""), options.get("transforms", "")
    return {"transforms": f"{theirs},{ours}"} if ours and theirs else {}
