"""Stretches of partitions out of Kafka, as fast as Python can: :class:`cdc.wire.records.RecordReader` on librdkafka.

One consumer per reader, assigned and without a group. It fetches ahead while its caller works, so a reader that
is asked for stretch after stretch finds most of the next one here already. Compaction and markers leave gaps: a
stretch is done when a record behind it came, or when the broker reported that there is none. Executors import this
module, and read the secrets of a reader where it is opened.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from cdc.process.errors import ConfigError, Exit, LogError, Retry, TopicError
from cdc.process.untrusted_text import quoted
from cdc.wire.format import AT, HEADERS, REASON_HEADER
from cdc.wire.records import BEGINNING, RecordColumns, Span, split_headers
from connectors.kafka.broker_answers import PASSING
from connectors.kafka.clients import with_secrets

_SILENCE_S = 30.0
_ROUND, _TURN = 20_000, 500
_ROUND_BYTES = 8 * 1024**2
"""The records taken out of the client at once, in turns of some records."""
_MOST_AHEAD, _MOST_AHEAD_BYTES = 20_000, 16 * 1024**2
"""Records taken out of the client that nobody asked for yet, of one partition, and bytes of them, of all partitions:
those that have more are paused."""
_POS, _OP, _VER = HEADERS
# A broker that restarts does not know its partitions for a while.
_PASSING = (*PASSING, KafkaError.UNKNOWN_TOPIC_OR_PART)
_DENIED = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)


@dataclass(frozen=True)
class KafkaReading:
    """How to open a reader, as plain data that travels to executors. Holds secrets: never log it. Implements
    :class:`cdc.wire.records.ReaderOpener`.

    ``config``: of :func:`connectors.kafka.clients.fetching_config`. Executors import this module, so it knows no
    settings.
    """

    config: tuple[tuple[str, Any], ...] = field(repr=False)

    def open(self) -> KafkaRecords:
        return KafkaRecords(dict(self.config))


class _AssignedPartition:
    """One assigned partition: what came of it, and how far that is all there is."""

    __slots__ = ("ahead", "ahead_bytes", "known", "paused", "upto")

    def __init__(self, start: int) -> None:
        self.ahead: list[Any] = []
        self.ahead_bytes = 0
        self.upto = start
        """Where the next stretch has to begin for the consumer to go on."""
        self.known = start
        """Every record below this offset came."""
        self.paused = False


class KafkaRecords:
    """See the module. ``config``: librdkafka properties, ``enable.partition.eof`` among them. Implements
    :class:`cdc.wire.records.RecordReader`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._consumer = Consumer(dict(config))
        self._servers = str(config["bootstrap.servers"])
        self._group = str(config.get("group.id", ""))
        self._places: dict[tuple[str, int], _AssignedPartition] = {}

    def read(self, spans: Iterable[Span]) -> Iterator[RecordColumns]:
        waiting = {(span.topic, span.partition): span for span in spans if span.end > max(0, span.start)}
        self._go_to(waiting)
        while waiting:
            for key, span in list(waiting.items()):
                place = self._places[key]
                with _collector_at_rest():
                    lot = _taken(place, span)
                if lot is not None:
                    yield lot
                if place.known >= span.end:
                    place.upto = span.end
                    del waiting[key]
            if waiting:
                self._hold_back(waiting)
                with _collector_at_rest():
                    self._receive()

    def close(self) -> None:
        self._consumer.close()

    def _go_to(self, wanted: Mapping[tuple[str, int], Span]) -> None:
        """Assign what is not at its start yet. The rest goes on with what was fetched meanwhile."""
        moved = [
            span for key, span in wanted.items() if key not in self._places or self._places[key].upto != span.start
        ]
        known = [key for key in ((span.topic, span.partition) for span in moved) if key in self._places]
        if known:
            # The client forgets that a partition is paused neither when it goes nor when it comes again.
            self._consumer.resume([TopicPartition(*key) for key in known if self._places[key].paused])
            self._consumer.incremental_unassign([TopicPartition(*key) for key in known])
        for span in moved:
            self._places[span.topic, span.partition] = _AssignedPartition(span.start)
        if moved:
            self._consumer.incremental_assign(
                [
                    TopicPartition(
                        span.topic, span.partition, OFFSET_BEGINNING if span.start == BEGINNING else span.start
                    )
                    for span in moved
                ]
            )

    def _hold_back(self, waiting: Mapping[tuple[str, int], Span]) -> None:
        """Pause those that run ahead of what is asked for, and resume those that are waited for."""
        full = sum(place.ahead_bytes for place in self._places.values()) > _MOST_AHEAD_BYTES
        for key, place in self._places.items():
            if key in waiting and place.paused:
                self._consumer.resume([TopicPartition(*key)])
                place.paused = False
            elif key not in waiting and not place.paused and (full or len(place.ahead) > _MOST_AHEAD):
                self._consumer.pause([TopicPartition(*key)])
                place.paused = True

    def _receive(self) -> None:
        """Wait for the first record, then take what is there: consume() with a timeout waits for its number."""
        said: KafkaError | None = None
        first = self._consumer.poll(_SILENCE_S)
        if first is None:
            raise LogError(
                f"reading the topics: Kafka at {self._servers} sent nothing for {_SILENCE_S:g} s",
                hint="check that the brokers run",
            )
        for message in self._round(first):
            error = message.error()
            if error is None:
                place = self._places.get((message.topic(), message.partition()))
                if place is not None:
                    place.ahead.append(message)
                    place.ahead_bytes += len(message)
                    place.known = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                place = self._places.get((message.topic(), message.partition()))
                if place is not None:
                    place.known = max(place.known, message.offset())
            else:
                said = error
        if said is not None and said.code() not in _PASSING:
            raise self._failure(said)

    def _round(self, first: Any) -> list[Any]:
        """The first and what is there behind it, some megabytes at most: the client fetches on meanwhile."""
        # The client's stubs say None for what a record without an error always has.
        received: list[Any] = [first]
        taken_bytes = len(first)
        while len(received) < _ROUND and taken_bytes < _ROUND_BYTES:
            # As many as the bytes that are left hold, of the size that they have had: 500 of 100 kB are 50 MB.
            turn = min(_TURN, max(1, (_ROUND_BYTES - taken_bytes) * len(received) // max(1, taken_bytes)))
            found = self._consumer.consume(turn, timeout=0)
            received += found
            taken_bytes += sum(map(len, found))
            if len(found) < turn:
                break
        return received

    def _failure(self, error: KafkaError) -> LogError:
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            return TopicError(
                f"records are gone from the topics that have not been read yet: {quoted(error.str())}",
                hint="a topic was deleted, made anew or cut; cdc check says which",
            )
        if error.code() in _DENIED:
            # No time mends it, and the sink would begin again for ever.
            what = f"the group {self._group}" if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED else "a topic"
            return LogError(
                f"reading the topics: this login to Kafka lacks the right Read on {what}",
                hint="give it by kafka-acls --add; SECURITY.md lists the rights that each part needs",
                retry=Retry.NEVER,
                exit=Exit.CONFIG,
            )
        return LogError(
            f"reading the topics: Kafka at {self._servers} says {quoted(error.str())}",
            hint="check [log] and that the brokers run; cdc check says more",
        )


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Every record makes a dozen small objects that are gone a moment later. Looking for cycles among them took as
    long as all the rest (6.2 against 2.9 us a record)."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _taken(place: _AssignedPartition, span: Span) -> RecordColumns | None:
    """The records of a span among those that came. None for nothing."""
    ahead = place.ahead
    if not ahead:
        return None
    if ahead[-1].offset() < span.end:
        taken, place.ahead = ahead, []
    else:
        taken = list(takewhile(lambda message: message.offset() < span.end, ahead))
        place.ahead = ahead[len(taken) :]
        place.known = max(place.known, span.end)
    place.ahead_bytes -= sum(map(len, taken))
    if not taken:
        return None
    # A caller may give up half-way: the next stretch that begins elsewhere is then looked for anew.
    place.upto = taken[-1].offset() + 1
    return _lot(span, taken)


def _headers_of(messages: list[Any]) -> list[Any]:
    try:
        return [message.headers() for message in messages]
    except UnicodeDecodeError:
        return [_readable_headers(message) for message in messages]


def _readable_headers(message: Any) -> Any:
    """The headers of a record that may be anybody's: the client takes their names for UTF-8, and there is no other way
    to them. Unreadable headers become one header that says so."""
    try:
        return message.headers()
    except UnicodeDecodeError:
        return [(REASON_HEADER, b"not a record of ours: a header's name is not UTF-8")]


def _lot(span: Span, messages: list[Any]) -> RecordColumns:
    """The hot path of every sink: one pass for the headers, list comprehensions for the rest."""
    pos: list[bytes | None] = []
    op: list[bytes | None] = []
    ver: list[bytes | None] = []
    others: dict[int, Any] = {}
    at: dict[int, bytes | None] = {}
    for number, headers in enumerate(_headers_of(messages)):
        if headers is not None and len(headers) == 3:
            (first, a), (second, b), (third, c) = headers
            if first == _POS and second == _OP and third == _VER:
                pos.append(a)
                op.append(b)
                ver.append(c)
                continue
        elif headers is not None and len(headers) == 4:
            (first, a), (second, b), (third, c), (fourth, d) = headers
            if first == _POS and second == _OP and third == _VER and fourth == AT:
                pos.append(a)
                op.append(b)
                ver.append(c)
                at[number] = d
                continue
        others[number] = tuple(headers or ())
        for column, value in zip((pos, op, ver), split_headers(others[number]), strict=True):
            column.append(value)
    return RecordColumns(
        topic=span.topic,
        partition=span.partition,
        offsets=[message.offset() for message in messages],
        times_ms=[message.timestamp()[1] for message in messages],
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        pos=pos,
        op=op,
        ver=ver,
        headers=others,
        at=[at.get(number) for number in range(len(messages))] if at else (),
    )


@dataclass(frozen=True)
class ReferencedReading:
    """How to open a reader, as plain data without a secret. Implements :class:`cdc.wire.records.ReaderOpener`.

    ``config``: of :func:`connectors.kafka.clients.fetching_config`, less the secrets. ``references``: librdkafka's
    names, each with ``env:NAME``, ``file:PATH`` or ``command:PROGRAM``.
    """

    config: tuple[tuple[str, Any], ...]
    references: tuple[tuple[str, str], ...]

    def open(self) -> KafkaRecords:
        config = with_secrets(dict(self.config), dict(self.references))
        try:
            return KafkaRecords(config)
        except KafkaException as error:
            raise refused(error) from None


def refused(error: KafkaException) -> ConfigError:
    """The error for options that librdkafka refuses."""
    return ConfigError(
        f"Kafka's client refuses its options: {quoted(error.args[0].str())}",
        hint="options that begin with kafka. are librdkafka's, not those of Java's client",
    )
