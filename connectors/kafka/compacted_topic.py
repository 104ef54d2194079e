"""A small compacted topic of one partition, read whole and appended to: state, schema, progress."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from functools import partial
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import Exit, LogError, Retry, TopicError
from cdc.process.untrusted_text import quoted
from cdc.settings.model import LogSettings
from connectors.kafka.broker_answers import GONE, LEADERLESS, PASSING, SILENT, missing_of
from connectors.kafka.clients import READER_GROUP, client_config, producer_config, reader_config

_TIMEOUT_S = 30.0
_TURN_S = 0.5
_BRIEF_TIMEOUT_S = 3.0
_AGAIN_S = 0.1
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: " on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: f" on the group {READER_GROUP}",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: " on the cluster",
}
_TOPIC_REFUSED = {
    # Its name, or a name that differs in dots and underscores alone.
    KafkaError.TOPIC_EXCEPTION: 'give the table another topic: [source] topics = { "schema.table" = "..." }',
    KafkaError.POLICY_VIOLATION: "the cluster has a policy for new topics: [log] replication_factor, partitions, "
    "replay_window and max_message_bytes set what is asked for",
    KafkaError.INVALID_REPLICATION_FACTOR: "[log] replication_factor = -1 takes the brokers' own number",
    KafkaError.INVALID_PARTITIONS: "[log] partitions sets how many a table's topic gets",
    KafkaError.INVALID_CONFIG: "[log] replay_window, min_compaction_lag and max_message_bytes set the topic's settings",
}
"""The broker does not make a topic like this one, and says why: what to change."""
_LOGIN_REFUSED = (KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION)
_RIGHTS = {
    "making": "Create", "deleting": "Delete", "writing": "Write", "sending": "Write", "asking for the settings":
    "DescribeConfigs", "looking": "Describe", "asking": "Describe", "listing": "Describe", "reading": "Read",
    "following": "Read",
}  # fmt: skip
"""The right that each kind of request needs, by how the sentence about it begins."""


_MAKERS = "cdc init makes the topics, and where Debezium writes them cdc connect deploy"


def log_error(error: KafkaError, doing: str, settings: LogSettings, *topics: str) -> LogError:
    """A Kafka error as ours: one sentence that names the servers. ``topics``: those that were asked for.

    A TopicError where one of them is not there. A broker that starts says so of topics that it has: then it is a
    LogError that passes.
    """
    if error.code() in GONE and missing_of(topics, partial(_names, settings)):
        return TopicError(f"{doing}: the topic does not exist", hint=_MAKERS)
    if error.code() in GONE:
        return LogError(
            f"{doing}: Kafka at {settings.bootstrap_servers} did not know the topic for a moment",
            hint="a broker that starts comes to know its topics by itself",
        )
    if error.code() in _DENIED:
        return _denied(error, doing)
    if error.code() in _LOGIN_REFUSED:
        return LogError(
            f"{doing}: Kafka at {settings.bootstrap_servers} refuses the login",
            hint="check sasl.* in [log] client and client_secrets",
            retry=Retry.SECRET,
            exit=Exit.CONFIG,
        )
    if error.code() in _TOPIC_REFUSED:
        return LogError(
            f"{doing}: Kafka refuses it: {quoted(error.str())}",
            hint=_TOPIC_REFUSED[error.code()],
            # A broker that is away may come back.
            retry=Retry.LATER if error.code() == KafkaError.INVALID_REPLICATION_FACTOR else Retry.NEVER,
            exit=Exit.CONFIG,
        )
    return LogError(
        f"{doing}: Kafka at {settings.bootstrap_servers} says {quoted(error.str())}",
        hint="check [log] bootstrap_servers and that the brokers run; cdc check says more",
    )


def _names(settings: LogSettings) -> Collection[str]:
    try:
        return AdminClient(client_config(settings)).list_topics(timeout=_BRIEF_TIMEOUT_S).topics
    except KafkaException as failure:
        raise LogError(f"listing topics: Kafka says {quoted(failure.args[0].str())}") from None


def _denied(error: KafkaError, doing: str) -> LogError:
    """A right that the login lacks, by its name in Kafka."""
    right = next((right for word, right in _RIGHTS.items() if doing.startswith(word)), "Describe")
    on = _DENIED[error.code()]
    return LogError(
        f"{doing}: this login to Kafka lacks the right {right}{on}",
        hint="give it by kafka-acls --add; SECURITY.md lists the rights that each part needs",
        retry=Retry.NEVER,
        exit=Exit.CONFIG,
    )


def read_range(
    settings: LogSettings,
    topic: str,
    partition: int,
    low: int | None = None,
    *,
    waiting: Callable[[], None] | None = None,
) -> Iterator[Message]:
    """The records of one partition from ``low`` (default: its beginning) to its end as of the call, in order.

    Compaction and markers leave gaps. The end is found by the broker's end offset and, where the last offset holds
    no record of ours, the end-of-partition signal, never by counting. Raises LogError when the broker stays silent
    for 30 s, and what ``waiting`` raises. See :class:`KafkaCompactedTopic`.
    """
    consumer = Consumer(reader_config(settings))
    try:
        yield from read_on(consumer, settings, topic, partition, low, waiting=waiting)
    finally:
        consumer.close()


def read_on(
    consumer: Consumer,
    settings: LogSettings,
    topic: str,
    partition: int,
    low: int | None = None,
    *,
    waiting: Callable[[], None] | None = None,
) -> Iterator[Message]:
    """:func:`read_range` with a consumer that is there already, which has nothing assigned before and after.

    Raises LogError when Kafka sends nothing in time.
    """
    where = TopicPartition(topic, partition)
    ask = partial(bounds, consumer, where, settings, waiting)
    first, end = ask()
    start = first if low is None else max(low, first)
    if start >= end:
        return
    passing = (KafkaError._PARTITION_EOF, *(LEADERLESS if waiting is None else PASSING))
    consumer.assign([TopicPartition(topic, partition, start)])
    try:
        while True:
            # consume() with a timeout waits until it has all it may return. One, then what is there, does not.
            first_come = _poll(consumer, waiting)
            if first_come is None:
                raise LogError(f"reading {topic}: Kafka sent nothing for {_TIMEOUT_S:g} s", hint="check the brokers")
            for message in (first_come, *consumer.consume(10_000, timeout=0)):
                error = message.error()
                if error is None:
                    offset = message.offset()
                    if offset is not None and offset >= end:
                        return
                    yield message
                    if offset == end - 1:
                        # The signal would come when the broker has waited for more, 50 ms later.
                        return
                elif error.code() == KafkaError._PARTITION_EOF and _is_end(message, end, ask):
                    return
                elif error.code() not in passing:
                    raise log_error(error, f"reading {topic}", settings, topic)
    finally:
        consumer.unassign()


def _is_end(message: Message, end: int, ask: Callable[[], tuple[int, int]]) -> bool:
    """Whether a partition ends where the consumer says it does. ``end``: by its leader. ``ask``: it is asked again.

    A replica that is read instead of the leader (``client.rack``) hears a little later how far the records stand for
    good, and so does a new leader: what it does not show yet is not absent.
    """
    shown = message.offset() or 0
    return shown >= end or shown >= ask()[1]


def _poll(consumer: Consumer, waiting: Callable[[], None] | None) -> Message | None:
    if waiting is None:
        return consumer.poll(_TIMEOUT_S)
    while (found := consumer.poll(_TURN_S)) is None:
        waiting()
    return found


def bounds(
    consumer: Consumer, where: TopicPartition, settings: LogSettings, waiting: Callable[[], None] | None = None
) -> tuple[int, int]:
    """First and next offset. A topic made a moment ago, or a broker that just came back, has no leader yet.

    Without tenacity, whose objects are a cycle that would hold the consumer: a process that spares the collector would
    keep each one that it has closed, and librdkafka's binding gives a thousand at once to a process.
    """
    timeout_s = _TIMEOUT_S if waiting is None else _BRIEF_TIMEOUT_S
    until_s = SYSTEM_CLOCK.monotonic() + _TIMEOUT_S
    while True:
        try:
            return consumer.get_watermark_offsets(where, timeout=timeout_s)
        except KafkaException as failure:
            if SYSTEM_CLOCK.monotonic() < until_s and _passes(failure, consumer, where, timeout_s):
                SYSTEM_CLOCK.sleep(_AGAIN_S)
                continue
            if waiting is None or failure.args[0].code() not in SILENT:
                raise log_error(failure.args[0], f"reading {where.topic}", settings, where.topic) from None
        waiting()
        until_s = SYSTEM_CLOCK.monotonic() + _TIMEOUT_S


def _passes(failure: KafkaException, consumer: Consumer, where: TopicPartition, timeout_s: float) -> bool:
    if failure.args[0].code() in GONE:
        return _may_stand(consumer, where, timeout_s)
    return leaderless(failure)


def _may_stand(consumer: Consumer, where: TopicPartition, timeout_s: float) -> bool:
    """Whether the partition exists, as far as is known: without an answer it may.

    Raises TopicError where the brokers know the topic, and no such partition of it.
    """
    try:
        found = consumer.list_topics(where.topic, timeout=timeout_s)
    except KafkaException as failure:
        return failure.args[0].code() in PASSING
    topic = found.topics.get(where.topic)
    if topic is not None and topic.error is None and where.partition not in topic.partitions:
        raise TopicError(f"reading {where.topic}: partition {where.partition} does not exist", hint=_MAKERS)
    return stands(topic, where.partition) or _unsure(topic)


def _unsure(topic: KnownTopic | None) -> bool:
    """Whether the brokers know of a topic and cannot say more for the moment."""
    return topic is not None and isinstance(topic.error, KafkaError) and topic.error.code() in PASSING


def known_partitions(
    consumer: Consumer, topic: str, settings: LogSettings, waiting: Callable[[], None] | None = None
) -> list[int]:
    """The numbers of a topic's partitions. Without an answer it is asked again, for 30 s, and with ``waiting`` for
    however long that takes: it is called every few seconds, and gives up by raising.

    Raises TopicError where the brokers say that there is no such topic, and LogError when they say neither.
    """
    until_s = SYSTEM_CLOCK.monotonic() + _TIMEOUT_S
    while True:
        try:
            found = consumer.list_topics(topic, timeout=_BRIEF_TIMEOUT_S).topics.get(topic)
        except KafkaException as failure:
            error: object = failure.args[0]
        else:
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART) if found is None else found.error
            if found is not None and error is None:
                return sorted(found.partitions)
        if not isinstance(error, KafkaError):
            raise LogError(f"reading {topic}: Kafka says {quoted(error)}", hint="check the brokers")
        if error.code() not in PASSING or (waiting is None and SYSTEM_CLOCK.monotonic() >= until_s):
            raise log_error(error, f"reading {topic}", settings, topic)
        if waiting is not None:
            waiting()
        SYSTEM_CLOCK.sleep(_AGAIN_S)


def leaderless(error: BaseException) -> bool:
    """Whether this passes by itself within seconds."""
    return isinstance(error, KafkaException) and error.args[0].code() in LEADERLESS


def passing(error: BaseException) -> bool:
    """The same, or no answer in time."""
    return leaderless(error) or (isinstance(error, KafkaException) and error.args[0].code() == KafkaError._TIMED_OUT)


class KnownTopic(Protocol):
    """The brokers' metadata of a topic."""

    @property
    def error(self) -> object:
        """Why the brokers do not know the topic. None where they do."""

    @property
    def partitions(self) -> Container[int]:
        """The numbers of its partitions."""


