"""The captured tables' topics: those that ``cdc init`` made, and those of tables that come while capture runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from cdc.capture.outbox import MalformedEvent
from cdc.capture.topic_specs import TopicSpec, kept_topic_spec, table_topic_spec
from cdc.capture.windows import Windows
from cdc.figures.capture_metrics import RereadFigures
from cdc.process.clock import Clock
from cdc.process.errors import ConfigError, LogError, Retry, TopicError
from cdc.record.state import ReadingState, RequestState, TopicsState
from cdc.record.tables_aside import TableState
from cdc.record.topic_names import TableName, history_topic, state_topic
from cdc.settings.model import Settings
from connectors.kafka.admin import TopicAdmin, topics_state
from connectors.kafka.broker_answers import ends_of_made, make_known
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.kafka.topic_problems import TopicFacts, raise_first, spec_problems
from connectors.postgres.server.catalog_shapes import CapturedTable
from connectors.postgres.server.table_selection import takes
from connectors.session.asides import SetAside
from connectors.session.partitions import PartitionNotes

log = logging.getLogger(__name__)

NONE: Mapping[bytes, bytes] = {}


class CapturedTopics:
    """The topic of each table. Any thread. An added table is in ``<name>.state`` before it is known here.

    ``waiting``: called while the brokers do not answer, may raise. Without it they have 30 s. ``asides``: tables that
    are set aside. ``documents``: the state topic's records. ``registry``: of shapes, with the notes of masks.
    """

    def __init__(
        self,
        settings: Settings,
        topics: TopicsState,
        clock: Clock,
        *,
        registry: SchemaRegistry,
        waiting: Callable[[], None] | None = None,
        asides: SetAside | None = None,
        documents: Mapping[bytes, bytes] = NONE,
    ) -> None:
        self.asides = asides
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._topics = topics
        self._state = KafkaCompactedTopic(settings.log, state_topic(settings.name), waiting=waiting)
        self._partitions = PartitionNotes(self._state, documents)
        self._notes = registry.notes

    @property
    def known(self) -> TopicsState:
        """The tables and their topics, as far as ``<name>.state`` has them."""
        return self._topics

    def topic(self, table: TableName) -> str | None:
        """The table's topic. None when it has none as far as is known."""
        return self.named(str(table))

    def named(self, table: str) -> str | None:
        """The same, by the table's name in one word, as of this call."""
        return self._topics.tables.get(table)

    def refresh(self) -> None:
        """Read what ``cdc init`` may have added."""
        with self._lock:
            self._topics = TopicsState.find(self._state.read()) or self._topics

    def add(self, table: CapturedTable, reason: str) -> str:
        """Make the topic of a table that came after the slot, note it, and ask for its first rows.

        ConfigError when the table cannot be captured or is set aside, or Kafka refuses its topic for good. LogError
        when no broker answers.
        """
        for problem in table.problems:
            raise ConfigError(problem.message, hint=problem.hint)
        aside = self.asides.of(str(table.table)) if self.asides is not None else None
        if aside is not None and aside.state is TableState.ASIDE:
            # Its rows would be read, and no change of them would follow.
            raise ConfigError(aside.sentence())
        with self._lock:
            known = TopicsState.find(self._state.read()) or self._topics
            found = known.tables.get(str(table.table))
            if found is None:
                known = self._made(table, known)
                asked = RequestState(
                    id=f"snapshot:{table.table}",
                    table=str(table.table),
                    after_lsn=self._from_lsn(str(table.table)),
                    reason=f"{table.table} {reason}",
                    serial=self._clock.now_ns(),
                    first=True,
                )
                # The request first: a topic that is noted without one would look like one that has its rows.
                self._state.write([(asked.key(), asked.to_json()), (known.key(), known.to_json())])
                log.info("table_added", extra={"table": str(table.table), "topic": table.topic, "why": reason})
            self._topics = known
            return known.tables[str(table.table)]

    def make_histories(self) -> Mapping[str, str]:
        """Make the topics of histories that the settings ask for and that are not noted, and forget those that they ask
        for no more. Returns topic -> history of those that are to begin: see :meth:`note_histories`.

        TopicError for a topic that exists otherwise, LogError when no broker answers.
        """
        with self._lock:
            known = made = self._topics
            taken = [topic for table, topic in known.tables.items() if self.has_history(table)]
            begun = {topic: history_topic(topic) for topic in taken if topic not in known.histories}
            for topic, history in begun.items():
                made = self._with_topic(made, self._history_spec(history, known.topics[topic]["partitions"]))
            self._note(replace(made, histories={t: history for t, history in known.histories.items() if t in taken}))
            return begun

    def note_histories(self, begun: Mapping[str, str], epoch: int) -> None:
        """Note histories of which each partition says by now what it lacks. Until then they begin anew."""
        with self._lock:
            known = self._topics
            self._note(replace(known, histories={**known.histories, **begun}, histories_epoch=epoch))

    def _note(self, topics: TopicsState) -> None:
        if topics != self._topics:
            self._state.write([(topics.key(), topics.to_json())])
            self._topics = topics

    def has_history(self, table: str) -> bool:
        """Whether the settings ask for each change of the table."""
        return takes(table, self._settings.history.tables, ())

    def keeps_history(self, table: str) -> bool:
        """Whether the table has a history already, in which nothing may be missing."""
        return self._topics.tables.get(table, "") in self._topics.histories

    def _history_spec(self, topic: str, partitions: int) -> TopicSpec:
        return kept_topic_spec(self._settings.log, topic, self._settings.history.keep_ms, partitions)

    def _with_topic(self, known: TopicsState, spec: TopicSpec) -> TopicsState:
        made = topics_state(self._made_topic(spec), {}, known.cluster_id, known.encoding)
        return replace(known, topics={**known.topics, **made.topics})

    def add_events(self, topic: str, keep_ms: int) -> None:
        """Make a topic of outbox events and note it, unless that is done.

        One that exists may have any number of partitions. MalformedEvent where it is a table's topic, is compacted, or
        is refused for good. LogError when no broker answers.
        """
        with self._lock:
            known = TopicsState.find(self._state.read()) or self._topics
            if topic in known.topics and topic not in known.events:
                raise MalformedEvent(f"its topic would be {topic}, which is a table's or the pipeline's own")
            if topic not in known.events:
                known = self._with_events(known, kept_topic_spec(self._settings.log, topic, keep_ms))
                known = replace(known, events=sorted({*known.events, topic}))
                self._state.write([(known.key(), known.to_json())])
                log.info("events_topic_made", extra={"topic": topic})
            self._topics = known

    def _with_events(self, known: TopicsState, spec: TopicSpec) -> TopicsState:
        """An event's topic that can never be made is that event's fault alone."""
        admin = TopicAdmin(self._settings.log)
        there = admin.describe([spec.topic])
        try:
            return self._with_topic(known, replace(spec, partitions=there[spec.topic].partitions) if there else spec)
        except (TopicError, ConfigError) as error:
            raise MalformedEvent(f"its topic {spec.topic} cannot be used: {error.message}") from None
        except LogError as error:
            if error.retry is not Retry.NEVER:
                raise
            raise MalformedEvent(f"its topic {spec.topic} cannot be made: {error.message}") from None

    def _from_lsn(self, table: str) -> int:
        """One that was set aside before it had a topic is to be read behind where its changes flow again."""
        aside = self.asides.of(table) if self.asides is not None else None
        return aside.from_lsn if aside is not None else 0

    def hindrance(self, request: RequestState) -> str:
        """Why the table of a request must not be read now: it is set aside, or waits, or ``cdc init`` added it to
        settings that are newer than those of this capture. Empty where it may be."""
        source = self._settings.source
        if not takes(request.table, source.tables, source.exclude):
            return f"this cdc run began with settings that leave {request.table} out: start it again"
        return self.asides.hindrance(request) if self.asides is not None else ""

    def followed(self, table: TableName, oid: int) -> bool:
        """Whether the table was set aside and is followed again as this relation."""
        return self.asides is not None and self.asides.followed(str(table), oid)

    def read(self, state: ReadingState) -> None:
        """A reading is over."""
        if self.asides is not None:
            self.asides.read(state)

    def saw_partitions(self, table: TableName, links: Mapping[str, int]) -> None:
        """The stream is about to bring changes of partitions: oid -> the transaction that attached it."""
        if self._notes.masks.of(table):
            self._notes.saw({str(table): map(int, links)})
        self._partitions.saw(str(table), links)

    @property
    def new_partitions(self) -> Mapping[str, Mapping[str, int]]:
        """See :class:`snapshot.source.ports.TopicsPort`."""
        return self._partitions.new

    def settle_partitions(self, compared: Mapping[str, Mapping[str, int]]) -> None:
        """See :class:`snapshot.source.ports.TopicsPort`. Raises LogError."""
        self._partitions.settle(compared)

    def ask_again(self, table: TableName, reason: str, *, after_lsn: int = 0) -> None:
        """Ask for a table to be read again, behind ``after_lsn``."""
        asked = RequestState(
            id=f"snapshot:{table}",
            table=str(table),
            after_lsn=after_lsn,
            reason=f"{table} {reason}",
            serial=self._clock.now_ns(),
        )
        self._state.write([(asked.key(), asked.to_json())])
        log.info("reread_asked", extra={"table": str(table), "why": reason})

    def _made(self, table: CapturedTable, known: TopicsState) -> TopicsState:
        """One table's topic that can never be made is that table's fault alone."""
        try:
            return self._make(table, known)
        except LogError as error:
            if error.retry is not Retry.NEVER:
                raise
            raise ConfigError(error.message, hint=error.hint) from None

    def _make(self, table: CapturedTable, known: TopicsState) -> TopicsState:
        facts = self._made_topic(table_topic_spec(self._settings.log, table.topic))
        made = topics_state(facts, {str(table.table): table.topic}, known.cluster_id, known.encoding)
        known = replace(known, topics={**known.topics, **made.topics}, tables={**known.tables, **made.tables})
        if not self.has_history(str(table.table)):
            return known
        history = history_topic(table.topic)
        known = self._with_topic(known, self._history_spec(history, known.topics[table.topic]["partitions"]))
        return replace(known, histories={**known.histories, table.topic: history})

    def _made_topic(self, spec: TopicSpec) -> Mapping[str, TopicFacts]:
        """The facts of a topic, which is made where it is missing. TopicError for one that is otherwise."""
        _, facts = make_known(TopicAdmin(self._settings.log), [spec])
        raise_first(spec_problems(spec, facts[spec.topic]))
        return facts


