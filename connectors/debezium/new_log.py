"""A new snapshot is a new log: the connector begins anew in topics that hold nothing from before.

Nothing in a topic says which of its rows a later snapshot did not find again. So the topics go, and each store is
filled from the new ones beside the one that it serves (``cdc rebuild``). The step is noted in ``<name>.state``: until
it is done nothing lets the connector go on where it was, because the new topics would lack all that it had written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar

from cdc.capture.topic_specs import KeyedAnewState
from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ActiveError, ConfigError, LogError
from cdc.record.documents import dumped
from cdc.record.progress import WriterState, require_settled
from cdc.record.state import Document, find_all
from cdc.record.topic_names import state_topic
from cdc.settings.model import Settings, is_postgres
from connectors.debezium.snapshots import make_signal_topic, note_unread
from connectors.debezium.tables import captured_tables, publish
from connectors.debezium.topics import captured_topics, noted_documents, prepare_topics
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.postgres.server.catalog_facts import read_slot
from connectors.postgres.server.connections import connect
from connectors.postgres.server.slot import drop_slot, lock_holders

declare("resnapshot_noted", "resnapshot_stopped", "resnapshot_deleted", "resnapshot_made", "resnapshot_reset")

_GONE_S, _POLL_S = 60.0, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ResnapshotState(Document):
    """A resnapshot that was begun. It is removed when the connector may go on."""

    WHAT: ClassVar[str] = "resnapshot"


def require_no_resnapshot(documents: Mapping[bytes, bytes]) -> None:
    """ConfigError while one was begun and not finished."""
    if ResnapshotState.find(documents) is not None:
        raise ConfigError(
            "a resnapshot was begun and not finished: the connector would go on in topics that lack what it wrote",
            hint="cdc connect resnapshot again: it may be repeated at any step",
        )


def begin_new_log(
    settings: Settings,
    clock: Clock,
    *,
    validated: Callable[[], None],
    stop: Callable[[], None],
    forget: Callable[[], None],
) -> None:
    """Stop the connector, make its topics anew, and let it forget how far it was. It may go on then.

    ``validated``: raises where Kafka Connect refuses the configuration. ``forget``: gives it the configuration and
    removes the offsets of the connector, which has stopped. Looks first whether the source can be read and each table
    be captured. A slot that the server gave up is dropped. Safe to repeat, also where it was killed at any step.

    ConfigError while a handover is under way, ActiveError while the native capture writes.
    """
    require_settled(noted_documents(settings))
    _require_no_native_writer(settings)
    validated()
    tables = captured_tables(settings)
    publish(settings)
    make_signal_topic(settings)
    state, note = KafkaCompactedTopic(settings.log, state_topic(settings.name)), ResnapshotState()
    state.write([(note.key(), note.to_json())])
    crash_point("resnapshot_noted")
    stop()
    _drop_lost_slot(settings)
    crash_point("resnapshot_stopped")
    deleted = _delete_topics(settings, clock)
    prepare_topics(settings, tables, deleted)
    crash_point("resnapshot_made")
    forget()
    note_unread(settings, {})
    crash_point("resnapshot_reset")
    # The new topics are the connector's alone, and no table has another key in them than before.
    anew = [one.key() for one in find_all(state.read(), KeyedAnewState)]
    state.write([(key, None) for key in (*anew, dumped({"what": WriterState.WHAT}), note.key())])


def _require_no_native_writer(settings: Settings) -> None:
    if not is_postgres(settings):
        return
    with closing(connect(settings.source, application_name="cdc connect", autocommit=True)) as session:
        holders = lock_holders(session, settings.name)
    if holders:
        raise ActiveError(f"{settings.name} is being written by cdc run or cdc snapshot", hint="stop it first")


def _drop_lost_slot(settings: Settings) -> None:
    """Drop the connector's slot where the server gave it up: the connector makes another one. For Postgres."""
    if not is_postgres(settings):
        return
    with closing(connect(settings.source, application_name="cdc connect", autocommit=True)) as session:
        found = read_slot(session, settings.slot)
        if found is not None and found.wal_status == "lost" and found.active_pid is None:
            drop_slot(session, settings.slot)


def _delete_topics(settings: Settings, clock: Clock) -> list[str]:
    """Delete the topics of the captured tables. Returns their names when no broker has one of them any more. LogError
    where one still does after a minute."""
    admin, topics = TopicAdmin(settings.log), captured_topics(settings)
    gone = {found.topic_id for found in admin.describe(topics).values()}
    admin.delete(topics)
    until_s = clock.monotonic() + _GONE_S
    # Each broker by itself: one that lags behind would give the new topic the id of the former one.
    for broker in admin.each_broker():
        while any(found.topic_id in gone for found in broker.describe(topics).values()):
            if clock.monotonic() > until_s:
                raise LogError(
                    "a broker still has a topic that was deleted a minute ago", hint="run it again once all brokers run"
                )
            clock.sleep(_POLL_S)
    crash_point("resnapshot_deleted")
    return topics
