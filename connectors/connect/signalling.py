"""How a signal reaches the connector: by the table that the settings name, else by its topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg
from confluent_kafka import Producer
from psycopg import sql

from cdc.errors import SourceError
from cdc.settings import Settings
from cdc.sql import load
from cdc.state import Document
from cdc.topic import state_topic
from cdc.topic_specs import TopicSpec
from connectors.debezium.client import ConnectError
from connectors.debezium.connector_config import debezium_settings, signal_topic
from connectors.debezium.signals import Signal
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import client_config
from connectors.kafka.compacted import KafkaCompactedTopic, log_error
from connectors.postgres.connections import connect, first_line

_QUICK = {"lock_timeout": "15s", "statement_timeout": "20s"}
_LIMIT_S = 25.0
_TAKEN_MS = 20_000
_FLUSH_S = 25


def make_signal_topic(settings: Settings) -> None:
    """The topic of signals, unless it exists. LogError or TopicError where Kafka does not make it."""
    config = {"cleanup.policy": "delete", "retention.ms": "604800000"}
    factor = settings.log.replication_factor
    TopicAdmin(settings.log).create(
        [TopicSpec(topic=signal_topic(settings), partitions=1, replication_factor=factor, config=config)]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalledState(Document):
    """When a snapshot was asked for last, in ms since 1970: a connector hears of it up to half a minute later."""

    WHAT: ClassVar[str] = "signalled"
    at_ms: int


def note_signalled(settings: Settings, at_ms: int) -> None:
    """Note that a snapshot is asked for now."""
    note = SignalledState(at_ms=at_ms)
    KafkaCompactedTopic(settings.log, state_topic(settings.name)).write([(note.key(), note.to_json())])


def signalled_ms(settings: Settings) -> int:
    """When a snapshot was asked for last. 0 where none was."""
    found = SignalledState.find(KafkaCompactedTopic(settings.log, state_topic(settings.name)).read())
    return found.at_ms if found is not None else 0


def send(signal: Signal, settings: Settings) -> None:
    """Give the connector a signal. ConnectError or LogError where Kafka does not take it, SourceError where Postgres
    does not."""
    debezium = debezium_settings(settings)
    if debezium.signal_table is not None and debezium.database == "postgres":
        _insert(signal, debezium.signal_table, settings)
    else:
        _produce(signal, settings)


def _produce(signal: Signal, settings: Settings) -> None:
    failures: list[Any] = []
    options = {"acks": "all", "message.timeout.ms": _TAKEN_MS}
    producer = Producer(client_config(settings.log, **options))
    producer.produce(
        signal_topic(settings),
        key=settings.name.encode(),
        value=signal.record(),
        partition=0,
        on_delivery=lambda error, _message: failures.append(error) if error is not None else None,
    )
    if producer.flush(_FLUSH_S):
        raise ConnectError("the signal was not taken by Kafka in time", hint="check [log] bootstrap_servers")
    if failures:
        raise log_error(failures[0], "sending the signal", settings.log, signal_topic(settings))


def _insert(signal: Signal, table: str, settings: Settings) -> None:
    statement = sql.SQL(load("connectors.connect")["send_signal"]).format(table=sql.Identifier(*table.split(".")))
    # The connector may stand still meanwhile, and all its tables with it.
    with connect(settings.source, options=_QUICK, turn=_go_on, limit_s=_LIMIT_S) as session:
        try:
            session.execute(statement, signal.row())
        except psycopg.Error as error:
            raise SourceError(
                f"the signal table {table} does not take the signal: {first_line(error)}",
                hint="[debezium] signal_table names it; who holds a lock on it, and may the role insert?",
            ) from None


def _go_on() -> None:
    """Nothing asks for an end while the answer is waited for."""
