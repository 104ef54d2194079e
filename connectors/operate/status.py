"""The questions to Postgres and Kafka of those that look on: :mod:`cdc.status.facts`, and a wait for freshness
(:class:`cdc.freshness.run.WaitPorts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, TypeVar

from cdc.figures.process_status import (
    CAPTURE,
    Process,
    Trouble,
    ask_status,
    fill_of,
    fresh_of,
    stream_part,
    trouble_of,
    view_part,
)
from cdc.process.errors import CdcError, TopicError, UsageError
from cdc.record.progress import Mark, Offsets, epoch_of
from cdc.record.server_facts import PublicationFacts
from cdc.record.state import TopicsState
from cdc.record.topic_names import STREAM_SCHEMA, TableName, dead_topic, progress_topic, state_topic
from cdc.settings.model import Settings, require_postgres
from cdc.status.facts import FreshFacts, SourceState
from cdc.wire.dead_letter import DeadLetter
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import require_broker
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.dead_letters import DeadLetterTopic
from connectors.kafka.feed import read_marks
from connectors.postgres.server.catalog_facts import read_publication, read_relations, read_server, read_slot
from connectors.postgres.server.connections import LOOK_LIMITS, Connection, connect, describe
from connectors.postgres.server.cut_reader import write_fence
from connectors.postgres.server.table_selection import Pattern, unnamed_children
from connectors.views.view_topics import known_views, taken_views, view_patterns

T = TypeVar("T")


class StatusLog:
    """:class:`cdc.status.facts.TopicStatus` on Kafka."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def state(self) -> Mapping[bytes, bytes]:
        require_broker(self._settings.log)
        return KafkaCompactedTopic(self._settings.log, state_topic(self._settings.name)).read()

    def marks(self) -> Sequence[Mark]:
        return read_marks(self._settings.log, progress_topic(self._settings.name))

    def letters(self) -> Iterable[DeadLetter]:
        return DeadLetterTopic(self._settings.log, dead_topic(self._settings.name)).read()

    def ends(self, topics: Sequence[str]) -> Offsets:
        admin = TopicAdmin(self._settings.log)
        return admin.end_offsets(admin.counts(topics))


class StatusSource:
    """:class:`cdc.status.facts.DatabaseStatus` on Postgres. A session that failed is opened anew at the next look."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: Connection | None = None

    def facts(self) -> SourceState:
        settings = self._settings
        return self._ask(
            lambda session: SourceState(
                address=describe(settings.source), server=read_server(session), slot=read_slot(session, settings.slot)
            )
        )

    def publication(self) -> PublicationFacts | None:
        return self._ask(lambda session: read_publication(session, self._settings.publication))

    def relations(self, tables: Sequence[str], oids: Sequence[int]) -> Mapping[int, TableName]:
        return self._ask(lambda session: read_relations(session, tables, oids))

    def children(self, oids: Sequence[int]) -> Mapping[int, Sequence[TableName]]:
        return self._ask(lambda session: unnamed_children(session, oids, self._settings.source))

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _ask(self, question: Callable[[Connection], T]) -> T:
        if self._session is None or self._session.closed:
            self._session = connect(self._settings.source, application_name="cdc status", options=LOOK_LIMITS)
        try:
            return question(self._session)
        except CdcError:
            self.close()
            raise


def read_fresh(settings: Settings) -> FreshFacts:
    """The status documents of the pipeline's processes, from the addresses of the settings."""
    capture = ask_status(settings.capture.http_address, settings.name)
    said = ask_status(settings.spark.http_address, settings.name)
    stores = _members(said, "sinks", settings.sinks)
    fresh = {name: found for name, one in stores.items() if (found := fresh_of(one)) is not None}
    fills = {name: fill for name, one in stores.items() if (fill := fill_of(one)) is not None}
    # The sinks' page has no phase: it may stand at the address of capture.
    captures = capture is not None and "phase" in capture
    asked = frozenset([*(["log"] if captures else []), *stores])
    words = {CAPTURE: trouble_of(capture)} if captures else {}
    processes = [
        *_native(settings, words),
        Process(
            command="cdc sink",
            setting="[spark] http_address",
            address=settings.spark.http_address,
            parts=tuple(settings.sinks),
            said={name: trouble_of(one) for name, one in stores.items()},
        ),
        *_runners(settings),
    ]
    log = fresh_of(capture) if captures else None
    return FreshFacts(asked=asked, log=log, sinks=fresh, fills=fills, processes=processes)


