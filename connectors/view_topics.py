"""Views as everything behind the log sees them: topics, shapes and progress of their own, beside those of tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, TopicPartition

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import CdcError, DamagedError, Exit, Retry, TopicError
from cdc.progress import Progress
from cdc.schema import TableSchema
from cdc.settings import Settings
from cdc.topic import VIEW_SCHEMA, TableName, schema_topic, view_topic, views_topic
from cdc.views.known_views import KnownView, Views, is_claim, read_views
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted import KafkaCompactedTopic, bounds, read_on
from connectors.kafka.feed import CompactedFeed
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.selection import Pattern

log = logging.getLogger(__name__)
_LOOK_S = 1.0
_NONE = Views({}, {})


class ViewTopicsChanged(CdcError):
    """Another generation of a view is published now, in a topic of its own: the view has to be opened anew."""

    exit = Exit.UNAVAILABLE
    retry = Retry.LATER

    def __init__(self, said: str) -> None:
        super().__init__(said, hint="a runner opens its views anew by itself, over what there is now")


def known_views(settings: Settings) -> Views:
    """Read the views topic. Nothing before the first view."""
    topic = views_topic(settings.name)
    if topic not in TopicAdmin(settings.log).describe([topic]):
        return _NONE
    return read_views(KafkaCompactedTopic(settings.log, topic).read())


class ViewsLook:
    """:func:`known_views` again and again, by one client. For one thread.

    A topic that ends below what was read of it was made anew, and is read from its beginning.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._consumer = Consumer(reader_config(settings.log))
        self._records: dict[bytes, bytes] = {}
        self._next = 0

    def known(self) -> Views:
        """The views as of now, none where there is no topic. LogError when no broker answers."""
        where = TopicPartition(views_topic(self._settings.name), 0)
        try:
            end = bounds(self._consumer, where, self._settings.log)[1]
        except TopicError:
            return _NONE
        if end < self._next:
            self._records, self._next = {}, 0
        for message in read_on(self._consumer, self._settings.log, where.topic, 0, self._next):
            self._next = (message.offset() or 0) + 1
            key, value = message.key(), message.value()
            if isinstance(key, bytes):
                self._records.pop(key, None)
                if isinstance(value, bytes):
                    self._records[key] = value
        return read_views(self._records)

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()


def generation_topics(settings: Settings, name: str) -> dict[int, str]:
    """The topics of a view's generations that are there, by their numbers. LogError when no broker answers."""
    start = view_topic(settings.name, name, 0).removesuffix("0")
    ends = [topic.removeprefix(start) for topic in TopicAdmin(settings.log).names() if topic.startswith(start)]
    return {number: f"{start}{number}" for number in sorted(int(end) for end in ends if end.isdecimal())}


def topics_of_views(settings: Settings) -> list[str]:
    """The topics of each view, of all its generations, and last the views topic. Nothing before the first view."""
    own, admin = views_topic(settings.name), TopicAdmin(settings.log)
    if own not in admin.describe([own]):
        return []
    topics = [topic for name in known_views(settings).known for topic in generation_topics(settings, name).values()]
    return [*topics, own]


def view_patterns(patterns: Iterable[str]) -> list[str]:
    """Those of a sink's ``tables`` that name views.

    >>> view_patterns(["public.*", "*.*", "view.*", '"view"."a.b"'])
    ['view.*', '"view"."a.b"']
    """
    return [text for text in patterns if text.startswith((f"{VIEW_SCHEMA}.", f'"{VIEW_SCHEMA}".'))]


def unfed_views(settings: Settings) -> list[str]:
    """The views of the settings that no sink takes. None where there is no sink: programs may read their topics."""
    taking = [Pattern.parse(text) for sink in settings.sinks.values() for text in view_patterns(sink.tables)]
    named = [(name, TableName(VIEW_SCHEMA, name)) for name in settings.views if settings.sinks]
    return [name for name, table in named if not any(pattern.takes(table) for pattern in taking)]


def taken_views(views: Views, patterns: Iterable[str]) -> dict[TableName, KnownView]:
    """The views that a sink's ``tables`` name, as tables of the schema ``view``. A sink that names no view takes
    none."""
    taking = [Pattern.parse(text) for text in view_patterns(patterns)]
    named = {TableName(VIEW_SCHEMA, name): view for name, view in views.known.items()}
    return {table: view for table, view in named.items() if any(pattern.takes(table) for pattern in taking)}


def all_shapes(settings: Settings) -> list[TableSchema]:
    """Every version of the shapes of all tables, and the shape of each view that the settings or a sink name."""
    shapes = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name))).versions()
    return [*shapes, *view_shapes(settings)]


class _Shapes:
    """The schema topic with the shape of each view as one more record, to be read alone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = KafkaCompactedTopic(settings.log, schema_topic(settings.name))

    def read(self) -> dict[bytes, bytes]:
        return self._topic.read() | {shape.topic_key(): shape.to_json() for shape in view_shapes(self._settings)}

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        raise NotImplementedError


def known_shapes(settings: Settings) -> SchemaRegistry:
    """Shapes as :func:`all_shapes` has them, to be looked up. Nothing can be registered there."""
    return SchemaRegistry(_Shapes(settings))


def view_shapes(settings: Settings) -> list[TableSchema]:
    """The shape of each view. Where the settings and their sinks name none, nobody is asked."""
    if not (settings.views or any(view_patterns(sink.tables) for sink in settings.sinks.values())):
        return []
    return [view.schema for view in known_views(settings).known.values()]


class ViewProgressFeed:
    """The progress of all views as it comes. Implements :class:`spark.ports.ProgressFeed`. One thread at a time.

    Before the first view there is no topic to follow: it asks for one once a second.
    """

    def __init__(self, settings: Settings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._feed: CompactedFeed | None = None
        self._due_s = 0.0

    def poll(self, timeout_s: float) -> list[Progress]:
        """Records since the last call."""
        feed = self._opened()
        found = []
        for key, value in feed.poll(timeout_s) if feed is not None else ():
            try:
                if value is not None and is_claim(key):
                    found.append(Progress.from_json(value))
            except DamagedError:
                # Not one of ours: nothing is proven by it.
                log.warning("progress_unreadable", extra={"topic": views_topic(self._settings.name)})
        return found

    def close(self) -> None:
        """End the connection to the brokers."""
        if self._feed is not None:
            self._feed.close()

    def _opened(self) -> CompactedFeed | None:
        now_s = self._clock.monotonic()
        if self._feed is None and now_s >= self._due_s:
            self._due_s = now_s + _LOOK_S
            topic = views_topic(self._settings.name)
            if topic in TopicAdmin(self._settings.log).describe([topic]):
                self._feed = CompactedFeed(self._settings.log, topic)
        return self._feed


def views_feed(settings: Settings, sinks: Sequence[str]) -> ViewProgressFeed | None:
    """The views' progress, where one of these sinks takes views."""
    takes = any(view_patterns(settings.sinks[sink].tables) for sink in sinks)
    return ViewProgressFeed(settings) if takes else None
