"""Topics followed as they grow, by consumers that stay open: the progress topic, the dead letters', the state topic,
and for ``cdc events`` those of the tables.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import DamagedError, UsageError
from cdc.record.progress import PROGRESS_KEY, Mark, Progress
from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName, history_topic, progress_topic, state_topic
from cdc.settings.model import LogSettings, Settings
from cdc.wire.dead_letter import DeadLetter
from cdc.wire.events import Change, PublishedEvent, PublishedEvents, Record, read
from cdc.wire.format import VER
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import LEADERLESS, PASSING
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted_topic import KafkaCompactedTopic, bounds, log_error, read_range
from connectors.kafka.dead_letters import letter_of
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.kafka.topic_ends import last_progress

_BATCH = 500
_POLL_S = 0.2


def follow(
    settings: LogSettings, partitions: Mapping[str, int], *, from_beginning: bool, until_caught_up: bool
) -> Iterator[list[Record]]:
    """Batches of records of these topics (topic -> partition count), from their end or their beginning.

    ``until_caught_up``: stop at the ends as they are at the call. Otherwise for ever. Records of one partition
    come in order. A batch may be empty. LogError when the broker says an error.
    """
    ends = TopicAdmin(settings).end_offsets(partitions)
    consumer = Consumer(reader_config(settings))
    try:
        consumer.assign(
            [
                TopicPartition(topic, partition, OFFSET_BEGINNING if from_beginning else end)
                for topic, parts in ends.items()
                for partition, end in parts.items()
            ]
        )
        left = {(topic, partition) for topic, parts in ends.items() for partition, end in parts.items() if end}
        while left or not until_caught_up:
            batch = []
            for message in consumer.consume(_BATCH, timeout=_POLL_S):
                topic, partition, error = message.topic() or "", message.partition() or 0, message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    # A replica that is read instead of the leader shows its last records a little later.
                    if (message.offset() or 0) >= ends[topic][partition]:
                        left.discard((topic, partition))
                elif error is not None and error.code() not in LEADERLESS:
                    raise log_error(error, f"reading {topic}", settings, topic)
                elif error is None:
                    batch.append(_record(message))
            yield batch
    finally:
        consumer.close()


def _record(message: Message) -> Record:
    headers: Any = message.headers() or ()
    return Record(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers={name: text for name, value in headers if (text := _bytes(value)) is not None},
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


log = logging.getLogger(__name__)


class Changes:
    """The table topics, as changes."""

    def __init__(self, settings: LogSettings, schemas: SchemaRegistry) -> None:
        self._settings = settings
        self._schemas = schemas
        self.tables = schemas.tables()
        """Every table the log knows."""

    def follow(
        self, tables: Sequence[TableName], *, from_beginning: bool, until_caught_up: bool, history: bool = False
    ) -> Iterator[list[Change]]:
        """Batches of changes of these tables. A record that is not ours is passed over with a warning. ``history``: as
        their histories keep them. UsageError where none of them has one."""
        topics = {shape.topic: table for table in tables if (shape := self._schemas.latest(table)) is not None}
        if history:
            topics = {history_topic(topic): table for topic, table in topics.items()}
        facts = TopicAdmin(self._settings).describe(topics)
        if history and not facts:
            named = " and ".join(map(str, tables))
            raise UsageError(f"no history of {named} is kept", hint="name the table under [history] tables")
        counts = {topic: found.partitions for topic, found in facts.items()}
        for records in follow(self._settings, counts, from_beginning=from_beginning, until_caught_up=until_caught_up):
            yield [change for record in records if (change := self._change(topics, record)) is not None]

    def _change(self, topics: Mapping[str, TableName], record: Record) -> Change | None:
        try:
            table, version = topics[record.topic], record.headers.get(VER)
            # A gap is of no version of the table.
            shape = self._schemas.latest(table) if version is None else self._schemas.get(table, int(version))
            return read(shape, record) if shape is not None else None
        except (KeyError, ValueError) as fault:
            where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.warning("record_not_understood", extra={**where, "reason": str(fault)})
            return None


def follow_events(
    settings: Settings, chosen: str, *, from_beginning: bool, until_caught_up: bool
) -> Iterator[list[PublishedEvent]]:
    """Batches of outbox events: of all topics where ``chosen`` is empty, else of those that end in it.

    UsageError where no such topic is there. A record that is none of ours is passed over with a warning.
    """
    state = KafkaCompactedTopic(settings.log, state_topic(settings.name)).read()
    noted = TopicsState.find(state)
    known = noted.events if noted is not None else []
    topics = [topic for topic in known if not chosen or topic.endswith(f".{chosen}")]
    if not topics or noted is None:
        named = ", ".join(known) or "none yet: a topic is made with its first event"
        raise UsageError(f"there are no events {chosen}".rstrip(), hint=f"the topics of events are {named}")
    counts, events = {topic: noted.topics[topic]["partitions"] for topic in topics}, PublishedEvents()
    for records in follow(settings.log, counts, from_beginning=from_beginning, until_caught_up=until_caught_up):
        yield [event for record in records if (event := _event(events, record)) is not None]


def _event(events: PublishedEvents, record: Record) -> PublishedEvent | None:
    try:
        return events.read(record)
    except ValueError as fault:
        where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        log.warning("record_not_understood", extra={**where, "reason": str(fault)})
        return None


_MOST = 1000
_ASKED_S = 3.0
_PASSING = (KafkaError._PARTITION_EOF, *PASSING)
"""Errors that the client recovers from by itself."""


class FollowingConsumer(Protocol):
    """So much of a consumer as following a topic needs."""

    def assign(self, partitions: list[TopicPartition], /) -> None:
        """Begin there."""

    def poll(self, timeout: float, /) -> Message | None:
        """The next record, if there is one within so long."""

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """So many records at most, those that came within so long."""

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """First and next offset. ``cached``: as the last answer had them, without asking."""

    def close(self) -> None:
        """End the connection to the brokers."""


class _Feed:
    """A topic of one partition, from an offset on, as it grows. One thread at a time."""

    most = _MOST
    """Records of one look."""

    def __init__(self, settings: LogSettings, topic: str, consumer: FollowingConsumer | None = None) -> None:
        self._settings = settings
        self._topic = topic
        opened = consumer or Consumer(reader_config(settings) | {"fetch.wait.max.ms": 500})
        self._consumer = cast(Consumer, opened)
        self._consumer.assign([TopicPartition(topic, 0, self._start())])

    def _start(self) -> int:
        return OFFSET_BEGINNING

    def messages(self, timeout_s: float) -> Iterator[Message]:
        """Records since the last call, in order. Waits for the first at most so long. LogError when it fails."""
        first = self._consumer.poll(timeout_s)
        if first is not None:
            yield from self._sound([first, *self._consumer.consume(self.most, timeout=0)])

    def _sound(self, messages: list[Message]) -> Iterator[Message]:
        for message in messages:
            error = message.error()
            if error is not None and error.code() not in _PASSING:
                raise log_error(error, f"following {self._topic}", self._settings, self._topic)
            if error is None:
                yield message

    def close(self) -> None:
        self._consumer.close()


class ProgressTopic(_Feed):
    """Every progress record from the topic's beginning on, as it comes."""

    # One of them may have a megabyte.
    most = 20
    written_ms = 0
    """The timestamp of the newest record so far, since 1970."""
    newest: Progress | None = None
    """That record, for :meth:`catch_up`."""

    def catch_up(self, timeout_s: float, most_s: float = 5.0, clock: Clock = SYSTEM_CLOCK) -> Progress | None:
        """The newest record of those that the topic had when the look began. Waits for the first at most ``timeout_s``.

        A caller who looks once in some seconds would fall behind for ever by a fixed number of records a look. So at
        the first look, and where more than that stand there, the end is asked for and read up to, for at most about
        ``most_s``: the next look goes on from there. Raises LogError when it fails.
        """
        until_s, fresh = clock.monotonic() + most_s, self.newest is None
        first = self._consumer.poll(timeout_s)
        if first is None:
            return self.newest
        found = [first, *self._consumer.consume(self.most, timeout=0)]
        self._take(found)
        # A reader that is level does without the question. What a new one gets at first may be a small old segment.
        if fresh or len(found) > self.most:
            end = self._end(until_s - clock.monotonic())
            while _behind(found, end) and (left_s := until_s - clock.monotonic()) > 0:
                # An empty answer says nothing: more may be under way.
                found = self._consumer.consume(self.most, timeout=min(0.05, left_s)) or found
                self._take(found)
        return self.newest

    def _take(self, messages: list[Message]) -> None:
        """Keep the newest of these. Those before it are not even parsed, as each may have a megabyte."""
        for message in reversed(list(self._sound(messages))):
            value = message.value()
            if message.key() != PROGRESS_KEY or not isinstance(value, bytes):
                continue
            try:
                self.newest = Progress.from_json(value)
            except DamagedError:
                log.warning("progress_unreadable", extra={"topic": self._topic, "offset": message.offset()})
            else:
                self.written_ms = message.timestamp()[1]
                return

    def _end(self, within_s: float) -> int:
        """The topic's end. 0 where the brokers do not say it in time: the look then ends with what it has."""
        return _leaders_end(self._consumer, self._topic, max(0.1, within_s), self._settings) or 0

    def poll(self, timeout_s: float) -> list[Progress]:
        """Records since the last call."""
        found = []
        for message in self.messages(timeout_s):
            value = message.value()
            try:
                if message.key() == PROGRESS_KEY and isinstance(value, bytes):
                    found.append(Progress.from_json(value))
                    self.written_ms = message.timestamp()[1]
            except DamagedError:
                # Not one of ours: nothing is proven by it, and nothing is lost without it.
                log.warning("progress_unreadable", extra={"topic": self._topic, "offset": message.offset()})
        return found


