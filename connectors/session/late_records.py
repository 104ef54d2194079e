"""Records that came too late, at a session's start: found in the topics' ends, and made harmless before the stream
goes on.

A record that is written again has its old position, so stores have it already. In the log it is the last of
its key once more, which is what compaction keeps. See :mod:`cdc.capture.late_record_rules`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc.capture.late_record_rules import KeyHistory, PartitionTail
from cdc.capture.windows import Closed
from cdc.process.clock import Clock
from cdc.process.errors import ActiveError, LogError, Retry, TopicError
from cdc.record.ports import CompactedTopic, Headers, Record
from cdc.record.position import Position
from cdc.record.progress import FIRST_EPOCH, PROGRESS_KEY, EpochsState, Offsets, Progress, WriterState
from cdc.record.source_lineage import SourceLineage
from cdc.record.state import RequestState, SlotState, TopicsState
from cdc.record.topic_names import progress_topic
from cdc.settings.model import LogSettings, Settings
from cdc.wire.format import POS
from connectors.kafka.broker_answers import LEADERLESS
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted_topic import log_error
from connectors.kafka.stream_log import KafkaStreamLog
from connectors.kafka.topic_ends import SHORT_S, Found, Tail, held_positions, hidden

_TIMEOUT_S = 30.0

Place = tuple[str, int]
"""Topic and partition."""


class RepairRecord(NamedTuple):
    """The record that has to be the last of a key, as it stands further up."""

    place: Place
    key: bytes
    value: bytes | None
    headers: Headers


class LateRepair(NamedTuple):
    """``records`` make the keys right again. Of ``unproven`` topics a newer record may have been compacted away."""

    records: list[RepairRecord]
    unproven: list[str]


def read_tails(
    settings: LogSettings, tails: Iterable[Tail], progress: Progress, *, suspect_chunks: bool, written_lsn: int | None
) -> dict[Place, PartitionTail]:
    """Each tail, read whole. ``written_lsn`` as :class:`cdc.capture.late_record_rules.PartitionTail` has it. Raises
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
    best: dict[tuple[Place, bytes], RepairRecord] = {}

    def take(place: Place, message: Message) -> None:
        key, offset = _key(message), message.offset() or 0
        history = histories[place].get(key)
        position = late[place].position(_pos(message))
        if history is not None and history.take(offset, position, late=offset in late[place].offsets):
            value = message.value()
            best[place, key] = RepairRecord(place, key, value if isinstance(value, bytes) else None, _headers(message))

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


log = logging.getLogger(__name__)

_REASON = "has records that came too late, and newer ones may have been compacted away behind them"

_SKIPPED = "was not followed for a while: a record of somebody else was taken for the newest of its topic"