def _native(settings: Settings, words: Mapping[str, Trouble]) -> Iterator[Process]:
    if settings.source.kind == "postgres":
        address = settings.capture.http_address
        yield Process(command=CAPTURE, setting="[capture] http_address", address=address, parts=(CAPTURE,), said=words)


def _runners(settings: Settings) -> Iterator[Process]:
    """The runners of views, which may stand in ``cdc sink`` as well, and of streams."""
    views = ("view", settings.views, settings.view_runner.http_address, view_part)
    streams = ("stream", settings.streams, settings.stream_runner.http_address, stream_part)
    for kind, names, address, part in (views, streams):
        if names:
            said = _members(ask_status(address, settings.name), f"{kind}s", names)
            yield Process(
                command=f"cdc {kind} run",
                setting=f"[{kind}_runner] http_address",
                address=address,
                parts=tuple(map(part, names)),
                said={part(name): trouble_of(one) for name, one in said.items()},
            )


def _members(document: Mapping[str, Any] | None, member: str, names: Iterable[str]) -> dict[str, Any]:
    """Those of these names that a document tells of."""
    each = document.get(member) if document is not None else None
    return {name: each[name] for name in names if name in each} if isinstance(each, dict) else {}


_APPLICATION = "cdc wait"


def read_epoch(settings: Settings) -> int | None:
    """The pipeline's epoch. None before it has one. LogError, at once, when no broker takes a connection."""
    require_broker(settings.log)
    return epoch_of(_state(settings), settings.source.kind)


def read_letters(settings: Settings) -> Iterable[DeadLetter]:
    """The pipeline's dead letters. LogError, at once, when no broker takes a connection."""
    require_broker(settings.log)
    return DeadLetterTopic(settings.log, dead_topic(settings.name)).read()


def topic_of(settings: Settings, patterns: Sequence[str], table: str) -> str:
    """The topic of a table or a view that a sink with these ``tables`` takes. UsageError where it takes none of that
    name, TopicError where a view was not published yet."""
    views = {str(name): view.topic for name, view in taken_views(known_views(settings), patterns).items()}
    state = TopicsState.find(_state(settings))
    tables = dict(state.tables) if state is not None else {}
    if patterns:
        taking = [Pattern.parse(text) for text in patterns]
        tables = {name: topic for name, topic in tables.items() if any(one.names(name) for one in taking)}
    found = views.get(table) or tables.get(table)
    if found is not None:
        return found
    if table.startswith(f"{STREAM_SCHEMA}."):
        raise UsageError(f"no LSN speaks of {table}: a stream goes by the times of events",
                         hint="cdc stream list shows how far it is")  # fmt: skip
    named = [Pattern.parse(text) for text in view_patterns(patterns)]
    if any(pattern.names(table) for pattern in named):
        raise TopicError(f"{table} is not published yet", hint="cdc view run publishes it")
    known = ", ".join(sorted({*views, *tables})) or "none yet"
    raise UsageError(f"the sink takes no table {table}", hint=f"its tables are {known}")


def _state(settings: Settings) -> Mapping[bytes, bytes]:
    return KafkaCompactedTopic(settings.log, state_topic(settings.name)).read()


def nudge(settings: Settings) -> None:
    """Write a fence, so that a quiet server's log moves. Nothing where Postgres cannot be asked."""
    with suppress(CdcError):
        require_postgres(settings, _APPLICATION)
        with closing(connect(settings.source, application_name=_APPLICATION, options=LOOK_LIMITS)) as session:
            write_fence(session)
