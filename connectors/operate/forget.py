"""The topic and the stores, asked for one key: ``cdc forget``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any

from confluent_kafka import Consumer

from cdc.operate.forget import IN_WAREHOUSE, ForgetReport, KeyAnswer, KeyRecord, asked_key, in_topic, kept_in
from cdc.process.errors import CdcError, ConfigError, UsageError
from cdc.record.schema import TableSchema
from cdc.record.topic_names import history_topic, schema_topic
from cdc.settings.model import LogSettings, Settings
from cdc.settings.sink_settings import histories_in
from connectors.kafka.broker_answers import require_broker
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted_topic import KafkaCompactedTopic, known_partitions, read_on
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.server.table_selection import takes
from sinks.contract.attempt_limits import looking
from sinks.contract.stores import kind_of, open_store, sink_settings


def forget_report(settings: Settings, name: str, typed: str) -> ForgetReport:
    """The answers of the topic and the stores for a key, and the places that keep something of one. It reads only.

    UsageError for what is no table of the log, or no key of it. ConfigError where Debezium captures. LogError, at once,
    when no broker takes a connection.
    """
    if settings.source.kind != "postgres":
        raise ConfigError(
            "cdc forget looks into pipelines that cdc run captures, and here Debezium does",
            hint="its topics have records and offsets of its own: look for the key by cdc events and cdc verify",
        )
    require_broker(settings.log)
    shapes = _shapes(settings, name)
    key = asked_key(typed, shapes[-1])
    answers = {"log": _answer(lambda: in_topic(_records(settings.log, shapes[-1].topic), shapes, key))}
    history = takes(str(shapes[-1].table), settings.history.tables, ())
    if history:
        kept_topic = history_topic(shapes[-1].topic)
        answers["history"] = _answer(lambda: in_topic(_records(settings.log, kept_topic), shapes, key))
    for sink in settings.sinks:
        answers[sink] = _answer(partial(_of_store, settings, sink, shapes[-1], key))
    log = settings.log
    sinks = {
        sink: (_kept(settings, sink, str(shapes[-1].table)), durations_of(settings, sink)) for sink in settings.sinks
    }
    kept = kept_in(
        sinks,
        settings.history.keep if history else None,
        replay_window=log.replay_window,
        min_compaction_lag=log.min_compaction_lag,
    )
    return ForgetReport(table=str(shapes[-1].table), key=key, answers=answers, kept=kept)


def _kept(settings: Settings, sink: str, table: str) -> str:
    said = kind_of(sink, settings).kept
    kept = takes(table, histories_in(sink_settings(sink, settings)), ())
    return f"{said}. {IN_WAREHOUSE}" if kept else said


def _shapes(settings: Settings, name: str) -> list[TableSchema]:
    """Every version of a table's shape, the newest last: also of a table's former name. It may lack its schema."""
    versions = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name))).versions()
    found = [shape for shape in versions if str(shape.table) == name]
    found = found or [shape for shape in versions if shape.table.table == name]
    tables = sorted({str(shape.table) for shape in found or versions})
    if not found:
        raise UsageError(f"{name} is no captured table", hint=f"the tables are {', '.join(tables[:20]) or 'none yet'}")
    if len(tables) > 1:
        raise UsageError(f"{name} is more than one captured table", hint="write it as schema.table")
    return sorted(found, key=lambda shape: shape.version)


def _answer(asked: Callable[[], KeyAnswer]) -> KeyAnswer:
    try:
        return asked()
    except CdcError as error:
        return KeyAnswer(f"not known: {error.message}", failed=error)


def _records(settings: LogSettings, topic: str) -> Iterator[KeyRecord]:
    """Every record, each partition in its order. Those of aborted transactions are in the files as well."""
    with closing(Consumer(reader_config(settings) | {"isolation.level": "read_uncommitted"})) as consumer:
        for partition in known_partitions(consumer, topic, settings):
            for message in read_on(consumer, settings, topic, partition):
                headers: Any = message.headers() or ()
                key: Any = message.key()
                value: Any = message.value()
                yield KeyRecord(message.timestamp()[1], key, value, dict(headers))


def _of_store(settings: Settings, sink: str, shape: TableSchema, key: str) -> KeyAnswer:
    with looking(), closing(open_store(sink, settings)) as store:
        row = store.reader.get(shape, key)
    if row is None:
        return KeyAnswer("nothing under the key")
    return KeyAnswer("the key of the delete, without values") if row.deleted else KeyAnswer("the row", shows=True)


def durations_of(settings: Settings, sink: str) -> dict[str, timedelta]:
    """The times of a sink's own section, by name. UsageError where there is none of that name."""
    return {name: value for name, value in sink_settings(sink, settings) if isinstance(value, timedelta)}