class Ends:
    """The ends of the table topics behind a progress record: how far they reach, and what must not stand there.

    ``suspect_chunks``: somebody else is known to have written. ``written_lsn``: what the source had written behind
    ``ends``. None where records beyond it are reported elsewhere. Raises LogError or TopicError when they cannot be
    read.
    """

    def __init__(
        self,
        settings: Settings,
        topics: TopicsState,
        ends: Offsets,
        progress: Progress,
        *,
        suspect_chunks: bool,
        written_lsn: int | None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._written_lsn = written_lsn
        progress, self._skipped = without_future(progress, written_lsn)
        self._progress = progress
        self._ends = {(t, p): end for t in topics.written for p, end in ends[t].items()}
        self._suspect_chunks = suspect_chunks
        self._tails: dict[Place, PartitionTail] = {}
        self.newest = held_positions(progress, topics.written, ends, self._look)
        """The highest streamed position of each partition that has one there."""
        if self.newest:
            log.info("tails_read", extra={"partitions": len(self.newest)})

    def _look(self, tails: list[Tail]) -> Found:
        self._tails = read_tails(
            self._settings.log,
            tails,
            self._progress,
            suspect_chunks=self._suspect_chunks,
            written_lsn=self._written_lsn,
        )
        return {place: tail.newest for place, tail in self._tails.items() if tail.newest is not None}

    def take_up(
        self, records: KafkaStreamLog, bases: Mapping[str, int], state: CompactedTopic, clock: Clock
    ) -> dict[int, Position]:
        """Lane -> the highest position it holds, which the log knows from here on. Repair the records that came too
        late."""
        seen = {bases[topic] + partition: newest for (topic, partition), newest in self.newest.items()}
        for lane, newest in seen.items():
            records.hold(lane, newest)
        self.mend(records, bases, state, clock)
        return seen

    def mend(self, records: KafkaStreamLog, bases: Mapping[str, int], state: CompactedTopic, clock: Clock) -> None:
        """Write again what has to stand last. Request tables again where the log does not show which record that is.

        The brokers have them when this returns, with a progress record that leaves it behind. Safe to repeat. Raises
        ActiveError, after that, where Debezium went on writing behind a handover.
        """
        for (topic, partition), tail in self._tails.items():
            if tail.foreign:
                where = {
                    "topic": topic,
                    "partition": partition,
                    "offset": min(tail.foreign),
                    "records": len(tail.foreign),
                }
                log.warning("foreign_records", extra=where)
        late = sum(len(tail.offsets) for tail in self._tails.values())
        if not late and not self._skipped:
            return
        # Where nothing is compacted, nothing hides a record that stands further up.
        kept = self._topics.never_compacted
        compacted = {place: tail for place, tail in self._tails.items() if place[0] not in kept}
        found = mending(self._settings.log, compacted, self._ends)
        state.write(
            [(asked.key(), asked.to_json()) for asked in self._requests(found.unproven, _REASON, clock.now_ns())]
        )
        state.write(
            [(asked.key(), asked.to_json()) for asked in self._requests(self._skipped, _SKIPPED, clock.now_ns())]
        )
        again: list[Record] = [(bases[m.place[0]] + m.place[1], m.key, m.value, m.headers) for m in found.records]
        records.produce(again)
        records.settle()
        own = progress_topic(self._settings.name)
        noted = Progress(
            epoch=self._progress.epoch,
            lsn=self._progress.lsn,
            offsets={topic: parts for topic, parts in records.offsets().items() if topic != own},
            ahead=records.ahead(self._progress.lsn),
            lineage=self._progress.lineage,
            at_us=self._progress.at_us,
        )
        records.produce([(bases[own], PROGRESS_KEY, noted.to_json(), [])])
        records.settle()
        extra = {"records": late, "written_again": len(again), "tables_to_read": len({*found.unproven, *self._skipped})}
        log.warning("late_records_mended", extra=extra)
        self._require_one_writer(state)

    def _require_one_writer(self, state: CompactedTopic) -> None:
        """ActiveError where somebody else writes behind a handover. Each of its records is told of once: the progress
        record leaves them behind."""
        place = min((place for place, tail in self._tails.items() if tail.foreign), default=None)
        if place is not None and WriterState.find(state.read()) is not None:
            raise ActiveError(
                f"{place[0]} partition {place[1]} holds records from offset {min(self._tails[place].foreign)} on that "
                "the native capture did not write, behind the handover: there are two writers",
                hint="end the other one (cdc connect delete removes the connector), then start again: what stands last "
                "is right again, and its records are dead letters",
                retry=Retry.NEVER,
            )

    def _requests(self, topics: Collection[str], why: str, serial: int) -> Iterable[RequestState]:
        for table, topic in self._topics.tables.items():
            if topic in topics:
                reason = f"{table} {why}"
                yield RequestState(
                    id=f"snapshot:{table}", table=table, after_lsn=self._progress.lsn, reason=reason, serial=serial
                )


def beginning(epochs: EpochsState, slot: SlotState, ends: Offsets, position: int, at_us: int = 0) -> Progress:
    """As a progress record at the epoch's beginning would have it. In the first epoch nothing can have come too late
    yet, so there is nothing to read."""
    began = {topic: {p: epochs.began(topic, p) for p in parts} for topic, parts in ends.items()}
    offsets = began if epochs.latest > FIRST_EPOCH else ends
    return Progress(epoch=slot.epoch, lsn=position, offsets=offsets, lineage=SourceLineage.of_slot(slot), at_us=at_us)


def without_future(progress: Progress, written_lsn: int | None) -> tuple[Progress, frozenset[str]]:
    """A progress record without positions that the source has not come to, and the topics that had one: of these,
    changes may have been passed over."""
    if written_lsn is None:
        return progress, frozenset()
    ahead = {
        topic: {p: text for p, text in parts.items() if Position.parse(text).commit_lsn <= written_lsn}
        for topic, parts in progress.ahead.items()
    }
    skipped = frozenset(topic for topic, parts in progress.ahead.items() if len(parts) > len(ahead[topic]))
    return replace(progress, ahead={topic: parts for topic, parts in ahead.items() if parts}), skipped


def require_nothing_lost(ends: Offsets, progress: Progress) -> None:
    """TopicError when a partition ends below what a progress record says it holds: the broker lost acked records."""
    for topic, parts in progress.offsets.items():
        for partition, acknowledged in parts.items():
            end = ends.get(topic, {}).get(partition, acknowledged)
            if end < acknowledged:
                raise TopicError(
                    f"{topic} partition {partition} ends at offset {end}, and {acknowledged} were acknowledged: "
                    "the broker lost records that it had taken",
                    hint="the topics no longer hold every change: cdc drop --topics, empty the stores, then cdc init "
                    "and cdc snapshot; "
                    "a replication factor of 3 with min.insync.replicas 2 prevents it",
                )


def require_still(ends: Offsets, now: Offsets, own_topic: str) -> None:
    """LogError when a topic grew while this session was opened: what a dead capture, or its broker, still had."""
    for topic, parts in ends.items():
        if topic != own_topic and topic in now and now[topic] != parts:
            raise LogError(
                f"{topic} grew while capture was starting: records of an earlier capture were still on their way",
                hint="start again: the next start sees where the topic ends; make sure that no other capture runs",
            )


class NoteRetry:
    """Called again and again while a session's note is not taken. Any thread. Raises to give up: what ``turn``
    raises, Closed when the session is over."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._turn = turn
        self._over = threading.Event()

    def __call__(self) -> None:
        if self._over.is_set():
            raise Closed
        self._turn()

    def end(self) -> None:
        """The session is over."""
        self._over.set()
