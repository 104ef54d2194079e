"""A store's own word on where it is, against the topics of today: whether it may go on from there."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import ActiveError, CdcError, Exit, Retry, TopicError
from cdc.record.position import Lsn
from cdc.record.progress import EpochsState, Offsets, Watermark
from cdc.wire.dead_letter import DeadLetters
from sinks.contract.port import OpenSink
from spark.figures.sink_metrics import Metrics
from spark.records.ports import LogQuestions, SinkTopics, TopicLook
from spark.session.failures import GRACE_S, TIMEOUT_S
from spark.stores.watermark import LogView, covers


class StoreMoved(CdcError):
    """The store is behind what was written into it: restored, emptied or dropped. It is filled from where it is."""

    exit = Exit.UNAVAILABLE
    retry = Retry.NOW


class TopicReplaced(CdcError):
    """A topic is another one than when its records were asked for: they are read again, from what is there now."""

    exit = Exit.UNAVAILABLE
    retry = Retry.NOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The parts that all stores of an application share. ``grace_s``: how long a call into a store may go on at the
    end."""

    facts: LogQuestions
    dead: DeadLetters
    view: LogView
    metrics: Metrics
    clock: Clock = SYSTEM_CLOCK
    timeout_s: float = TIMEOUT_S
    grace_s: float = GRACE_S


def check_topics(sink: str, watermark: Watermark | None, topics: SinkTopics, ends: Offsets) -> None:
    """TopicError when a store's offsets speak of topics that are gone."""
    for topic, parts in (watermark.offsets if watermark is not None else {}).items():
        if watermark is None or topic not in topics.ids or topic in topics.histories:
            continue
        fed_from = watermark.topic_ids.get(topic)
        anew = fed_from is not None and fed_from != topics.ids[topic]
        if anew or any(offset > ends.get(topic, {}).get(p, 0) for p, offset in parts.items()):
            raise TopicError(
                f"the topic {topic} was made anew since the store of {sink} was filled from it",
                hint=f"cdc rebuild {sink} fills the store again from today's topics",
            )


def cut_histories(offsets: Offsets, topics: SinkTopics) -> Offsets:
    """The histories whose topics begin behind these offsets, each with the offsets that its partitions begin with.

    >>> cut_histories({"h": {0: 4, 1: 7}}, SinkTopics(histories={"h": {0: 5, 1: 5}, "i": {0: 0}}))
    {'h': {0: 5}}
    """
    behind = {
        topic: {p: begin for p, begin in parts.items() if begin > offsets.get(topic, {}).get(p, 0)}
        for topic, parts in topics.histories.items()
    }
    return {topic: parts for topic, parts in behind.items() if parts}


class TopicLooks:
    """The topics of a store as they were when it looked first. A position by offset means nothing in another one."""

    def __init__(self, log: LogQuestions, topics: SinkTopics) -> None:
        self._log = log
        self._topics = topics
        self._known: dict[str, TopicLook] = {}

    def require_same(self, topics: Collection[str]) -> None:
        """TopicReplaced where one was made anew or deleted, got partitions, or got a leader that may lack what the one
        before it had. The next :func:`check_topics` says whether the store may go on. LogError as the log has it."""
        looks = self._log.looks(topics)
        if looks is None:
            return
        for topic in topics:
            found = looks.get(topic)
            if found is None or found.topic_id != self._topics.ids.get(topic, found.topic_id):
                raise TopicReplaced(f"the topic {topic} is another one, or is gone")
            if found != self._known.setdefault(topic, found):
                raise TopicReplaced(f"the topic {topic} is another one, or has another leader")


def grown(before: Offsets, after: Offsets) -> frozenset[str]:
    """The topics of which one has read more than the other.

    >>> sorted(grown({"a": {0: 1}, "b": {0: 1}}, {"a": {0: 1}, "b": {0: 2}, "c": {}}))
    ['b', 'c']
    """
    return frozenset(topic for topic, parts in after.items() if parts != before.get(topic))


def rewound(offsets: Offsets, begun: Offsets) -> Offsets:
    """A store's offsets, no further than where these epochs begin.

    >>> rewound({"t": {0: 9, 1: 3}}, {"t": {0: 5, 1: 5}, "u": {0: 1}})
    {'t': {0: 5, 1: 3}}
    """
    return {
        topic: {p: min(offset, begun.get(topic, {}).get(p, offset)) for p, offset in parts.items()}
        for topic, parts in offsets.items()
    }


def check_claim(sink: str, watermark: Watermark | None, newest: tuple[int, int] | None) -> None:
    """TopicError when a store claims more than the log has: nobody who fed it from this log wrote that.

    ``newest``: the log's epoch and LSN, asked behind the watermark. None where nothing is known.
    """
    if watermark is None or newest is None or not watermark.lsn:
        return
    claimed = (watermark.epoch, watermark.lsn)
    if claimed > newest:
        raise TopicError(
            f"the store of {sink} says that it shows {Lsn(watermark.lsn)} of epoch {watermark.epoch}, and the log has "
            f"the source up to {Lsn(newest[1])} of epoch {newest[0]}",
            hint=f"the watermark was set by hand, or is of another log: cdc rebuild {sink} fills the store anew",
        )