def stands(topic: KnownTopic | None, partition: int) -> bool:
    """Whether the brokers know this partition, with or without a leader.

    The client calls a partition unknown that has no leader for the moment, as after a broker that stood still, and so
    it does one that does not exist.
    """
    return topic is not None and topic.error is None and partition in topic.partitions


def flush(producer: Producer, waiting: Callable[[], None] | None) -> int:
    """How many records are left unanswered: after 30 s. With ``waiting`` none, however long that takes.

    It is called twice a second, and gives up by raising. Records that were given up do not arrive later, behind those
    that others have written since.
    """
    if waiting is None:
        return producer.flush(_TIMEOUT_S + 5)
    while producer.flush(_TURN_S):
        try:
            waiting()
        except BaseException:
            producer.purge()
            raise
    return 0


class KafkaCompactedTopic:
    """:class:`cdc.record.ports.CompactedTopic` on Kafka. Values of at most a few hundred kB, read whole each time.

    A question that the brokers do not answer fails after 30 s. With ``waiting`` they are waited for however long that
    takes, as by a stream's own records: it is called every few seconds at least, and gives up by raising.
    """

    def __init__(self, settings: LogSettings, topic: str, *, waiting: Callable[[], None] | None = None) -> None:
        self._settings = settings
        self._topic = topic
        self._waiting = waiting
        self._producer: Producer | None = None

    def read(self) -> dict[bytes, bytes]:
        newest: dict[bytes, bytes] = {}
        for message in read_range(self._settings, self._topic, 0, waiting=self._waiting):
            key, value = message.key(), message.value()
            if not isinstance(key, bytes):
                continue
            newest.pop(key, None)
            if isinstance(value, bytes):
                newest[key] = value
        return newest

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        if self._producer is None:
            # Kept: a producer's first record takes half a second, until it has an id. The id has to be: without it a
            # request that a stalled broker kept, and that was sent again, could land behind what was written since.
            timeout_ms = int(_TIMEOUT_S * 1000) if self._waiting is None else 0
            self._producer = Producer(producer_config(self._settings) | {"message.timeout.ms": timeout_ms})
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        for key, value in records:
            self._producer.produce(self._topic, value=value, key=key, partition=0, on_delivery=delivered)
        try:
            left = flush(self._producer, self._waiting)
        except SystemError:
            # A Ctrl-C that came while the client was in its own code arrives as this error.
            raise KeyboardInterrupt from None
        except BaseException:
            self._producer = None
            raise
        if failures:
            raise log_error(failures[0], f"writing {self._topic}", self._settings, self._topic)
        if left:
            raise LogError(
                f"writing {self._topic}: {left} records unanswered after {_TIMEOUT_S:g} s", hint="check the brokers"
            )
