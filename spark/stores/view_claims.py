"""The proof in the progress records of views, and each view's distance behind capture.

A view's record says: everything of the view below its LSN lies below its offsets. So a store that has read them shows
the view as of that LSN. Its LSN is the least that any of its tables and views proves.

A view that is not built yet, or is behind for longer than a limit, takes no LSN away from the tables: the watermark
names it, as it names a held table, until the store shows the view as far as its LSN.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.record.progress import CATCHING_UP, Hold, Offsets, Progress, Watermark
from spark.records.ports import SinkTopics
from spark.records.progress_history import ProgressHistory

LIMIT_S = 60.0
Fence = tuple[int, int]
"""Epoch and LSN. They compare."""
_EVERY_S = 0.1


class ViewClaims:
    """The views' progress beside capture's. Behind a lock of its caller.

    ``limit_s``: a view that is behind for longer holds no LSN.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, limit_s: float = LIMIT_S) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._histories: dict[str, ProgressHistory] = {}
        self._newest: dict[str, Fence] = {}
        self._held: dict[str, str] = {}
        self._captured: deque[tuple[float, Fence]] = deque()

    def note_capture(self, records: Iterable[Progress]) -> None:
        """Take capture's records, in their order: their age is what a view is held against."""
        newest = max(((one.epoch, one.lsn) for one in records), default=None)
        known = self._captured
        if newest is None or (known and newest <= known[-1][1]):
            return
        now_s = self._clock.monotonic()
        if len(known) > 1 and now_s - known[-2][0] < _EVERY_S:
            known[-1] = (known[-1][0], newest)
        else:
            known.append((now_s, newest))
        while len(known) > 1 and known[1][0] < now_s - self._limit_s:
            known.popleft()

    def note(self, records: Iterable[Progress]) -> None:
        """Take records of views, in their order. Each names the topic of one view."""
        for record in records:
            for topic in record.offsets:
                self._histories.setdefault(topic, ProgressHistory()).add([record])
                self._newest[topic] = (record.epoch, record.lsn)
                self._held[topic] = record.aside.get(topic, "")

    def proven(self, topic: str, offsets: Offsets) -> Fence | None:
        """Up to where a reader at ``offsets`` has the whole view. None where nothing is proven."""
        history = self._histories.get(topic)
        mark = history.newest_covered(offsets, [topic]) if history is not None else None
        return None if mark is None else (mark.epoch, mark.lsn)

    def left(self, before: Watermark | None, offsets: Offsets, topics: SinkTopics) -> ViewsLeft:
        """Of a store that shows everything below ``offsets``: the views that its LSN does not speak for, and those of
        them that it does not wait for either."""
        named: dict[str, Hold] = {}
        unheeded = set()
        for topic, table in topics.views.items():
            reason = self._reason(topic, table)
            shown = self.proven(topic, offsets)
            if not reason and before is not None and before.lsn:
                reached = shown is not None and shown >= (before.epoch, before.lsn)
                unread = topic not in before.offsets
                if reached or not (unread or topic in before.held):
                    continue
                named[topic] = Hold(table=table, reason=f"{said(table)} {CATCHING_UP}")
                if unread or self._lag_s(shown) > self._limit_s:
                    unheeded.add(topic)
            elif reason:
                named[topic] = Hold(table=table, reason=reason)
                unheeded.add(topic)
        return ViewsLeft(named, unheeded)

    def _reason(self, topic: str, table: str) -> str:
        newest = self._newest.get(topic)
        if held := self._held.get(topic):
            return f"{said(table)} is held: {held}"
        if newest is None:
            return f"{said(table)} is not built yet"
        if self._lag_s(newest) > self._limit_s:
            return f"{said(table)} is more than {self._limit_s:g} s behind"
        return ""

    def _lag_s(self, reached: Fence | None) -> float:
        """For how long capture has been further than that. As far as was watched: never longer than that."""
        if reached is None:
            return math.inf
        since_s = next((at_s for at_s, fence in self._captured if fence > reached), None)
        return 0.0 if since_s is None else self._clock.monotonic() - since_s


class ViewsLeft:
    """``named``: topic -> what the watermark says of a view. ``unheeded``: those that do not keep the LSN."""

    __slots__ = ("named", "unheeded")

    def __init__(self, named: Mapping[str, Hold], unheeded: set[str]) -> None:
        self.named = named
        self.unheeded = unheeded


def said(table: str) -> str:
    """A view's table name, in words.

    >>> said("view.order_search")
    'the view order_search'
    """
    return f"the view {table.partition('.')[2]}"
