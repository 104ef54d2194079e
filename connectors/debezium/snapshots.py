"""Rows that are read while the connector streams: what it must be for that, signals that steer it, and tables that
still wait for theirs.

Format of a signal: Debezium's "Sending signals to a Debezium connector" (3.x): ``id``, ``type``, ``data``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar

import psycopg
from confluent_kafka import Producer
from psycopg import sql

from cdc.capture.topic_specs import TopicSpec, pipeline_topic_specs
from cdc.process.clock import Clock
from cdc.process.errors import CdcError, ConfigError, UsageError
from cdc.process.sql_files import load
from cdc.record.documents import dumped
from cdc.record.state import Document
from cdc.record.topic_names import state_topic
from cdc.settings.model import Settings, is_postgres
from cdc.wire.debezium.reading import is_read_row
from connectors.debezium.client import ConnectError
from connectors.debezium.config import debezium_settings, signal_topic
from connectors.debezium.databases import captures, spelled, table_list, topic_of
from connectors.debezium.offsets import reads_incrementally, snapshot_state
from connectors.debezium.status import ConnectorStatus
from connectors.debezium.tables import settled, unparted_tables
from connectors.debezium.topics import noted_documents
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import client_config
from connectors.kafka.compacted_topic import KafkaCompactedTopic, log_error, read_range
from connectors.postgres.server.connections import connect

_TAKEN_MS = 20_000
_FLUSH_S = 25


def require_nameable(tables: Iterable[str], where: str) -> list[str]:
    """The tables of a request. UsageError where none is named, and for a condition on the rows of several."""
    names = [*tables]
    if not names:
        raise UsageError("a snapshot names no table", hint="cdc connect signal snapshot public.orders")
    if where and len(names) > 1:
        raise UsageError("--where fits one table", hint="ask for one table after the other")
    return names


def blocking_data(tables: Iterable[str], where: str) -> dict[str, Any]:
    """The data of ``execute-snapshot`` that reads these tables while streaming is paused. ``where``: a condition of SQL
    for the rows of one of them."""
    names = [*map(_collection, tables)]
    conditions = [{"data-collection": names[0], "filter": where}] if where else []
    return {"type": "blocking", "data-collections": names} | (
        {"additional-conditions": conditions} if conditions else {}
    )


def steering_data(word: str, tables: Iterable[str]) -> dict[str, Any]:
    """The data of ``pause-snapshot`` or ``resume-snapshot``. UsageError for any other word, and for tables."""
    if word not in ("pause", "resume"):
        raise UsageError(f"there is no signal {word}", hint="snapshot, stop, pause or resume")
    if [*tables]:
        raise UsageError(f"{word} is of the whole snapshot, and takes no table", hint=f"cdc connect signal {word}")
    return {"type": "incremental"}


def _collection(table: str) -> str:
    return table_list([table]).removeprefix("(?-i)")


# Whether a connector would act on a signal.

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


def require_first_snapshot_over(stored: Iterable[Mapping[str, Any]]) -> None:
    """ConfigError where the stored offsets do not say so: a stop would begin the first snapshot again."""
    if snapshot_state(stored) != "complete":
        raise ConfigError(
            "the connector has not stored an offset after its first snapshot, and a stop would begin that again",
            hint="wait until cdc connect status shows an offset without a snapshot: about a minute after its end",
        )


def require_captured(settings: Settings, tables: Iterable[str]) -> None:
    """UsageError for a table that the settings do not take: the connector would pass its snapshot over."""
    for table in tables:
        if not captures(settings, table):
            raise UsageError(
                f"{table} is not among the captured tables",
                hint="[source] tables names them; cdc connect deploy brings the connector to the settings",
            )


def require_incremental(settings: Settings, running: Mapping[str, str]) -> None:
    """ConfigError where the connector, by the configuration that it runs with, takes no incremental snapshot."""
    database = debezium_settings(settings).database
    by_log = database in _READ_ONLY and running.get("read.only") == "true"
    if not by_log and not running.get("signal.data.collection"):
        raise ConfigError(
            f"the connector for {database} takes no incremental snapshot without a signal table",
            hint="set [debezium] signal_table and run cdc connect deploy; or ask for a --blocking snapshot, "
            "which holds the stream meanwhile",
        )


def askable_tables(
    settings: Settings, tables: tuple[str, ...], running: Mapping[str, str], clock: Clock, wait_s: float
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Those whose rows of before can be asked for now. The others -> why not, and what to do.

    A transaction that is older than the table is waited for, ``wait_s`` at most.
    """
    if not settled(settings, clock, wait_s):
        why = "a transaction is open that began before the table joined; run cdc connect deploy again when it has ended"
        return (), dict.fromkeys(tables, why)
    try:
        require_incremental(settings, running)
    except ConfigError as refusal:
        return (), dict.fromkeys(tables, f"{refusal.message}; {refusal.hint}")
    problems = unparted_tables(settings, tables)
    unread = {table: f"{problem.message}; {problem.hint}" for table, problem in problems.items()}
    return tuple(table for table in tables if table not in unread), unread


