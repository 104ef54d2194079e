"""The log as DataFrames ask about it: :class:`spark.frames.ports.Connect` on Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from pydantic import ValidationError

from cdc.process.errors import ConfigError, Retry, TopicError, UsageError
from cdc.record.progress import PROGRESS_KEY, Offsets, Progress
from cdc.record.schema import TableSchema
from cdc.record.state import TopicsState
from cdc.record.topic_names import VIEW_SCHEMA, TableName, progress_topic, schema_topic, state_topic, views_topic
from cdc.settings.model import LogSettings, Settings, load
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import facts_of_made, require_broker
from connectors.kafka.clients import fetching_config
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.feed import ProgressTopic
from connectors.kafka.record_reader import ReferencedReading, refused
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.kafka.topic_ends import offsets_at
from connectors.kafka.topic_problems import raise_first, state_problems
from spark.frames.frame_columns import chosen
from spark.frames.options import FrameOptions
from spark.frames.ports import EventTopic, FrameTopic, FrameTopics

if TYPE_CHECKING:
    from cdc.views.known_views import KnownView


_FIRST_S = 5.0


class KafkaConnect:
    """Implements :class:`spark.frames.ports.Connect`. It holds nothing, so it can be pickled."""

    def settings(self, path: str) -> Mapping[str, str]:
        return given_options(load(Path(path)))

    def log(self, options: FrameOptions) -> KafkaFrameLog:
        settings = _log_settings(options)
        require_broker(settings)
        try:
            return KafkaFrameLog(options.pipeline, settings)
        except KafkaException as error:
            raise refused(error) from None

    def reading(self, options: FrameOptions) -> ReferencedReading:
        config = fetching_config(_log_settings(options, secrets=False)) | {"group.id": "cdc-frame"}
        return ReferencedReading(tuple(sorted(config.items())), options.secrets)


def given_options(settings: Settings) -> dict[str, str]:
    """The options of a frame over the pipeline of these settings. Secrets stay where they are."""
    found = {"bootstrap_servers": settings.log.bootstrap_servers, "pipeline": settings.name}
    found |= {f"kafka.{name}": _text(value) for name, value in settings.log.client.items()}
    return found | {f"kafka.{name}": secret.reference for name, secret in settings.log.client_secrets.items()}


class KafkaFrameLog:
    """Implements :class:`spark.frames.ports.FrameLog`. One client, kept."""

    def __init__(self, pipeline: str, settings: LogSettings) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._admin = TopicAdmin(settings)
        self._feed: ProgressTopic | None = None

    def find(self, patterns: Iterable[str]) -> FrameTopics:
        try:
            state = TopicsState.find(self._compacted(state_topic(self._pipeline)).read())
        except TopicError:
            state = None
        if state is None:
            raise UsageError(f"Kafka at {self._settings.bootstrap_servers} has no pipeline {self._pipeline}",
                             hint=_pipelines(self._admin.names()))  # fmt: skip
        shapes = {shape.table: shape.topic for shape in self._registry().versions()}
        captured, asked = set(state.tables.values()), list(patterns)
        # As for a sink: a view is read where its schema is named.
        views = self._views() if any(one.startswith(f"{VIEW_SCHEMA}.") for one in asked) else {}
        known = {table: topic for table, topic in shapes.items() if topic in captured}
        known |= {table: view.topic for table, view in views.items()}
        wanted = {table: known[table] for table in chosen(known, asked, self._pipeline)}
        made = {**state.topics, **{view.topic: view.made for view in views.values()}}
        unknown = sorted(set(wanted.values()) - set(made))
        if unknown:
            raise TopicError(
                f"the state topic has no note of the topic {unknown[0]}, which it names for a table",
                hint="cdc check says what is wrong with the topics",
            )
        facts = facts_of_made(self._admin, wanted.values())
        own = TopicsState(
            cluster_id=state.cluster_id,
            topics={topic: made[topic] for topic in wanted.values()},
            tables={},
        )
        raise_first(state_problems(own, facts, self._admin.cluster_id()))
        return FrameTopics(
            topics={
                table: FrameTopic(
                    topic,
                    facts[topic].topic_id,
                    made[topic]["partitions"],
                    int(facts[topic].config.get("min.compaction.lag.ms", 0)),
                )
                for table, topic in wanted.items()
            }
        )

    def versions(self, table: TableName) -> list[TableSchema]:
        if table.schema == VIEW_SCHEMA:
            return [self._views()[table].schema]
        return [shape for shape in self._registry().versions() if shape.table == table]

    def ends(self, partitions: Mapping[str, int]) -> Offsets:
        return self._admin.stable_offsets(partitions)

    def offsets_at(self, ends: Offsets, time_ms: int) -> Offsets:
        return offsets_at(self._settings, ends, dict.fromkeys(ends, time_ms))

    def progress(self) -> Progress | None:
        value = self._compacted(progress_topic(self._pipeline)).read().get(PROGRESS_KEY)
        return Progress.from_json(value) if value is not None else None

    def newest_progress(self) -> Progress | None:
        # A new reader has to be told first who leads the topic.
        wait_s = 0.0 if self._feed is not None else _FIRST_S
        if self._feed is None:
            self._feed = ProgressTopic(self._settings, progress_topic(self._pipeline))
        return self._feed.catch_up(wait_s)

    def events(self, topic: str) -> EventTopic:
        facts = self._admin.describe([topic]).get(topic)
        if facts is None:
            raise TopicError(
                f"there is no topic {topic}",
                hint="capture makes a topic of events with the first of its type; cdc events shows what comes",
                retry=Retry.LATER,
            )
        state = TopicsState.find(self._compacted(state_topic(self._pipeline)).read())
        own = {*state.events, *state.histories.values(), *state.tables.values()} if state is not None else set()
        return EventTopic(
            topic=topic,
            id=facts.topic_id,
            partitions=facts.partitions,
            starts=self._admin.first_offsets({topic: facts.partitions})[topic],
            ours=topic in own,
            compacted="compact" in facts.config.get("cleanup.policy", ""),
            append_time=facts.config.get("message.timestamp.type") == "LogAppendTime",
            keep_ms=int(facts.config.get("retention.ms", -1)),
        )

    def _views(self) -> dict[TableName, KnownView]:
        # Not for a frame of a table: they bring the parser of the views' texts along.
        from cdc.views.known_views import read_views  # noqa: PLC0415

        topic = views_topic(self._pipeline)
        if topic not in self._admin.describe([topic]):
            return {}
        known = read_views(self._compacted(topic).read()).known
        return {view.schema.table: view for view in known.values()}

    def _registry(self) -> SchemaRegistry:
        return SchemaRegistry(self._compacted(schema_topic(self._pipeline)))

    def _compacted(self, topic: str) -> KafkaCompactedTopic:
        return KafkaCompactedTopic(self._settings, topic)


def _log_settings(options: FrameOptions, *, secrets: bool = True) -> LogSettings:
    try:
        return LogSettings.model_validate(
            {
                "bootstrap_servers": options.servers,
                "client": dict(options.client),
                "client_secrets": dict(options.secrets) if secrets else {},
            }
        )
    except ValidationError:
        raise ConfigError("the options of Kafka's client cannot be read") from None


def _pipelines(topics: Iterable[str]) -> str:
    """The pipelines that are there instead."""
    names = {topic.removesuffix(".state") for topic in topics if topic.endswith(".state")}
    return f"it has {', '.join(sorted(names)[:10])}" if names else "it has none; cdc init makes a pipeline's topics"


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
