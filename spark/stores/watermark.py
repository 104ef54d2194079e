"""The watermark that a store may claim: which LSN it shows, proven from what was read.

Two proofs are needed. The batch's end offsets cover a progress record: everything below its LSN was read. And
nothing read was a hole: a reader far behind walks over a topic whose older values the cleaner has removed in
favour of newer ones that it has not reached yet, so that it holds nothing at all for such a key.
The cleaner leaves alone what is younger than ``min.compaction.lag.ms``. So there is no hole once the offsets
reach an end of the log that was seen no longer ago than that.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from cdc.figures.measures import Heads, oldest_lacking_ms
from cdc.record.progress import Offsets, Progress, Watermark
from cdc.record.source_lineage import SourceLineage
from spark.records.foreign_records import LogReach
from spark.records.ports import SinkTopics
from spark.records.progress_history import ProgressHistory, ProgressProof
from spark.stores.view_claims import ViewClaims, ViewsLeft

_MOST_ENDS = 120


def covers(offsets: Offsets, wanted: Offsets) -> bool:
    """Whether a reader at ``offsets`` has read all below ``wanted``."""
    return all(
        offsets.get(topic, {}).get(partition, 0) >= upto
        for topic, parts in wanted.items()
        for partition, upto in parts.items()
    )


def lowest(several: Iterable[Offsets]) -> dict[str, dict[int, int]]:
    """For each partition that all of them name, the lowest offset."""
    together: dict[str, dict[int, int]] | None = None
    for offsets in several:
        if together is None:
            together = {topic: dict(parts) for topic, parts in offsets.items()}
            continue
        together = {
            topic: {p: min(offset, offsets[topic][p]) for p, offset in parts.items() if p in offsets[topic]}
            for topic, parts in together.items()
            if topic in offsets
        }
    return together or {}


def highest(first: Offsets, second: Offsets) -> dict[str, dict[int, int]]:
    """For each partition that one of them names, the highest offset."""
    together = {topic: dict(parts) for topic, parts in first.items()}
    for topic, parts in second.items():
        merged = together.setdefault(topic, {})
        for partition, offset in parts.items():
            merged[partition] = max(merged.get(partition, offset), offset)
    return together


def distance(offsets: Offsets, ends: Offsets) -> int:
    """Records (or gaps) between a reader and the ends."""
    return sum(
        max(0, end - offsets.get(topic, {}).get(partition, 0))
        for topic, parts in ends.items()
        for partition, end in parts.items()
    )


class LogEnds(NamedTuple):
    """Where the log ended, and when (seconds of the monotonic clock) that was asked."""

    at_s: float
    ends: Offsets


class EndsSeen:
    """Ends of the log as they were seen, for as long as one may be needed."""

    def __init__(self) -> None:
        self._seen: deque[LogEnds] = deque(maxlen=_MOST_ENDS)

    def add(self, seen: LogEnds) -> None:
        """Note where the log ended at a moment. Moments come in order."""
        # Most partitions stand where they stood: what is equal is there once.
        before = self.newest
        ends = {topic: parts if before.get(topic) != parts else before[topic] for topic, parts in seen.ends.items()}
        self._seen.append(LogEnds(seen.at_s, before if ends == before else ends))

    @property
    def newest(self) -> Offsets:
        """Empty before the first look."""
        return self._seen[-1].ends if self._seen else {}

    @property
    def newest_s(self) -> float:
        """The moment of the last look. Before the first one it lies before every other."""
        return self._seen[-1].at_s if self._seen else -math.inf

    def without_holes(self, at: Claim, topics: Collection[str], compaction_lag_s: float) -> bool:
        """Whether what a reader of these topics found below its offsets had no hole in it."""
        return any(
            covers(at.offsets, {topic: parts for topic, parts in seen.ends.items() if topic in topics})
            for seen in reversed(self._seen)
            if seen.at_s >= at.read_at_s - compaction_lag_s and all(topic in seen.ends for topic in topics)
        )


class Claim(NamedTuple):
    """A reader's place: ``offsets`` read, all of them before ``read_at_s``."""

    offsets: Offsets
    read_at_s: float


