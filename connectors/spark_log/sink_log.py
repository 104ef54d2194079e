"""The log as the queries ask about it: a sink's topics as they are now, their ends, and the shapes of their records."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from cdc.capture.topic_specs import KeyedAnewState
from cdc.process.errors import CdcError, ConfigError, DamagedError, LogError, Retry, TopicError
from cdc.record.progress import EpochsState, Offsets
from cdc.record.schema import TableSchema
from cdc.record.state import TopicsState, find_all
from cdc.record.topic_names import STREAM_SCHEMA, VIEW_SCHEMA, TableName, state_topic
from cdc.settings.model import Settings, topics_maker
from cdc.settings.sink_settings import SinkSettings, histories_in
from cdc.views.known_views import KnownView
from connectors.debezium.config import may_hold_debezium
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import ends_of_made, facts_of_made, require_broker
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.feed import newest_progress
from connectors.kafka.topic_problems import TopicFacts, raise_first, state_problems
from connectors.postgres.server.table_selection import Pattern, kept
from connectors.views.view_topics import all_shapes, known_views, taken_streams, taken_views, view_patterns
from spark.records.ports import SinkTopics, TopicLook

_DAY_MS = 86_400_000
"""Kafka's own delete.retention.ms."""


class SinkLog:
    """:class:`spark.records.ports.LogQuestions` of one pipeline. One client, kept. Any thread, one at a time per
    method."""

    def __init__(self, settings: Settings, sections: Callable[[str], SinkSettings]) -> None:
        self._settings = settings
        self._sections = sections
        self._kept: TopicAdmin | None = None

    def topics(self, sink: str) -> SinkTopics:
        state = TopicsState.find(self._state())
        if state is None:
            raise TopicError("the pipeline has no topics yet", hint=f"{topics_maker(self._settings)} makes them")
        known = known_topics(state, self.schemas(), embedded=may_hold_debezium(self._settings))
        section = self._sections(sink)
        patterns = section.tables
        views = self._views(patterns)
        tables = kept(list(known), patterns)
        histories = kept_histories(state, known, histories_in(section))
        require_apart(tables, histories.values(), sink)
        streams = self._streams(patterns)
        wanted = {known[table] for table in tables} | views.keys() | histories.keys() | streams.keys()
        if not wanted:
            raise _nothing(sink, unborn_views(patterns, self._settings.views, self._settings.streams))
        facts = facts_of_made(self._admin(), wanted)
        apart = {**views, **streams}
        made = {**state.topics, **{topic: view.made for topic, view in apart.items()}}
        own = TopicsState(
            cluster_id=state.cluster_id,
            topics={topic: made[topic] for topic in sorted(wanted)},
            tables={},
            # Of these nothing is to be emptied: a store has what a topic has lost.
            histories={topic: topic for topic in histories},
        )
        raise_first(state_problems(own, facts, self._admin().cluster_id()))
        compacted = wanted - histories.keys()
        lags_ms = [int(facts[topic].config.get("min.compaction.lag.ms", 0)) for topic in compacted]
        kept_ms = [int(facts[topic].config.get("delete.retention.ms", _DAY_MS)) for topic in compacted]
        counts = self._counts(facts, made)
        return SinkTopics(
            ids={topic: facts[topic].topic_id for topic in sorted(wanted)},
            partitions={**counts, **{topic: view.partitions for topic, view in apart.items()}},
            compaction_lag_s=min(lags_ms, default=_DAY_MS) / 1000,
            retention_s=min(kept_ms, default=math.inf) / 1000,
            views={topic: str(view.schema.table) for topic, view in sorted(views.items())},
            histories=self._admin().first_offsets({topic: counts[topic] for topic in sorted(histories)}),
            streams=frozenset(streams),
        )

    def ends(self, topics: SinkTopics) -> Offsets:
        return ends_of_made(self._admin(), topics.partitions)

    def epochs(self) -> EpochsState:
        return EpochsState.find(self._state()) or EpochsState()

    def rekeyed(self) -> frozenset[str]:
        return frozenset(one.topic for one in find_all(self._state(), KeyedAnewState))

    def looks(self, topics: Collection[str]) -> Mapping[str, TopicLook] | None:
        if not may_hold_debezium(self._settings):
            return None
        return {topic: TopicLook(*found) for topic, found in self._admin().leaders(topics).items()}

    def newest(self) -> tuple[int, int] | None:
        if may_hold_debezium(self._settings):
            return None  # Kafka Connect's offsets may be older than what a store has shown: it would send that again
        try:
            newest = newest_progress(self._settings)
        except DamagedError:
            return None
        return (newest.epoch, newest.lsn) if newest is not None else None

    def schemas(self) -> list[TableSchema]:
        shapes = all_shapes(self._settings)
        if not any(histories_in(self._sections(sink)) for sink in self._settings.sinks):
            return shapes
        from sinks.contract.history_rows import history_shape  # noqa: PLC0415 - a command's help loads no Arrow

        return shapes + [history_shape(shape) for shape in shapes if shape.table.schema != VIEW_SCHEMA]

    def _state(self) -> Mapping[bytes, bytes]:
        return KafkaCompactedTopic(self._settings.log, state_topic(self._settings.name)).read()

    def _counts(self, facts: Mapping[str, TopicFacts], made: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Topic -> number of partitions that may hold records."""
        if not may_hold_debezium(self._settings):
            return {topic: made[topic]["partitions"] for topic in sorted(facts)}
        return unraised_partitions(facts, made)

    def _views(self, patterns: Sequence[str]) -> dict[str, KnownView]:
        """By topic, the views that these patterns take."""
        if not view_patterns(patterns):
            return {}
        return {view.topic: view for view in taken_views(known_views(self._settings), patterns).values()}

    def _streams(self, patterns: Sequence[str]) -> dict[str, KnownView]:
        """By topic, the streams that these patterns take."""
        if not view_patterns(patterns, STREAM_SCHEMA):
            return {}
        return {one.topic: one for one in taken_streams(known_views(self._settings), patterns).values()}

    def _admin(self) -> TopicAdmin:
        if self._kept is None:
            require_broker(self._settings.log)
            self._kept = TopicAdmin(self._settings.log)
        return self._kept


def unborn_views(patterns: Sequence[str], settings: Iterable[str], streams: Iterable[str] = ()) -> list[str]:
    """The views and streams of the settings that a sink's ``tables`` take, as tables of their schemas.

    >>> unborn_views(["public.*", "view.order_*"], ["order_search", "sales"])
    ['view.order_search']
    """
    texts = [*view_patterns(patterns), *view_patterns(patterns, STREAM_SCHEMA)]
    taking = [Pattern.parse(text) for text in texts]
    named = [TableName(VIEW_SCHEMA, name) for name in settings]
    named += [TableName(STREAM_SCHEMA, name) for name in streams]
    return [str(table) for table in named if any(pattern.takes(table) for pattern in taking)]


class NoTables(ConfigError):
    """A sink takes none of the captured tables."""


def _nothing(sink: str, views: Sequence[str]) -> CdcError:
    """Why a sink has no topic. A view that is not yet run may have one in a moment: that is waited for."""
    if not views:
        return NoTables(f"[sinks.{sink}] tables: none of the captured tables is among them")
    why = f"[sinks.{sink}] takes {', '.join(views)} alone, and there is no topic of that yet"
    return LogError(why, hint="cdc view run makes a view's, and cdc stream run a stream's", retry=Retry.NOW)


def unraised_partitions(facts: Mapping[str, TopicFacts], made: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Topic -> number of partitions, of topics that Debezium writes. ``made``: the topics as they were made.

    TopicError where some were added: a key that moved to one of them would show an older row, because records of two
    partitions have no order.
    """
    for topic, found in sorted(facts.items()):
        if found.partitions > made[topic]["partitions"]:
            raise TopicError(
                f"the topic {topic} was raised from {made[topic]['partitions']} to {found.partitions} partitions, and "
                "its records are in order within one partition alone",
                hint="cdc connect resnapshot makes the topics anew; then cdc rebuild of each sink",
            )
    return {topic: found.partitions for topic, found in sorted(facts.items())}


def kept_histories(state: TopicsState, known: Mapping[TableName, str], patterns: Sequence[str]) -> dict[str, TableName]:
    """By topic, the tables of the histories that a sink keeps. ``known``: table -> topic. ``patterns``: its
    ``history``."""
    some = kept(list(known), patterns) if patterns else []
    from sinks.contract.history_rows import history_name  # noqa: PLC0415 - as above

    return {state.histories[known[one]]: history_name(one) for one in some if known[one] in state.histories}


def require_apart(tables: Collection[TableName], histories: Iterable[TableName], sink: str) -> None:
    """ConfigError where a captured table has the name of a history of the same sink."""
    for name in histories:
        if name in tables:
            raise ConfigError(
                f"[sinks.{sink}] history: the captured table {name} has the name of a history of this sink",
                hint="leave one of the two out of the sink: by tables, or by history",
            )


def known_topics(state: TopicsState, shapes: Iterable[TableSchema], *, embedded: bool) -> dict[TableName, str]:
    """Table -> topic, of the captured tables whose records a sink can read.

    ``shapes``: as the schema topic has them. ``embedded``: shapes may come with the records, so a table may have none
    yet.
    """
    captured = set(state.tables.values())
    known = {shape.table: shape.topic for shape in shapes if shape.topic in captured}
    if embedded:
        known |= {TableName(*table.rsplit(".", 1)): topic for table, topic in state.tables.items()}
    return known
