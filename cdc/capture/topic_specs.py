"""The topics of a pipeline as they are to be made: partitions, copies and settings. A table keeps its topic. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

from cdc.process.errors import ConfigError
from cdc.record.documents import dumped
from cdc.record.state import Document, TopicsState
from cdc.record.topic_names import dead_topic, progress_topic, schema_topic, state_topic
from cdc.settings.model import LogSettings

_MB = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as it is to be. ``config`` are topic settings by Kafka's names. ``replication_factor``: -1 for the
    brokers' own number."""

    topic: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


def table_topic_spec(settings: LogSettings, topic: str) -> TopicSpec:
    """The topic of one table: compacted, deletes kept for the replay window."""
    return TopicSpec(
        topic=topic,
        partitions=settings.partitions,
        replication_factor=settings.replication_factor,
        config={
            "cleanup.policy": "compact",
            "delete.retention.ms": str(_ms(settings.replay_window)),
            "min.compaction.lag.ms": str(_ms(settings.min_compaction_lag)),
            "max.message.bytes": str(settings.max_message_bytes),
            **_durability(settings),
        },
    )


def kept_topic_spec(settings: LogSettings, topic: str, keep_ms: int, partitions: int | None = None) -> TopicSpec:
    """A topic of outbox events or of a history: never compacted, because each record is a fact of its own. ``keep_ms``:
    -1 for ever. ``partitions``: of a history as many as its table's topic has."""
    return TopicSpec(
        topic=topic,
        partitions=partitions or settings.partitions,
        replication_factor=settings.replication_factor,
        config={
            "cleanup.policy": "delete",
            "retention.ms": str(keep_ms),
            "max.message.bytes": str(settings.max_message_bytes),
            **_durability(settings),
        },
    )


def pipeline_topic_specs(settings: LogSettings, name: str) -> list[TopicSpec]:
    """The own topics of a pipeline: state, schema and progress compacted. Dead letters kept until dealt with."""
    size = str(max(_MB, settings.max_message_bytes))
    compact = {"cleanup.policy": "compact", "max.message.bytes": size, **_durability(settings)}
    # Progress is written up to ten times a second, and read at every start.
    churning = compact | {"segment.bytes": str(4 * _MB), "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"}
    # A dead letter holds the refused record and the reason, so it is larger than the record was.
    dead = compact | {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": str(2 * int(size))}
    return [
        TopicSpec(topic=topic, partitions=1, replication_factor=settings.replication_factor, config=config)
        for topic, config in (
            (state_topic(name), compact),
            (schema_topic(name), compact),
            (progress_topic(name), churning),
            (dead_topic(name), dead),
        )
    ]


def made_specs(settings: LogSettings, name: str, state: TopicsState) -> list[TopicSpec]:
    """The topics that ``init`` made, as they have to be now. Partition counts are those they were made with."""
    tables = (table_topic_spec(settings, topic) for topic in state.tables.values())
    kept = (kept_topic_spec(settings, topic, -1) for topic in sorted(state.never_compacted))
    specs = [*pipeline_topic_specs(settings, name), *tables, *kept]
    return [replace(s, partitions=state.topics[s.topic]["partitions"]) for s in specs if s.topic in state.topics]


def _durability(settings: LogSettings) -> dict[str, str]:
    """Where the brokers choose the number of copies, they choose how many have to hold a record as well."""
    clean = {"unclean.leader.election.enable": "false"}
    if settings.replication_factor < 0:
        return clean
    return clean | {"min.insync.replicas": "2" if settings.replication_factor >= 3 else "1"}


def _ms(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)


# A table keeps its topic, and a topic its table: pure.
#
# Another topic would begin with the table's next change, so that a store built from it lacked rows. One that was
# another table's holds that table's records.


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedAnewState(Document):
    """A topic of Debezium's whose table got another key: rows under the former one stay in it. A record of its own,
    which any sink may write."""

    WHAT: ClassVar[str] = "keyed_anew"
    topic: str

    def key(self) -> bytes:
        """See :meth:`cdc.record.state.Document.key`."""
        return dumped({"what": self.WHAT, "topic": self.topic})


def without_topics(known: TopicsState, gone: Collection[str]) -> TopicsState:
    """The notes without these topics and what they were used for."""
    return replace(
        known,
        topics={topic: one for topic, one in known.topics.items() if topic not in gone},
        tables={table: topic for table, topic in known.tables.items() if topic not in gone},
        events=[topic for topic in known.events if topic not in gone],
        histories={topic: history for topic, history in known.histories.items() if history not in gone},
    )


def topic_problems(known: TopicsState | None, meant: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each sentence and its hint, by the tables' names. ``meant``: table -> its topic by the settings. ``known``: the
    notes, None before any."""
    if known is None:
        return
    for table, topic in sorted(meant.items()):
        before = known.tables.get(table)
        if before is not None and before != topic:
            hint = f'put it back: [source.topics] "{table}" = "{before}"; a pipeline of another name may have another'
            yield f"{table} has the topic {before}, and the settings name {topic}", hint
        elif before is None and topic in known.topics:
            hint = f'give it a topic of a new name: [source.topics] "{table}" = "..."'
            yield f"{table} would use the topic {topic}, which holds records from before", hint


def require_kept_topics(known: TopicsState | None, meant: Mapping[str, str]) -> None:
    """ConfigError for the first of :func:`topic_problems`."""
    for problem, hint in topic_problems(known, meant):
        raise ConfigError(problem, hint=hint)