def check_epoch(sink: str, watermark: Watermark | None, epochs: EpochsState) -> None:
    """TopicError when a store was filled in an epoch that the log does not know: it was put back to before it, and may
    have given its number to another one since, whose positions mean nothing beside the former."""
    if watermark is None or epochs.knows(watermark.epoch, watermark.epoch_id):
        return
    raise TopicError(
        f"the store of {sink} was filled in another epoch {watermark.epoch} than the log's: the log was put back to "
        "before that one",
        hint=f"cdc rebuild {sink} fills the store again from today's topics",
    )


class EpochIds:
    """The text that tells each epoch from another one of its number. The log is asked once for each: an epoch is noted
    before its first record is written."""

    def __init__(self, log: LogQuestions) -> None:
        self._log = log
        self._asked: tuple[int, str] = (0, "")

    def of(self, epoch: int) -> str:
        """As :meth:`cdc.record.progress.EpochsState.identity`. LogError when the broker does not answer."""
        if self._asked[0] != epoch:
            self._asked = epoch, self._log.epochs().identity(epoch)
        return self._asked[1]

    def named(self, watermark: Watermark) -> Watermark:
        """The same with its epoch's identity. LogError as for :meth:`of`."""
        return replace(watermark, epoch_id=self.of(watermark.epoch))


def check_log(sink: str, watermark: Watermark | None, topics: SinkTopics, ends: Offsets, log: LogQuestions) -> None:
    """TopicError when a store speaks of another log than today's: of other topics, of another epoch, or of more."""
    check_topics(sink, watermark, topics, ends)
    check_epoch(sink, watermark, log.epochs())
    if topics.ids.keys() - topics.views.keys() - topics.streams:
        check_claim(sink, watermark, log.newest())


def check_place(sink: str, opened: OpenSink, watermark: Watermark | None, unsure: Watermark | None) -> None:
    """A store that was restored or emptied under us must not claim more than it has.

    ``watermark``: what we wrote last. ``unsure``: what we tried to write, and do not know whether it arrived.
    StoreMoved where it is behind that, or another generation of it is in use.
    """
    if not opened.current():
        raise StoreMoved(f"the store of {sink} was rebuilt, or its server was started again")
    found = opened.watermarks.read()
    if found == watermark or (found is not None and found == unsure):
        return
    # One without offsets claims nothing, and keeps what is known of the rows that are there.
    if found is None or not found.offsets or not _beyond(found, watermark):
        raise StoreMoved(f"the store of {sink} is behind what was written to it: restored or emptied?")
    raise ActiveError(
        f"another cdc sink is writing to the store of {sink}, or a copy of it that is ahead was put back meanwhile",
        hint="let one application feed a store. If none other does, start this one again: it goes on from the copy",
        retry=Retry.NEVER,
    )


def _beyond(found: Watermark, written: Watermark | None) -> bool:
    """Whether a store is in no way behind what was written to it. One that was put back from a file often is at the
    same offsets, because the LSN and the time go on while the tables rest."""
    if written is None:
        return True
    reached = (found.epoch, found.lsn) >= (written.epoch, written.lsn) and found.level_ms >= written.level_ms
    return reached and covers(found.offsets, written.offsets)


def check_reach(sink: str, watermark: Watermark, topics: SinkTopics, now_ms: int) -> None:
    """TopicError when a store was behind the log's end for longer than the log keeps deletes: it may have missed
    some, and would show those rows for ever."""
    behind_s = (now_ms - watermark.level_ms) / 1000
    if watermark.level_ms and behind_s > topics.retention_s:
        raise TopicError(
            f"the store of {sink} was last level with the log {span(behind_s)} ago, and the topics keep deletes for "
            f"{span(topics.retention_s)}: it may have missed some",
            hint=f"cdc rebuild {sink} fills it anew from the log; [log] replay_window is how long deletes are kept",
        )


def moves(shown: Watermark | None, wanted: Watermark) -> bool:
    """Whether a store at rest has more to say than it has said."""
    if shown is None:
        return True
    said, due = ((one.lsn, one.held, one.aside, one.lineage) for one in (shown, wanted))
    return said != due


def outdated(watermark: Watermark | None, wanted: Watermark, topics: SinkTopics) -> bool:
    """Whether a store at rest should say again that it is level."""
    if watermark is None or topics.retention_s == math.inf:
        return False
    return wanted.level_ms - watermark.level_ms > max(1.0, topics.retention_s / 20) * 1000


def span(seconds: float) -> str:
    """
    >>> span(90), span(3 * 86_400)
    ('90 s', '72 h')
    """
    return f"{seconds / 3600:.0f} h" if seconds >= 7200 else f"{seconds:.0f} s"
