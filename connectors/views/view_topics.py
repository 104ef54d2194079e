"""Views as everything behind the log sees them: topics, shapes and progress of their own, beside those of tables."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, ConfigError, DamagedError, Exit, Retry, TopicError
from cdc.record.progress import Progress
from cdc.record.schema import TableSchema
from cdc.record.topic_names import (
    STREAM_SCHEMA,
    VIEW_SCHEMA,
    TableName,
    schema_topic,
    set_apart_topic,
    stream_topic,
    view_topic,
    views_topic,
)
from cdc.settings.model import Settings
from cdc.status.stream_lines import StreamFacts
from cdc.status.view_lines import RunnerState, ViewFacts
from cdc.views.known_views import KnownView, Views, is_claim, read_views
from cdc.views.log_cut import fence_of
from cdc.views.state_reach import ELSEWHERE
from cdc.views.view_state import SIZES
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted_topic import KafkaCompactedTopic, bounds, read_on
from connectors.kafka.feed import CompactedFeed, newest_progress
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.server.table_selection import Pattern

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


def generation_topics(
    settings: Settings, name: str, topic_of: Callable[[str, str, int], str] = view_topic
) -> dict[int, str]:
    """The topics of a view's generations that are there, by their numbers. ``topic_of``: of a view or of a stream.
    LogError when no broker answers."""
    start = topic_of(settings.name, name, 0).removesuffix("0")
    ends = [topic.removeprefix(start) for topic in TopicAdmin(settings.log).names() if topic.startswith(start)]
    return {number: f"{start}{number}" for number in sorted(int(end) for end in ends if end.isdecimal())}


def topics_of_views(settings: Settings) -> list[str]:
    """The topics of each view, of all its generations, and last the views topic. Nothing before the first view."""
    own, admin = views_topic(settings.name), TopicAdmin(settings.log)
    if own not in admin.describe([own]):
        return []
    known = known_views(settings)
    topics = [topic for name in known.known for topic in generation_topics(settings, name).values()]
    topics += [topic for name in known.streams for topic in stream_topics(settings, name)]
    return [*topics, own]


def stream_topics(settings: Settings, name: str) -> list[str]:
    """The topics of a stream that are there: of each generation, and of the events that it sets apart."""
    aside = set_apart_topic(settings.name, name)
    there = [aside] if aside in TopicAdmin(settings.log).names() else []
    return [*generation_topics(settings, name, stream_topic).values(), *there]


def view_patterns(patterns: Iterable[str], schema: str = VIEW_SCHEMA) -> list[str]:
    """Those of a sink's ``tables`` that name views, or the tables of another schema of ours.

    >>> view_patterns(["public.*", "*.*", "view.*", '"view"."a.b"'])
    ['view.*', '"view"."a.b"']
    """
    return [text for text in patterns if text.startswith((f"{schema}.", f'"{schema}".'))]


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


def taken_streams(views: Views, patterns: Iterable[str]) -> dict[TableName, KnownView]:
    """The streams that a sink's ``tables`` name, as tables of the schema ``stream``."""
    taking = [Pattern.parse(text) for text in view_patterns(patterns, STREAM_SCHEMA)]
    named = {TableName(STREAM_SCHEMA, name): stream for name, stream in views.streams.items()}
    return {table: stream for table, stream in named.items() if any(pattern.takes(table) for pattern in taking)}


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
    """The shape of each view and stream. Where the settings and their sinks name none, nobody is asked."""
    named = [text for sink in settings.sinks.values() for text in sink.tables]
    if not (settings.views or settings.streams or view_patterns(named) or view_patterns(named, STREAM_SCHEMA)):
        return []
    known = known_views(settings)
    return [one.schema for one in (*known.known.values(), *known.streams.values())]


class ViewProgressFeed:
    """The progress of all views as it comes. Implements :class:`spark.records.ports.ProgressFeed`. One thread at a
    time.

    Before the first view there is no topic to follow: it asks for one once a second.
    """

    def __init__(self, settings: Settings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._feed: CompactedFeed | None = None
        self._due_s = 0.0

    def poll(self, timeout_s: float) -> list[Progress]:
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


_FILES = ("", "-wal")


def state_path(settings: Settings, name: str, generation: int) -> Path:
    """The file of the state of a view's runner. ConfigError for a folder that is none."""
    folder = settings.views[name].state
    if "\0" in folder:
        raise ConfigError(f"the state of the view {name} lies in no folder: its name has a NUL", hint=ELSEWHERE)
    return Path(folder) / f"{settings.name}.{name}.{generation}.sqlite"


def state_bytes(path: Path) -> int:
    """The size of a state's files. OSError where they cannot be seen."""
    return sum(file.stat().st_size for end in _FILES if (file := Path(f"{path}{end}")).exists())


def look_at_views(settings: Settings) -> Sequence[ViewFacts]:
    """The views of the settings, in their order. LogError when no broker answers."""
    if not settings.views:
        return ()
    found, unfed = known_views(settings), unfed_views(settings)
    views = []
    for name in settings.views:
        known, progress = found.known.get(name), found.progress.get(name)
        if known is None:
            views.append(ViewFacts(name=name, fed=name not in unfed))
            continue
        fence = fence_of(progress) if progress is not None else None
        views.append(
            ViewFacts(
                name=name,
                generation=known.generation,
                epoch=fence.epoch if fence is not None else None,
                # 0 stands for none, where the view is held before its first build is whole.
                lsn=(fence.lsn or None) if fence is not None else None,
                state=_state(state_path(settings, name, known.generation)),
                held=progress.aside.get(known.topic, "") if progress is not None else "",
                fed=name not in unfed,
            )
        )
    return views


def published_streams(settings: Settings) -> dict[str, StreamFacts]:
    """The streams that were published, by their names. LogError when no broker answers."""
    views, newest = known_views(settings), None
    if views.batches:
        newest = newest_progress(settings)
    found = {}
    for name, known in sorted(views.streams.items()):
        made = StreamFacts(name=name, generation=known.generation, topic=known.topic)
        last = views.batches.get(name)
        found[name] = (
            made
            if last is None
            else replace(
                made,
                batch=last.batch,
                at_us=last.at_us,
                newest_us=newest.at_us if newest is not None else 0,
                set_apart=last.set_apart,
                state_rows=last.state_rows,
                state_partitions=last.state_partitions,
            )
        )
    return found


def look_at_streams(settings: Settings) -> Sequence[StreamFacts]:
    """The streams of the settings, in their order. LogError when no broker answers."""
    if not settings.streams:
        return ()
    published = published_streams(settings)
    return [published.get(name, StreamFacts(name=name)) for name in settings.streams]


def _state(path: Path) -> RunnerState | None:
    """None where there is no such file here, or none that can be read now."""
    try:
        size_bytes = state_bytes(path)
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as session:
            waiting, parked = session.execute(SIZES).fetchone()
    except (OSError, sqlite3.Error):
        return None
    return RunnerState(waiting=waiting, parked=parked, size_bytes=size_bytes)