def waiting_snapshot(settings: Settings, offsets: Iterable[Mapping[str, Any]]) -> str:
    """A sentence where an incremental snapshot is under way, and what it waits for. Empty where none is.

    ``offsets``: the connector's, as Kafka Connect gives them.
    """
    if not reads_incrementally(offsets):
        return ""
    if not is_postgres(settings) or debezium_settings(settings).signal_table is not None:
        return "an incremental snapshot is under way"
    return "an incremental snapshot is under way: each part of it ends with the next transaction of the database"


# Sending it.


def make_signal_topic(settings: Settings) -> None:
    """The topic of signals, unless it exists. LogError or TopicError where Kafka does not make it."""
    config = {"cleanup.policy": "delete", "retention.ms": "604800000"}
    factor = settings.log.replication_factor
    TopicAdmin(settings.log).create(
        [TopicSpec(topic=signal_topic(settings), partitions=1, replication_factor=factor, config=config)]
    )


def send(settings: Settings, kind: str, data: Mapping[str, Any]) -> str:
    """Give the connector a signal. Returns its id, which the connector logs. Raises ConnectError or LogError where
    Kafka does not take it."""
    failures: list[Any] = []
    identifier = str(uuid.uuid4())
    options = {"acks": "all", "message.timeout.ms": _TAKEN_MS}
    producer = Producer(client_config(settings.log, **options))
    producer.produce(
        signal_topic(settings),
        key=settings.name.encode(),
        value=dumped({"id": identifier, "type": kind, "data": dict(data)}),
        partition=0,
        on_delivery=lambda error, _message: failures.append(error) if error is not None else None,
    )
    if producer.flush(_FLUSH_S):
        raise ConnectError("the signal was not taken by Kafka in time", hint="check [log] bootstrap_servers")
    if failures:
        raise log_error(failures[0], "sending the signal", settings.log, signal_topic(settings))
    return identifier


# What was asked for, noted in ``<name>.state``.
#
# A connector may skip a table that was asked for, and only the worker's log says so. So a table that joined counts as
# read when a row that was read is in its topic, or when the source has none. Until then ``cdc connect status`` and
# ``cdc check`` say so, and ``cdc connect deploy`` asks again where no snapshot is under way.