def _leaders_end(consumer: FollowingConsumer, topic: str, within_s: float, settings: LogSettings) -> int | None:
    """A topic's end. None where the brokers do not say it in time. LogError when they cannot."""
    try:
        found = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=within_s)
    except KafkaException as failure:
        if failure.args[0].code() not in _PASSING:
            raise log_error(failure.args[0], f"following {topic}", settings, topic) from None
        return None
    return None if found is None else found[1]


def _behind(messages: list[Message], end: int) -> bool:
    """Whether more stand before ``end`` than the last of these. The note of a partition's end has its offset."""
    offsets = [offset + (message.error() is None) for message in messages if (offset := message.offset()) is not None]
    return not offsets or offsets[-1] < end


class DeadLetterFeed(_Feed):
    """Letters, orders and answers, from the topic's end at the opening on."""

    def poll(self, timeout_s: float) -> list[DeadLetter]:
        """Those since the last call."""
        return [letter for message in self.messages(timeout_s) if (letter := letter_of(message)) is not None]

    def _start(self) -> int:
        # As a number: the end would be looked up later, and what is written until then would be missed.
        return bounds(self._consumer, TopicPartition(self._topic, 0), self._settings)[1]


class CompactedFeed:
    """A compacted topic of one partition from its beginning on, record by record as it comes. One thread at a time.
    Implements :class:`snapshot.source.ports.Feed`."""

    def __init__(self, settings: LogSettings, topic: str, consumer: FollowingConsumer | None = None) -> None:
        self._settings = settings
        self._topic = topic
        self.caught_up = False
        """Whether the topic's end has been seen once, by its leader."""
        self._shown: int | None = None
        """Where the consumer says that the topic ends, as long as nothing came behind that."""
        opened = consumer or Consumer(reader_config(settings) | {"fetch.wait.max.ms": 500})
        self._consumer = cast(Consumer, opened)
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def poll(self, timeout_s: float) -> list[tuple[bytes, bytes | None]]:
        """Records since the last call, in order. Waits for the first at most so long. LogError when it fails."""
        found = []
        first = self._consumer.poll(timeout_s)
        for message in [first, *self._consumer.consume(_MOST, timeout=0)] if first is not None else ():
            error, key, value = message.error(), message.key(), message.value()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._shown = message.offset()
            elif error is not None and error.code() not in _PASSING:
                raise log_error(error, f"following {self._topic}", self._settings, self._topic)
            elif error is None:
                self._shown = None
                if isinstance(key, bytes):
                    found.append((key, value if isinstance(value, bytes) else None))
        self.caught_up = self.caught_up or self._at_end()
        return found

    def _at_end(self) -> bool:
        """Whether the topic ends where the consumer says so. A replica that is read instead of the leader lags.
        It is asked again at the next look where the leader does not answer."""
        if self._shown is None:
            return False
        end = _leaders_end(self._consumer, self._topic, _ASKED_S, self._settings)
        return end is not None and self._shown >= end

    def close(self) -> None:
        self._consumer.close()


NEWEST = 2_000


def read_marks(settings: LogSettings, topic: str, count: int = NEWEST) -> list[Mark]:
    """At most ``count`` marks, oldest first. Records that compaction has removed are not among them."""
    end = TopicAdmin(settings).end_offsets({topic: 1})[topic].get(0, 0)
    marks = []
    for message in read_range(settings, topic, 0, max(0, end - count)):
        value = message.value()
        if message.key() == PROGRESS_KEY and isinstance(value, bytes):
            # One that cannot be read says nothing of the others.
            with suppress(DamagedError):
                progress = Progress.from_json(value)
                marks.append(Mark(progress.epoch, progress.lsn, message.timestamp()[1]))
    return marks


def newest_progress(settings: Settings) -> Progress | None:
    """The newest progress record of the pipeline. None before the first one.

    LogError when no broker answers, DamagedError when no record can be read.
    """
    topic = progress_topic(settings.name)
    return last_progress(settings.log, topic, TopicAdmin(settings.log).end_offsets({topic: 1})[topic][0])