class Beat(NamedTuple):
    """The newest progress record of an idle source: what it says, and when (ms since 1970) it was so."""

    epoch: int
    lsn: int
    at_ms: int


class LogView:
    """The log as all stores of an application know it, from any thread: its progress, and its ends with their times.

    ``judges``: records are held against progress records, which are of the capture that writes the topics. ``views``:
    what is known of views, each of which has progress of its own.
    """

    def __init__(self, *, judges: bool = False, views: ViewClaims | None = None) -> None:
        self._judges = judges
        self._views = views or ViewClaims()
        self.reach: LogReach | None = None
        """By what records are judged. None where they are not, or nothing is known yet."""
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._history = ProgressHistory()
        self._ends = EndsSeen()
        self._measured: Offsets = {}
        self._heads: Heads = {}
        self._heard = (0, 0)
        self.beat: Beat | None = None
        """The newest heartbeat. None before the first."""

    def note_progress(self, records: Iterable[Progress]) -> None:
        """Take progress records of the log, in their order."""
        noted = list(records)
        with self._lock:
            self._history.add(noted)
            self._views.note_capture(noted)
            self._heard = max([self._heard, *map(_reached, noted)])
            if self._judges and noted:
                # The greatest: one that came too late says no more than those before it. Of two at one LSN the later
                # one says more of the topics.
                known = [self.reach.progress] if self.reach is not None else []
                self.reach = LogReach(max([*reversed(noted), *known], key=_reached))
                self._news.notify_all()
        beats = [Beat(one.epoch, one.lsn, one.heartbeat_ms) for one in noted if one.heartbeat_ms]
        self.beat = beats[-1] if beats else self.beat

    def note_views(self, records: Iterable[Progress]) -> None:
        """Take progress records of views, in their order. No record is judged by them: a document's position is the
        fence at which it was made, and a view claims less while keys wait."""
        with self._lock:
            self._views.note(records)

    def views_left(self, watermark: Watermark | None, at: Claim, topics: SinkTopics) -> ViewsLeft:
        """See :meth:`spark.stores.view_claims.ViewClaims.left`."""
        with self._lock:
            return self._views.left(watermark, at.offsets, topics)

    def wait_for(self, enough: Callable[[LogReach], bool], timeout_s: float) -> LogReach | None:
        """The newest reach as soon as ``enough`` holds for it, or after so long. None where nothing is judged."""
        if not self._judges:
            return None
        with self._news:
            self._news.wait_for(lambda: self.reach is not None and enough(self.reach), timeout_s)
            return self.reach

    def note_ends(self, seen: LogEnds) -> None:
        """Note where the log ended at a moment. Moments come in order."""
        with self._lock:
            self._ends.add(seen)

    @property
    def seen_s(self) -> float:
        """When the log was last seen to end where it does, in seconds of the monotonic clock."""
        with self._lock:
            return self._ends.newest_s

    def note_heads(self, ends: Offsets, heads: Heads) -> None:
        """The log ended there, and these are the first records that stores lack."""
        with self._lock:
            self._measured, self._heads = ends, heads

    @property
    def heads(self) -> Heads:
        """As they were last read."""
        return self._heads

    def lacking(self, offsets: Offsets, topics: Collection[str]) -> tuple[bool, int, int | None]:
        """As :func:`cdc.figures.measures.oldest_lacking_ms`, with the number of records (or gaps) as the second."""
        with self._lock:
            ends = {topic: parts for topic, parts in self._measured.items() if topic in topics}
            heads = self._heads
        if any(topic not in ends for topic in topics):
            return False, 0, None  # a topic that was not looked at is not one without records
        known, oldest_ms = oldest_lacking_ms(offsets, ends, heads)
        return known, distance(offsets, ends), oldest_ms

    def behind(self, offsets: Offsets, topics: Collection[str], known: Offsets) -> int:
        """Records, or gaps, between a reader of these topics and the ends as they were last seen. ``known``: ends that
        the reader saw by itself, of topics too at which the watch has not looked yet: unseen is not none."""
        with self._lock:
            ends = highest(self._ends.newest, known)
        return distance(offsets, {topic: parts for topic, parts in ends.items() if topic in topics})

    def has_heard(self, newest: tuple[int, int]) -> bool:
        """Whether progress up to this epoch and LSN was noted: stores claim no more before."""
        with self._lock:
            return self._heard >= newest

    def owes(self, shown: Watermark | None, at: Claim, topics: SinkTopics) -> bool:
        """Whether a store that claims this may soon claim more. One that claims no LSN may at any time, and one that
        has not come to an end of the log that was seen may when it has."""
        if shown is None or not shown.lsn:
            return True
        with self._lock:
            sound = self._ends.without_holes(at, topics.ids, topics.compaction_lag_s)
        if not sound:
            return True
        proven = self.claim(None, at, topics)
        # An epoch is above every LSN of the one before.
        return (proven.epoch, proven.lsn) > (shown.epoch, shown.lsn)

    def claim(self, watermark: Watermark | None, at: Claim, topics: SinkTopics, now_ms: int = 0) -> Watermark:
        """The watermark of a store that shows everything below ``at.offsets`` of these topics.

        Its LSN never goes back. It moves on where both proofs hold, and where each of its views has proven as much.
        Only a table that was never read takes it away: of that one nothing shows yet.
        """
        before = _before(watermark, topics)
        with self._lock:
            sound = self._ends.without_holes(at, topics.ids, topics.compaction_lag_s)
            proven = self._history.newest_covered(at.offsets, topics.ids) if sound else None
            # Each statement holds for a lower LSN as well, so the least of them holds for all.
            each = [(proven.epoch, proven.lsn) if proven is not None else None]
            each += [self._views.proven(topic, at.offsets) for topic in topics.views]
        whole = [one for one in each if one is not None]
        least = min(whole) if len(whole) == len(each) else before
        epoch, lsn = max(before, least)
        said = watermark.aside if watermark is not None else {}
        if proven is not None and (epoch, lsn) == least:
            said = proven.aside
        aside = {topic: why for topic, why in said.items() if topic in topics.ids}
        level_ms = watermark.level_ms if watermark is not None and watermark.level_ms and not sound else now_ms
        return Watermark(
            epoch=epoch,
            lsn=lsn,
            offsets=at.offsets,
            topic_ids=dict(topics.ids),
            level_ms=level_ms,
            aside=aside,
            lineage=_lineage(watermark, proven, (epoch, lsn)),
        )


def _reached(record: Progress) -> tuple[int, int]:
    return record.epoch, record.lsn


def _lineage(
    watermark: Watermark | None, proven: ProgressProof | None, claimed: tuple[int, int]
) -> SourceLineage | None:
    """The server whose WAL the claimed epoch and LSN are a place of. None where no writer has named it.

    A lineage holds for each lower LSN of its epoch. An older one says nothing of a higher LSN: a promotion may lie in
    between.
    """
    if proven is not None and proven.lineage is not None and proven.epoch == claimed[0] and proven.lsn >= claimed[1]:
        return proven.lineage
    known = watermark is not None and (watermark.epoch, watermark.lsn) == claimed
    return watermark.lineage if watermark is not None and known else None


def _before(watermark: Watermark | None, topics: SinkTopics) -> tuple[int, int]:
    """Epoch and LSN of what a store is known to show of all these topics."""
    if watermark is None:
        return (1, 0)
    whole = not watermark.offsets or all(topic in watermark.offsets for topic in topics.ids)
    return (watermark.epoch, watermark.lsn if whole else 0)