_MOST = 20_000
"""Records of a partition that are looked through: the first rows come within half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadState(Document):
    """Tables whose rows of before were asked for. ``asked_ms``: table -> when, since 1970. ``ends``: table -> partition
    (as text) -> where its topic ended then. Nothing for a topic that was not there. ``signalled_ms``: when somebody
    asked for a blocking snapshot last, 0 where nobody did: a connector hears of it up to half a minute later."""

    WHAT: ClassVar[str] = "unread_tables"
    asked_ms: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    signalled_ms: int = 0

    def require_sound(self) -> None:
        """ValueError unless each time and each offset is a number."""
        offsets = [offset for ends in self.ends.values() for offset in ends.values()]
        if any(type(one) is not int for one in [self.signalled_ms, *self.asked_ms.values(), *offsets]):
            raise ValueError("a time or an offset that is no number")


def unread_tables(settings: Settings) -> dict[str, int]:
    """The captured tables that are to be asked for, or were and have no row that was read: each with when it was asked
    for, in ms since 1970, 0 for one that is still to be. Raises LogError where Kafka does not answer.

    One that was asked for behind every older transaction may be empty. Before that its rows may not show yet.
    """
    noted = _noted(settings)
    waiting = {table: at_ms for table, at_ms in noted.asked_ms.items() if captures(settings, table)}
    asked = [table for table, at_ms in waiting.items() if at_ms]
    unseen = [table for table in asked if not _seen(settings, table, noted.ends.get(table, {}))]
    read = {*asked} - {*unseen} | empty_tables(settings, unseen)
    return {table: at_ms for table, at_ms in waiting.items() if table not in read}


def unread_cautions(settings: Settings, now_ms: int) -> list[tuple[str, str]]:
    """A sentence for each of :func:`unread_tables`, with the way out. Raises LogError where Kafka does not answer."""
    found = []
    for table, at_ms in sorted(unread_tables(settings).items()):
        if at_ms == 0:
            found.append((f"the rows that {table} had when it joined are not asked for yet", "cdc connect deploy"))
            continue
        since_s = max(0, now_ms - at_ms) // 1000
        maybe = "" if is_postgres(settings) else ", unless it had none"
        fix = "cdc connect deploy asks again; if a snapshot is stuck, run cdc connect signal stop first"
        found.append((f"the rows of {table} were asked for {since_s} s ago, and none is in its topic{maybe}", fix))
    return found


def note_unread(settings: Settings, waiting: Mapping[str, int], asked: Iterable[str] = (), at_ms: int = 0) -> None:
    """Note the tables that were ``waiting`` (see :func:`unread_tables`), and those that are ``asked`` for at ``at_ms``;
    0 before the request is sent. No others.

    Rows of a table that was not waiting count from its topic's end on. Raises LogError where Kafka does not answer.
    """
    before, asked_ms = _noted(settings), {**waiting, **dict.fromkeys(asked, at_ms)}
    if asked_ms == before.asked_ms:
        return
    kept = {table: ends for table, ends in before.ends.items() if table in waiting or (at_ms and table in asked_ms)}
    new = {table: topic_of(settings, table) for table in asked_ms if table not in kept}
    admin = TopicAdmin(settings.log)
    admin.create(pipeline_topic_specs(settings.log, settings.name))
    admin.end_offsets({state_topic(settings.name): 1})  # returns when a topic made a moment ago has its leader
    found = admin.end_offsets({topic: facts.partitions for topic, facts in admin.describe(new.values()).items()})
    ends = {table: {str(p): end for p, end in found.get(topic, {}).items()} for table, topic in new.items()}
    _note(settings, replace(before, asked_ms=asked_ms, ends={**kept, **ends}))


SIGNAL_MS = 120_000
"""Until then a signal may not have been heard: a connector looks for them every five seconds, and begins within half a
minute."""


def note_signalled(settings: Settings, tables: Iterable[str], clock: Clock, wait_s: float) -> None:
    """Note that a blocking snapshot of these tables is asked for now: one that waits for its rows gets them by it."""
    now_ms = clock.now_ns() // 1_000_000
    _note(settings, replace(_noted(settings), signalled_ms=now_ms))
    waiting = unread_tables(settings)
    got = [table for table in map(spelled, tables) if table in waiting]
    if got and settled(settings, clock, wait_s):
        note_unread(settings, waiting, got, now_ms)


def signalled_ms(settings: Settings) -> int:
    """When a blocking snapshot was asked for last. 0 where none was."""
    return _noted(settings).signalled_ms


def _note(settings: Settings, state: UnreadState) -> None:
    KafkaCompactedTopic(settings.log, state_topic(settings.name)).write([(state.key(), state.to_json())])


def _noted(settings: Settings) -> UnreadState:
    return UnreadState.find(noted_documents(settings)) or UnreadState()


def empty_tables(settings: Settings, tables: Iterable[str]) -> frozenset[str]:
    """Those that have no row now, or are not there any more, so that none is missing. Of a source that is not asked, or
    does not answer, none: it may have rows."""
    return frozenset(table for table in tables if is_postgres(settings) and _is_empty(settings, table))


def _seen(settings: Settings, table: str, ends: Mapping[str, int]) -> bool:
    topic = topic_of(settings, table)
    facts = TopicAdmin(settings.log).describe([topic])
    return any(
        is_read_row(message.value())
        for partition in range(facts[topic].partitions if topic in facts else 0)
        for message in islice(read_range(settings.log, topic, partition, ends.get(str(partition))), _MOST)
    )


def _is_empty(settings: Settings, table: str) -> bool:
    statement = sql.SQL(load(__package__)["has_rows"]).format(table=sql.Identifier(*table.rsplit(".", 1)))
    limits = {"lock_timeout": "2s", "statement_timeout": "4s"}
    try:
        with closing(
            connect(settings.source, application_name="cdc connect", options=limits, turn=_go_on, limit_s=5.0)
        ) as session:
            return session.execute(statement).fetchone() == (False,)
    except psycopg.errors.UndefinedTable:
        return True
    except (CdcError, psycopg.Error):
        return False


def _go_on() -> None:
    """Nothing asks for an end while an answer is waited for."""
