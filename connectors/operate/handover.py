"""Postgres, Kafka Connect and the native capture, as a handover uses them: :mod:`cdc.operate.handover_rules`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from psycopg import sql

from cdc.operate.handover import Handover
from cdc.operate.handover_rules import (
    ConnectorState,
    HandoverPlan,
    HandoverPorts,
    KeyQuestion,
    LockedSession,
    shaping_options,
)
from cdc.process.clock import Clock
from cdc.process.errors import ConfigError
from cdc.record.schema import TableSchema
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.topic_names import progress_topic, schema_topic, state_topic
from cdc.settings.model import Settings
from connectors.debezium.client import MissingConnector
from connectors.debezium.connector import Connector
from connectors.debezium.offsets import reads_incrementally, shown_lsn
from connectors.debezium.snapshots import SIGNAL_MS, signalled_ms
from connectors.debezium.tables import primary_keys
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import require_broker
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.operate.init import prepare
from connectors.postgres.server.catalog_facts import read_server, read_slot
from connectors.postgres.server.connections import Connection, connect
from connectors.postgres.server.publication import publish_everything
from connectors.postgres.server.slot import lock_holders


class HandoverSource:
    """:class:`cdc.operate.handover_rules.HandoverDatabase` and :class:`cdc.operate.handover_rules.Keys` on Postgres.
    Each call has a session of its own, because minutes may lie between them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def facts(self) -> tuple[ServerFacts, SlotFacts | None]:
        with closing(self._open()) as session:
            return read_server(session), read_slot(session, self._settings.slot)

    def writer(self) -> LockedSession | None:
        with closing(self._open()) as session:
            holders = lock_holders(session, self._settings.name)
        return LockedSession(holders[0].pid, holders[0].application) if holders else None

    def publish_everything(self) -> bool:
        with closing(self._open()) as session:
            return publish_everything(session, self._settings.publication)

    def primary(self) -> Mapping[str, Sequence[str]]:
        with closing(self._open()) as session:
            return {str(table): columns for table, columns in primary_keys(session).items()}

    def answer(self, questions: Sequence[KeyQuestion]) -> Sequence[KeyQuestion]:
        with closing(self._open()) as session:
            return [question for question in questions if _holds(session, question)]

    def _open(self) -> Connection:
        return connect(self._settings.source, application_name="cdc handover", autocommit=True)


def _holds(session: Connection, question: KeyQuestion) -> bool:
    condition = sql.SQL(question.condition).format(sql.Identifier(question.column))
    query = sql.SQL("select exists (select from {} where {})").format(sql.Identifier(*question.table.table), condition)
    row = session.execute(query).fetchone()
    return bool(row and row[0])


class HandoverConnector:
    """:class:`cdc.operate.handover_rules.DebeziumConnector` on Kafka Connect."""

    def __init__(self, connector: Connector, settings: Settings, messages: str, clock: Clock) -> None:
        self._connector = connector
        self._settings = settings
        self._messages = messages
        self._clock = clock

    def facts(self) -> ConnectorState:
        self._connector.require_healthy()
        differing = tuple(self._connector.diff())
        return ConnectorState(differing, self.unread(), shown_lsn(self._connector.offsets()), self._messages)

    def unread(self) -> str:
        if reads_incrementally(self._connector.offsets()):
            return "Debezium reads an incremental snapshot just now"
        unread = [message for message, _ in self._connector.unread()]
        if unread:
            return unread[0]
        asked_ms = signalled_ms(self._settings)
        if asked_ms and self._clock.now_ns() // 1_000_000 - asked_ms < SIGNAL_MS:
            return "a blocking snapshot was asked for within the last two minutes, and may not have begun"
        return ""

    def stop(self) -> bool:
        return _done(self._connector.stop)

    def resume(self) -> None:
        self._connector.client.resume(self._connector.name)

    def withdraw(self) -> bool:
        return _done(self._connector.delete)


def _done(act: Callable[[], None]) -> bool:
    """False where there is no connector."""
    try:
        act()
    except MissingConnector:
        return False
    return True


class NativeCapture:
    """:class:`cdc.operate.handover_rules.NativeWriter` on Postgres and Kafka."""

    def __init__(self, settings: Settings, state: KafkaCompactedTopic) -> None:
        self._settings = settings
        self._state = state

    def prepare(self) -> None:
        settings = self._settings
        with closing(connect(settings.source, application_name="cdc init", autocommit=True)) as session:
            prepare(session, settings, TopicAdmin(settings.log), self._state, handing_over=True)

    def shapes(self) -> Sequence[TableSchema]:
        schemas = SchemaRegistry(KafkaCompactedTopic(self._settings.log, schema_topic(self._settings.name)))
        return [shape for table in schemas.tables() if (shape := schemas.latest(table)) is not None]


def handover_of(settings: Settings, say: Callable[[str], None], clock: Clock) -> Handover:
    """A handover of the pipeline that the settings describe to the native capture.

    ConfigError without a [debezium] section for Postgres. LogError, at once, when no broker takes a connection.
    """
    if settings.debezium is None or settings.debezium.database != "postgres":
        raise ConfigError(
            "a handover needs a [debezium] section for Postgres",
            hint='add [debezium] with url = "http://127.0.0.1:8083"',
        )
    native, connector = _with_kind(settings, "postgres"), Connector(_with_kind(settings, "debezium"))
    require_broker(settings.log)
    if settings.tables:
        raise ConfigError(
            "columns are masked, and the two captures do not mask alike: rows of both would differ in one topic",
            hint="begin a new pipeline with a snapshot of its own, or take the [tables] sections out",
        )
    source, state = HandoverSource(native), KafkaCompactedTopic(settings.log, state_topic(settings.name))
    admin, messages = TopicAdmin(settings.log), f"{settings.name}.message"
    ports = HandoverPorts(
        source=source,
        keys=source,
        connector=HandoverConnector(connector, settings, messages if messages in admin.names() else "", clock),
        native=NativeCapture(native, state),
        topics=admin,
        state=state,
        progress=KafkaCompactedTopic(settings.log, progress_topic(settings.name)),
    )
    plan = HandoverPlan(
        name=settings.name,
        slot=settings.slot,
        publication=settings.publication,
        connector=connector.name,
        shaping=shaping_options(settings.debezium.options),
    )
    return Handover(plan, ports, say, clock)


def _with_kind(settings: Settings, kind: str) -> Settings:
    return settings.model_copy(update={"source": settings.source.model_copy(update={"kind": kind})})
