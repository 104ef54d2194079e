"""Tables that joined a connector, and none of whose rows of before has been seen: noted in ``<name>.state``.

A connector may take a request and forget it: the task of before the change takes it, or the one behind it
ends before Kafka Connect has stored an offset with it, which takes a minute (``offset.flush.interval.ms``). Nothing of
that is said anywhere but in the worker's log. So a table counts as read when a row that was read is in its topic, or
when the source has none. Until then ``cdc connect deploy`` asks again, and ``cdc connect status`` and ``cdc check`` say
so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar

import psycopg
from psycopg import sql

from cdc.capture.topic_specs import pipeline_topic_specs
from cdc.process.errors import CdcError
from cdc.process.sql_files import load
from cdc.record.state import Document
from cdc.record.topic_names import state_topic
from cdc.settings.model import Settings
from cdc.wire.debezium.reading import is_read_row
from connectors.connect.connector_publication import makes_publication
from connectors.connect.topics import noted_documents
from connectors.debezium.captured_tables import captures, topic_of
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import KafkaCompactedTopic, read_range
from connectors.postgres.server.connections import connect

AGAIN_MS = 120_000
"""A request that is younger is not repeated: a connector looks for signals every five seconds, and begins within half a
minute."""
_MOST = 20_000
"""Records of a partition that are looked through: the first rows come within half a minute."""
_LIMIT_S = 5.0
_QUICK = {"lock_timeout": "2s", "statement_timeout": "4s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadState(Document):
    """Tables whose rows of before were asked for. ``asked_ms``: table -> when, since 1970. ``ends``: table -> partition
    (as text) -> where its topic ended then. Nothing for a topic that was not there."""

    WHAT: ClassVar[str] = "unread_tables"
    asked_ms: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def require_sound(self) -> None:
        """ValueError unless each time and each offset is a number."""
        offsets = [offset for ends in self.ends.values() for offset in ends.values()]
        if any(type(one) is not int for one in [*self.asked_ms.values(), *offsets]):
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
        maybe = "" if makes_publication(settings) else ", unless it had none"
        fix = "cdc connect status says what a snapshot waits for; cdc connect deploy asks again behind two minutes"
        found.append((f"the rows of {table} were asked for {since_s} s ago, and none is in its topic{maybe}", fix))
    return found


def note_unread(settings: Settings, waiting: Mapping[str, int], asked: Iterable[str] = (), at_ms: int = 0) -> None:
    """Note the tables that were ``waiting`` (see :func:`unread_tables`), and those that are ``asked`` for at ``at_ms``;
    0 before the request is sent. No others, and no pattern.

    Rows of a table that was not waiting count from its topic's end on. Raises LogError where Kafka does not answer.
    """
    before, names = _noted(settings), [table for table in asked if "*" not in table]
    asked_ms = {**waiting, **dict.fromkeys(names, at_ms)}
    if asked_ms == before.asked_ms:
        return
    kept = {table: ends for table, ends in before.ends.items() if table in waiting or (at_ms and table in asked_ms)}
    new = {table: topic_of(settings, table) for table in asked_ms if table not in kept}
    admin = TopicAdmin(settings.log)
    admin.create(pipeline_topic_specs(settings.log, settings.name))
    admin.end_offsets({state_topic(settings.name): 1})  # returns when a topic made a moment ago has its leader
    found = admin.end_offsets({topic: facts.partitions for topic, facts in admin.describe(new.values()).items()})
    ends = {table: {str(p): end for p, end in found.get(topic, {}).items()} for table, topic in new.items()}
    state = UnreadState(asked_ms=asked_ms, ends={**kept, **ends})
    KafkaCompactedTopic(settings.log, state_topic(settings.name)).write([(state.key(), state.to_json())])


def _noted(settings: Settings) -> UnreadState:
    return UnreadState.find(noted_documents(settings)) or UnreadState()


def _seen(settings: Settings, table: str, ends: Mapping[str, int]) -> bool:
    topic = topic_of(settings, table)
    facts = TopicAdmin(settings.log).describe([topic])
    return any(
        is_read_row(message.value())
        for partition in range(facts[topic].partitions if topic in facts else 0)
        for message in islice(read_range(settings.log, topic, partition, ends.get(str(partition))), _MOST)
    )


def empty_tables(settings: Settings, tables: Iterable[str]) -> frozenset[str]:
    """Those that have no row now, or are not there any more, so that none is missing. Of a source that is not asked, or
    does not answer, none: it may have rows."""
    if not makes_publication(settings):
        return frozenset()
    return frozenset(table for table in tables if _is_empty(settings, table))


def _is_empty(settings: Settings, table: str) -> bool:
    statement = sql.SQL(load(__package__)["has_rows"]).format(table=sql.Identifier(*table.rsplit(".", 1)))
    try:
        with closing(
            connect(settings.source, application_name="cdc connect", options=_QUICK, turn=_go_on, limit_s=_LIMIT_S)
        ) as session:
            return session.execute(statement).fetchone() == (False,)
    except psycopg.errors.UndefinedTable:
        return True
    except (CdcError, psycopg.Error):
        return False


def _go_on() -> None:
    """Nothing asks for an end while an answer is waited for."""
