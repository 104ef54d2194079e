"""Lags, rates, times left and how fresh changes arrive: pure, from what was seen to the figures that are shown.

Nothing here asks for the time, or invents a figure: what cannot be known from what was seen is None.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

FRESHNESS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Upper bounds of the buckets of every freshness histogram, in seconds."""
RECENT_S = 300.0
"""Quantiles speak of so many seconds."""
QUIET_BYTES = 64 * 1024**2
"""WAL that is kept for a slot on a server that is well: the checkpoints' own pace."""
_MOST_RECENT = 4_096
_MOST_SEEN = 512


class BucketCounts:
    """A histogram. ``bounds``: upper bounds of its buckets, growing; one for all above comes by itself."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """Count a value, ``count`` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    @property
    def count(self) -> int:
        """How many values were counted in all buckets."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound as text, how many values are no greater), as Prometheus has them."""
        names = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))


class Quantiles(NamedTuple):
    """How fresh changes were, in seconds. ``changes``: of how many."""

    p50_s: float
    p99_s: float
    changes: int


class FreshnessTimes:
    """Times from commits to where they are awaited: a histogram by origin, and the newest ones as they were.

    Origins: ``change`` for real changes, ``heartbeat`` for marks of an idle source.
    """

    def __init__(self) -> None:
        self.tallies = {"change": BucketCounts(FRESHNESS_S), "heartbeat": BucketCounts(FRESHNESS_S)}
        self._recent: deque[tuple[float, float, int]] = deque(maxlen=_MOST_RECENT)

    def add(self, took_s: float, now_s: float, *, count: int = 1, origin: str = "change") -> None:
        """``count`` changes took so long. Less than nothing, by two clocks that differ, is nothing. ``now_s``: of the
        monotonic clock."""
        took_s = max(0.0, took_s)
        self.tallies[origin].add(took_s, count)
        self._recent.append((now_s, took_s, count))

    def arrived(self, times_us: Sequence[int], now_us: float, now_s: float) -> None:
        """Changes of these commit times, in us since 1970, are there now. Cheap: it is called for each batch."""
        count, tally = len(times_us), self.tallies["change"]
        took_s = max(0.0, (now_us - times_us[0]) / 1e6)
        first, last = (bisect_left(tally.bounds, (now_us - time_us) / 1e6) for time_us in (times_us[0], times_us[-1]))
        if first == last:
            tally.counts[first] += count
            tally.total += max(0.0, (now_us * count - sum(times_us)) / 1e6)
        else:
            for time_us in times_us:
                tally.add(max(0.0, (now_us - time_us) / 1e6))
        self._recent.append((now_s, took_s, count))

    def recent(self, now_s: float) -> Quantiles | None:
        """Of the last five minutes, or of the last 4,096 marks where there were more. None when nothing came."""
        return quantiles((took_s, count) for at_s, took_s, count in list(self._recent) if now_s - at_s <= RECENT_S)


def quantiles(values: Iterable[tuple[float, int]]) -> Quantiles | None:
    """Median and 99th percentile of (value, how often). Each is a value that was there. None for none.

    >>> quantiles([(1.0, 98), (5.0, 2)])
    Quantiles(p50_s=1.0, p99_s=5.0, changes=100)
    """
    ordered = sorted((value, count) for value, count in values if count > 0)
    total = sum(count for _, count in ordered)
    if not total:
        return None

    def at(share: float) -> float:
        wanted, passed = math.ceil(share * total), 0
        for value, count in ordered:
            passed += count
            if passed >= wanted:
                return value
        return ordered[-1][0]

    return Quantiles(at(0.5), at(0.99), total)


