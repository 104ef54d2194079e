"""How a signal reaches the connector: by the table that the settings name, else by its topic."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer
from psycopg import sql

from cdc.settings import Settings
from cdc.sql import load
from cdc.topic_specs import TopicSpec
from connectors.debezium.client import ConnectError
from connectors.debezium.connector_config import debezium_settings, signal_topic
from connectors.debezium.signals import Signal
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import client_config
from connectors.kafka.compacted import log_error
from connectors.postgres.connections import connect

_TAKEN_MS = 20_000
_FLUSH_S = 25


def make_signal_topic(settings: Settings) -> None:
    """The topic of signals, unless it exists. LogError or TopicError where Kafka does not make it."""
    config = {"cleanup.policy": "delete", "retention.ms": "604800000"}
    factor = settings.log.replication_factor
    TopicAdmin(settings.log).create(
        [TopicSpec(topic=signal_topic(settings), partitions=1, replication_factor=factor, config=config)]
    )


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
        raise log_error(failures[0], "sending the signal", settings.log)


def _insert(signal: Signal, table: str, settings: Settings) -> None:
    statement = sql.SQL(load("connectors.connect")["send_signal"]).format(table=sql.Identifier(*table.split(".")))
    with connect(settings.source) as session:
        session.execute(statement, signal.row())
