"""Signals that a running connector takes: what they say, whether it would act on them, and how they reach it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import orjson
import psycopg
from confluent_kafka import Producer
from psycopg import sql

from cdc.capture.topic_specs import TopicSpec
from cdc.process.errors import ConfigError, SourceError, UsageError
from cdc.process.sql_files import load
from cdc.record.documents import dumped
from cdc.record.state import Document
from cdc.record.topic_names import state_topic
from cdc.settings.model import Settings
from connectors.debezium.captured_tables import captures, table_list
from connectors.debezium.client import ConnectError
from connectors.debezium.connector_config import debezium_settings, signal_topic
from connectors.debezium.connector_status import ConnectorStatus
from connectors.debezium.source_progress import reads_incrementally
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import client_config
from connectors.kafka.compacted_topic import KafkaCompactedTopic, log_error
from connectors.postgres.server.connections import connect, first_line

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


# Signals that a running connector takes: through a Kafka topic, or through a table of the database.
#
# Format: Debezium's "Sending signals to a Debezium connector" (3.x): ``id``, ``type``, ``data``.

SnapshotKind = Literal["incremental", "blocking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One signal. ``identifier`` shows up in the connector's log and notifications."""

    identifier: str
    type: str
    data: dict[str, Any]

    def record(self) -> bytes:
        """The value on the signal topic. Its key is the connector's topic prefix."""
        return dumped({"id": self.identifier, "type": self.type, "data": self.data})

    def row(self) -> tuple[str, str, str]:
        """The row of a signal table: id, type, data."""
        return self.identifier, self.type, orjson.dumps(self.data).decode()


def new_identifier() -> str:
    """An identifier that no other signal has."""
    return str(uuid.uuid4())


def execute_snapshot(
    identifier: str, tables: Iterable[str], *, kind: SnapshotKind = "incremental", where: str | None = None
) -> Signal:
    """Read these tables again while streaming goes on (incremental) or is paused (blocking).

    ``where``: only rows for which this SQL condition holds. For one table only. UsageError where none is named.
    """
    names = list(tables)
    if not names:
        raise UsageError("a snapshot signal names no table", hint="cdc connect signal snapshot public.orders")
    if where is not None and len(names) > 1:
        raise UsageError("--where fits one table", hint="send one signal per table")
    data: dict[str, Any] = {"type": kind, "data-collections": [_collection(name) for name in names]}
    if where is not None:
        data["additional-conditions"] = [{"data-collection": _collection(names[0]), "filter": where}]
    return Signal(identifier=identifier, type="execute-snapshot", data=data)


def stop_snapshot(identifier: str, tables: Iterable[str] = ()) -> Signal:
    """End the incremental snapshot: of these tables, or all of it."""
    names = [_collection(name) for name in tables]
    data: dict[str, Any] = {"type": "incremental"}
    return Signal(
        identifier=identifier, type="stop-snapshot", data=data | ({"data-collections": names} if names else {})
    )


def pause_snapshot(identifier: str) -> Signal:
    """Hold the incremental snapshot."""
    return Signal(identifier=identifier, type="pause-snapshot", data={"type": "incremental"})


def resume_snapshot(identifier: str) -> Signal:
    """Go on with it."""
    return Signal(identifier=identifier, type="resume-snapshot", data={"type": "incremental"})


def _collection(table: str) -> str:
    return table_list([table]).removeprefix("(?-i)")


_READ_ONLY = frozenset({"postgres", "mysql", "mariadb"})
"""Whose connectors find their place in the log without writing: by pg_current_snapshot(), or by GTIDs."""


def require_running(status: ConnectorStatus) -> None:
    """ConfigError for a connector that takes no signals now: it would act on them when it runs again, unasked."""
    if status.fault:
        raise ConfigError(
            f"the connector {status.name} has failed and takes no signals: {status.fault}",
            hint="mend the cause, then cdc connect restart, then send the signal again",
        )
    if not status.runs:
        raise ConfigError(
            f"the connector {status.name} is {status.state.lower()} and takes no signals",
            hint="cdc connect resume, then send the signal again",
        )


def require_captured(settings: Settings, tables: Iterable[str]) -> None:
    """UsageError for a table that the settings do not take: the connector would pass its snapshot over."""
    for table in tables:
        if not captures(settings, table):
            raise UsageError(
                f"{table} is not among the captured tables",
                hint="[source] tables names them; cdc connect deploy brings the connector to the settings",
            )


def require_snapshots(settings: Settings, running: Mapping[str, str], kind: SnapshotKind) -> None:
    """ConfigError where the connector, by the configuration that it runs with, takes no snapshot of this kind."""
    database = debezium_settings(settings).database
    if kind == "blocking" or running.get("signal.data.collection"):
        return
    if database in _READ_ONLY and running.get("read.only") == "true":
        return
    raise ConfigError(
        f"the connector for {database} takes no incremental snapshot without a signal table",
        hint="set [debezium] signal_table and run cdc connect deploy; or ask for a --blocking snapshot, "
        "which holds the stream meanwhile",
    )


def waiting_snapshot(settings: Settings, offsets: Iterable[Mapping[str, Any]]) -> str:
    """A sentence where an incremental snapshot is under way, and what it waits for. Empty where none is.

    ``offsets``: the connector's, as Kafka Connect gives them.
    """
    if not reads_incrementally(offsets):
        return ""
    debezium = debezium_settings(settings)
    if debezium.database != "postgres" or debezium.signal_table is not None:
        return "an incremental snapshot is under way"
    return "an incremental snapshot is under way: each part of it ends with the next transaction of the database"