class Trend:
    """How fast a figure grows, over a window of what was seen of it."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, float]] = deque()

    def note(self, at_s: float, value: float) -> None:
        """It was so at that time. Times have to grow: an older one than the newest is passed over."""
        seen = self._seen
        if seen and at_s <= seen[-1][0]:
            return
        seen.append((at_s, value))
        while len(seen) > 2 and seen[1][0] <= at_s - self._window_s:
            seen.popleft()
        if len(seen) > _MOST_SEEN:
            self._seen = deque([*list(seen)[:-1:2], seen[-1]])

    def forget(self) -> None:
        """Forget what was seen: it belongs to another thing."""
        self._seen = deque()

    def per_s(self) -> float | None:
        """Its growth a second, below 0 where it falls. None before it was seen twice."""
        seen = list(self._seen)
        if len(seen) < 2:
            return None
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        return (last - first) / (last_s - first_s)


def left_s(rest: float, per_s: float | None) -> float | None:
    """When nothing of ``rest`` is left at so much a second, in seconds. Infinite where it does not get less. None
    where the pace is not known.

    >>> left_s(100, 10), left_s(0, None), left_s(5, 0), left_s(5, None)
    (10.0, 0.0, inf, None)
    """
    if rest <= 0:
        return 0.0
    if per_s is None:
        return None
    return rest / per_s if per_s > 0 else math.inf


def age_s(now_us: float, then_us: float | None) -> float:
    """Seconds since then, both in us since 1970. 0 for None, and where two clocks differ."""
    return 0.0 if then_us is None else max(0.0, (now_us - then_us) / 1e6)


class _Handed(NamedTuple):
    group: int
    end_lsn: int
    times_us: Sequence[int]


class UnheldCommits:
    """Transactions that were handed to the log and that the broker does not hold yet, by their commit times."""

    def __init__(self) -> None:
        self._handed: deque[_Handed] = deque()
        self._behind: deque[tuple[int, int]] = deque()

    def handed(self, group: int, end_lsn: int, times_us: Sequence[int], *, waits: bool) -> None:
        """Transactions up to ``end_lsn``, with their commit times, are in ``group`` or an earlier one, but for records
        that wait, if any do. Cheap: it is called for each batch."""
        self._handed.append(_Handed(group, end_lsn, times_us))
        if waits:
            self._behind.append((end_lsn, times_us[0]))
            if len(self._behind) > _MOST_SEEN:
                self._thin()

    def acked(self, group: int) -> Sequence[int]:
        """The broker holds every group up to this one. The commit times of what it holds since the call before."""
        handed = self._handed
        if not handed or handed[0].group > group:
            return ()
        found: list[int] = []
        while handed and handed[0].group <= group:
            found += handed.popleft().times_us
        return found

    def waits(self, oldest: int | None) -> None:
        """Records wait from this commit LSN on. None for none."""
        behind = self._behind
        while behind and (oldest is None or behind[0][0] <= oldest):
            behind.popleft()

    def oldest_us(self) -> int | None:
        """The commit time of the oldest transaction that the broker lacks anything of. None for none."""
        handed, behind = list(self._handed), list(self._behind)
        firsts = [one.times_us[0] for one in handed[:1]] + [time_us for _, time_us in behind[:1]]
        return min(firsts, default=None)

    def _thin(self) -> None:
        """Two neighbours become one, as old as the older."""
        seen = list(self._behind)
        pairs = [(later[0], min(first[1], later[1])) for first, later in zip(seen[::2], seen[1::2], strict=False)]
        self._behind = deque(pairs if len(seen) % 2 == 0 else [*pairs, seen[-1]])


class SourceAhead:
    """Since when the source is ahead of what it has sent: where it was at each look, and what has come by now."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def look(self, at_s: float, wal_lsn: int) -> None:
        """The source had written up to ``wal_lsn``."""
        self._seen.append((at_s, wal_lsn))
        if len(self._seen) > _MOST_SEEN:
            seen = list(self._seen)
            self._seen = deque([*seen[:-1:2], seen[-1]])

    def since_s(self, received: int) -> float | None:
        """When the oldest of what has not come was seen to be written. None when all has come that was seen. The
        looks that it has caught up with are forgotten."""
        seen = self._seen
        while seen and seen[0][1] <= received:
            seen.popleft()
        return seen[0][0] if seen else None

    def forget(self) -> None:
        """The source may be another server."""
        self._seen = deque()


class Head(NamedTuple):
    """The first record of a partition behind a reader's place: its offset (that of the partition's end where there is
    none), when it was committed, in ms since 1970, and its bytes in the log."""

    offset: int
    committed_ms: int | None
    size_bytes: int = 0


Places = Mapping[str, Mapping[int, int]]
Heads = Mapping[tuple[str, int, int], Head]
"""(topic, partition, place of the reader) -> the first record from there on."""


def lacking(offsets: Places, ends: Places) -> list[tuple[str, int, int]]:
    """The partitions in which a reader at ``offsets`` lacks something: (topic, partition, its place).

    >>> lacking({"t": {0: 5}}, {"t": {0: 5, 1: 2}})
    [('t', 1, 0)]
    """
    return [
        (topic, partition, place)
        for topic, parts in ends.items()
        for partition, end in parts.items()
        if (place := offsets.get(topic, {}).get(partition, 0)) < end
    ]


def oldest_lacking_ms(offsets: Places, ends: Places, heads: Heads) -> tuple[bool, int | None]:
    """Whether it is known, and the commit time in ms since 1970 of the oldest record that a reader at ``offsets`` lacks
    of a log that ends at ``ends``: None when it lacks none.

    Where the reader has moved on since its partition was looked at, the record it was at then stands in: the figure is
    never too new.
    """
    known: dict[tuple[str, int], tuple[int, Head]] = {}
    for (topic, partition, place), head in heads.items():
        if place >= known.get((topic, partition), (-1,))[0] and place <= offsets.get(topic, {}).get(partition, 0):
            known[topic, partition] = (place, head)
    oldest: int | None = None
    for topic, partition, place in lacking(offsets, ends):
        found = known.get((topic, partition))
        if found is None:
            return False, None
        head = found[1]
        if head.offset >= ends[topic][partition] and head.offset >= place:
            continue  # the cleaner left nothing of it
        if head.committed_ms is not None:
            oldest = head.committed_ms if oldest is None else min(oldest, head.committed_ms)
    return True, oldest


class SlotMarks(NamedTuple):
    """A slot as the server says it. ``wal_lsn``: where the server is. ``restart_lsn``: from where on it keeps WAL."""

    wal_lsn: int
    restart_lsn: int
    confirmed_lsn: int
    active: bool


def slot_stage(  # noqa: PLR0911 - one answer a stage
    slot: SlotMarks, *, received_lsn: int, held_lsn: int, waits: bool
) -> str:
    """The stage that keeps the slot from releasing WAL. No store ever does.

    ``received_lsn``: what the source has sent. ``held_lsn``: what the broker holds. ``waits``: a table holds it back.
    """
    if slot.wal_lsn - slot.restart_lsn <= QUIET_BYTES:
        return "nothing"
    if not slot.active:
        return "capture"
    if slot.wal_lsn - slot.confirmed_lsn <= QUIET_BYTES:
        return "transaction"
    if waits:
        return "table"
    if received_lsn - held_lsn > QUIET_BYTES:
        return "broker"
    if slot.wal_lsn - received_lsn > QUIET_BYTES:
        return "source"
    return "transaction"


STAGES = ("nothing", "capture", "transaction", "table", "broker", "source")
"""The answers of :func:`slot_stage`."""
