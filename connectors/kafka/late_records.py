"""Records that came too late, found at the ends of the topics, and what has to stand last instead: see
cdc.capture.fenced_records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc.capture.fenced_records import KeyHistory, PartitionTail
from cdc.process.errors import LogError
from cdc.record.ports import Headers
from cdc.record.position import Position
from cdc.record.progress import Progress
from cdc.settings.model import LogSettings
from cdc.wire.format import POS
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted_topic import log_error
from connectors.kafka.doubted_topics import LEADERLESS
from connectors.kafka.topic_ends import SHORT_S, Tail, hidden

_TIMEOUT_S = 30.0

Place = tuple[str, int]
"""Topic and partition."""


class Mend(NamedTuple):
    """The record that has to be the last of a key, as it stands further up."""

    place: Place
    key: bytes
    value: bytes | None
    headers: Headers


class LateRepair(NamedTuple):
    """``records`` make the keys right again. Of ``unproven`` topics a newer record may have been compacted away."""

    records: list[Mend]
    unproven: list[str]


def read_tails(
    settings: LogSettings, tails: Iterable[Tail], progress: Progress, *, suspect_chunks: bool, written_lsn: int | None
) -> dict[Place, PartitionTail]:
    """Each tail, read whole. ``written_lsn`` as :class:`cdc.capture.fenced_records.PartitionTail` has it. Raises
    LogError when the broker falls silent."""
    floor = Position(progress.epoch, progress.lsn, 0)
    found: dict[Place, PartitionTail] = {}
    wanted = []
    for tail in tails:
        ahead = progress.ahead.get(tail.topic, {}).get(tail.partition)
        newest = Position.parse(ahead) if ahead is not None else None
        found[tail.topic, tail.partition] = PartitionTail(floor, newest, suspect_chunks, written_lsn)
        if tail.end > tail.low:
            wanted.append(tail)

    def take(place: Place, message: Message) -> None:
        found[place].take(message.offset() or 0, _key(message), _pos(message))

    _scan(settings, wanted, take)
    return found


def mending(settings: LogSettings, tails: Mapping[Place, PartitionTail], ends: Mapping[Place, int]) -> LateRepair:
    """The records that make the keys of late records right again. Reads the partitions that have some from their
    beginning."""
    late = {place: tail for place, tail in tails.items() if tail.stale}
    histories = {place: {key: KeyHistory(at) for key, at in tail.stale.items()} for place, tail in late.items()}
    best: dict[tuple[Place, bytes], Mend] = {}

    def take(place: Place, message: Message) -> None:
        key, offset = _key(message), message.offset() or 0
        history = histories[place].get(key)
        position = late[place].position(_pos(message))
        if history is not None and history.take(offset, position, late=offset in late[place].offsets):
            value = message.value()
            best[place, key] = Mend(place, key, value if isinstance(value, bytes) else None, _headers(message))

    _scan(settings, [Tail(*place, 0, ends[place]) for place in late], take)
    known = [(place, key, history) for place, keys in histories.items() for key, history in keys.items()]
    return LateRepair(
        records=[best[place, key] for place, key, history in known if history.wrong],
        unproven=sorted({place[0] for place, _, history in known if not history.proven}),
    )


def _pos(message: Message) -> bytes:
    """The header. Empty without one."""
    return next((value for name, value in _headers(message) if name == POS), b"")


def _headers(message: Message) -> list[tuple[str, bytes]]:
    headers = message.headers() or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, value) for name, value in pairs if isinstance(value, bytes)]


def _key(message: Message) -> bytes:
    key = message.key()
    return key if isinstance(key, bytes) else b""


def _scan(settings: LogSettings, tails: list[Tail], take: Callable[[Place, Message], None]) -> None:
    """Every record of these ranges, each partition in its order."""
    left = {(tail.topic, tail.partition): tail.end for tail in tails if tail.end > tail.low}
    if not left:
        return
    short: dict[Place, int] = {}
    consumer = Consumer(reader_config(settings) | {"auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(tail.topic, tail.partition, tail.low) for tail in tails])
        while left:
            first = consumer.poll(_TIMEOUT_S if left.keys() - short.keys() else SHORT_S)
            if first is None and (behind := left.keys() & short.keys()):
                place = min(behind)
                raise hidden(place, short[place], left[place])
            if first is None:
                raise LogError(
                    f"reading the topics' ends: Kafka sent nothing for {_TIMEOUT_S:g} s", hint="check the brokers"
                )
            for message in (first, *consumer.consume(10_000, timeout=0)):
                place = (message.topic() or "", message.partition() or 0)
                short.pop(place, None)
                shown = _one(place, message, left, take, settings)
                if shown is not None:
                    short[place] = shown
    except KafkaException as error:
        raise log_error(error.args[0], "reading the topics' ends", settings) from None
    finally:
        consumer.close()


def _one(
    place: Place,
    message: Message,
    left: dict[Place, int],
    take: Callable[[Place, Message], None],
    settings: LogSettings,
) -> int | None:
    """One record, or a partition's end. The end where it is below the one that is ``left`` to read to."""
    error, offset, end = message.error(), message.offset() or 0, left.get(place)
    if error is not None and error.code() == KafkaError._PARTITION_EOF:
        if end is not None and offset < end:
            return offset
        left.pop(place, None)
    elif error is not None:
        if error.code() not in LEADERLESS:
            raise log_error(error, f"reading the end of {place[0]}", settings, place[0])
    elif end is None or offset >= end:
        left.pop(place, None)
    else:
        take(place, message)
        if offset + 1 >= end:
            left.pop(place)
    return None
