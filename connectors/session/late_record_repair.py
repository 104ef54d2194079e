"""Late records at a session's start: found in the topics' ends, and made harmless before the stream goes on.

A record that is written again has its old position, so stores have it already. In the log it is the last of
its key once more, which is what compaction keeps. See :mod:`cdc.capture.fenced_records`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from cdc.capture.fenced_records import PartitionTail
from cdc.capture.windows import Closed
from cdc.process.clock import Clock
from cdc.process.errors import LogError, TopicError
from cdc.record.ports import CompactedTopic, Record
from cdc.record.position import Position
from cdc.record.progress import FIRST_EPOCH, PROGRESS_KEY, EpochsState, Offsets, Progress
from cdc.record.source_lineage import SourceLineage
from cdc.record.state import RequestState, SlotState, TopicsState
from cdc.record.topic_names import progress_topic
from cdc.settings.model import Settings
from connectors.kafka.late_records import Place, mending, read_tails
from connectors.kafka.stream_log import KafkaStreamLog
from connectors.kafka.topic_ends import Found, Tail, held_positions

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
        self._ends = {(t, p): end for t in set(topics.tables.values()) for p, end in ends[t].items()}
        self._suspect_chunks = suspect_chunks
        self._tails: dict[Place, PartitionTail] = {}
        self.newest = held_positions(progress, set(topics.tables.values()), ends, self._look)
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

        The brokers have them when this returns, with a progress record that leaves it behind. Safe to repeat.
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
        found = mending(self._settings.log, self._tails, self._ends)
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
        )
        records.produce([(bases[own], PROGRESS_KEY, noted.to_json(), [])])
        records.settle()
        extra = {"records": late, "written_again": len(again), "tables_to_read": len({*found.unproven, *self._skipped})}
        log.warning("late_records_mended", extra=extra)

    def _requests(self, topics: Collection[str], why: str, serial: int) -> Iterable[RequestState]:
        for table, topic in self._topics.tables.items():
            if topic in topics:
                reason = f"{table} {why}"
                yield RequestState(
                    id=f"snapshot:{table}", table=table, after_lsn=self._progress.lsn, reason=reason, serial=serial
                )


def beginning(epochs: EpochsState, slot: SlotState, ends: Offsets, position: int) -> Progress:
    """As a progress record at the epoch's beginning would have it. In the first epoch nothing can have come too late
    yet, so there is nothing to read."""
    began = {topic: {p: epochs.began(topic, p) for p in parts} for topic, parts in ends.items()}
    offsets = began if epochs.latest > FIRST_EPOCH else ends
    return Progress(epoch=slot.epoch, lsn=position, offsets=offsets, lineage=SourceLineage.of_slot(slot))


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
        if topic != own_topic and now[topic] != parts:
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