class OpensTopics(Protocol):
    """The part of a session's log that numbers lanes."""

    def open(self, topic: str, next_offsets: Sequence[int]) -> int:
        """See :meth:`cdc.record.ports.StreamLog.open`."""

    def keep_history(self, lane: int, history: int, count: int) -> None:
        """From now on each record of ``count`` lanes goes to as many others, too."""


class PartitionNumbers:
    """Where a topic's records go, in the session's numbering. Of new ones too. The capture loop's thread alone."""

    def __init__(self, settings: Settings, topics: CapturedTopics, log: OpensTopics) -> None:
        self._settings = settings
        self._topics = topics
        self._log = log
        self._known: dict[str, tuple[int, int]] = {}
        self._followed: set[str] = set()

    def note(self, topic: str, base: int, count: int) -> None:
        """A topic that was opened at the session's start."""
        self._known[topic] = (base, count)

    def of(self, topic: str) -> tuple[int, int]:
        """A topic's first lane and how many. Opens one that was made since."""
        found = self._known.get(topic) or self._opened(topic)
        history = self._topics.known.histories.get(topic)
        if history is not None:
            self.follow(topic, history)
        return found

    def follow(self, topic: str, history: str) -> tuple[int, int]:
        """Let a table's records go to its history, too. The history's first lane and how many."""
        if topic not in self._followed:
            self._followed.add(topic)
            base, count = self.of(topic)
            self._log.keep_history(base, self.of(history)[0], count)
        return self.of(history)

    def _opened(self, topic: str) -> tuple[int, int]:
        count = self._topics.known.topics[topic]["partitions"]
        ends = ends_of_made(TopicAdmin(self._settings.log), {topic: count})[topic]
        made = self._known[topic] = (self._log.open(topic, [ends[p] for p in sorted(ends)]), count)
        return made


class SessionWorker(Protocol):
    """Something that runs beside a session, in threads of its own. ``figures``: how far it is, from any thread."""

    @property
    def figures(self) -> RereadFigures:
        """How far it is. Any thread."""

    def start(self) -> None:
        """Start its threads."""

    def close(self) -> None:
        """End it, also before it was started. Never raises."""


Later = Callable[[Windows, CapturedTopics, SchemaRegistry, int], SessionWorker]
"""Makes what carries out requests for later snapshots, for one session: its windows, topics, shapes and epoch."""
