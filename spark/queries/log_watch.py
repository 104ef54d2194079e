"""The thread that reads the log beside the queries: progress, ends, topics, orders, idle stores' watermarks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from cdc.figures.measures import Heads, lacking
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, Exit, Retry
from cdc.process.logs import LoggedCauses
from cdc.record.progress import Offsets
from cdc.wire.dead_letter import LetterFeed
from spark.records.ports import HeadReader, LogQuestions, ProgressFeed, SinkTopics
from spark.stores.store_thread import Store
from spark.stores.watermark import LogEnds, LogView

log = logging.getLogger(__name__)

_POLL_S = 0.1
_FOLLOW_S = 0.5
_TOPICS_S = 10.0
_EVERY_S = {"idle": 0.5, "topics": _TOPICS_S, "heads": 2.0}
_TOPICS_REST, _LONGEST_TOPICS_S = 19.0, 120.0
"""A look at the topics is followed by a rest so many times as long, so that it takes a twentieth of the time at most:
of 2,000 tables it takes seconds, in which this process does little else."""
_MOST_HEADS = 200
"""How many first records are read at one look: the others are at the next one."""
_REST_S = 1.0


class TopicsChanged(CdcError):
    """A table was added to the pipeline, or taken from it: the query starts again with today's topics."""

    retry = Retry.NOW


class Measuring(NamedTuple):
    """The measurements for the figures, beside the queries. ``heads``: reads the first records that stores lack, None
    to read none. ``looked``: called when the log's ends are known, with the time of the question."""

    heads: HeadReader | None = None
    looked: Callable[[float], None] = lambda _at_s: None


class LogWatch:
    """Follows the progress topic and looks where topics end, for all stores of an application."""

    def __init__(
        self,
        stores: Sequence[Store],
        facts: LogQuestions,
        feed: ProgressFeed,
        view: LogView,
        clock: Clock = SYSTEM_CLOCK,
        *,
        letters: LetterFeed | None = None,
        measuring: Measuring | None = None,
    ) -> None:
        self._measuring = measuring or Measuring()
        self._heads = self._measuring.heads
        self._stores = stores
        self._facts = facts
        self._feed = feed
        self._views: ProgressFeed | None = None
        self._letters = letters
        self._view = view
        self._clock = clock
        self._asked = frozenset[str]()
        self._due_s = {"ends": 0.0, "idle": 0.0, "heads": 0.0, "topics": clock.monotonic() + _TOPICS_S}
        self._ended = threading.Event()
        self._logged = LoggedCauses()
        # A broker that is slow with old records must not keep progress from the stores: read beside the watch.
        self._beside = ThreadPoolExecutor(1, "log-heads")
        self._reading: Future[None] | None = None
        self._thread = threading.Thread(target=self._watch, name="log-watch", daemon=True)
        self.failure: BaseException | None = None
        """What ended the thread, if something did."""

    def follow_views(self, feed: ProgressFeed | None) -> None:
        """Before the start: where the progress of views comes from. None where no store has any."""
        self._views = feed

    def start(self) -> None:
        """Start its thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the feed."""
        self._ended.set()
        self._thread.join()
        self._beside.shutdown()
        self._feed.close()
        for one in (self._letters, self._heads, self._views):
            if one is not None:
                one.close()

    def _watch(self) -> None:
        while not self._ended.is_set():
            # First: a log that does not answer ends the look, and stores answer all the same.
            if self._is_due("idle"):
                for store in self._stores:
                    store.idle()
            try:
                self._look()
                self._logged.over("log")
            except CdcError as error:
                if error.retry is Retry.SECRET:
                    # Each client of Kafka holds the secret of its start: a restart reads it anew.
                    error.exit = Exit.UNAVAILABLE
                if error.retry in (Retry.NEVER, Retry.SECRET):
                    self.failure = error
                    return
                if self._logged.is_new("log", error.message):
                    log.warning("log_away", extra={"reason": error.message})
                self._ended.wait(_REST_S)
            except BaseException as failure:
                self.failure = failure
                return

    def _look(self) -> None:
        self._follow()
        if self._views is not None:
            self._view.note_views(self._views.poll(0))
        if self._letters is not None and (heard := self._letters.poll(0)):
            for store in self._stores:
                store.hear(heard)
        if self._is_due("ends") or self._unseen():
            try:
                self.look_at_ends()
            except CdcError as error:
                # The former topic of a view may be gone that another generation has taken the place of.
                if error.retry is not Retry.NEVER or not self._topics_changed():
                    raise
        if self._is_due("topics"):
            began_s = self._clock.monotonic()
            self.look_at_topics()
            now_s = self._clock.monotonic()
            self._due_s["topics"] = now_s + min(_LONGEST_TOPICS_S, max(_TOPICS_S, _TOPICS_REST * (now_s - began_s)))

    def _follow(self) -> None:
        """Note new progress until there is no more. A poll has few records, because each has an offset for every
        partition, and a watch whose looks take seconds would fall behind for ever."""
        until_s = self._clock.monotonic() + _FOLLOW_S
        found = self._feed.poll(_POLL_S)
        while found:
            self._view.note_progress(found)
            found = self._feed.poll(0) if self._clock.monotonic() < until_s else []

    def look_at_ends(self) -> None:
        """Note where the topics of all stores end now."""
        ids: dict[str, str] = {}
        partitions: dict[str, int] = {}
        for store in self._stores:
            ids |= store.topics.ids
            partitions |= store.topics.partitions
        # Asked before it is answered: an end seen is at least as old as the stamp says.
        at_s = self._clock.monotonic()
        ends = self._facts.ends(SinkTopics(ids, partitions))
        self._asked = frozenset(ids)
        self._view.note_ends(LogEnds(at_s, ends))
        if self._is_due("heads"):
            self._look_at_heads(at_s, ends)

    def _unseen(self) -> bool:
        """Whether a store has begun since the last look: until its topics were seen, it can claim nothing."""
        return any(store.topics.ids.keys() - self._asked for store in self._stores)

    def _look_at_heads(self, at_s: float, ends: Offsets) -> None:
        """Begin to read them where the reading before is over. An error that it met is raised."""
        last = self._reading
        if last is not None and not last.done():
            return
        self._reading = self._beside.submit(self._note_heads, at_s, ends)
        if last is not None:
            last.result()

    def _note_heads(self, at_s: float, ends: Offsets) -> None:
        self._view.note_heads(ends, self._read_heads(ends))
        self._measuring.looked(at_s)

    def _read_heads(self, ends: Offsets) -> Heads:
        """The first records that stores lack. Those that were read before stay as they are."""
        if self._heads is None:
            return {}
        known = self._view.heads
        wanted: set[tuple[str, int, int]] = set()
        for store in self._stores:
            own = {topic: parts for topic, parts in ends.items() if topic in store.topics.ids}
            wanted.update(lacking(store.offsets, own))
        asked = sorted(wanted - known.keys())[:_MOST_HEADS]
        found = self._heads.read(asked, ends) if asked else {}
        # Where one was not read, that of an offset before it stands in.
        missed = {place[:2] for place in wanted - known.keys() - found.keys()}
        kept = {place: head for place, head in known.items() if place in wanted or place[:2] in missed}
        return {**kept, **found}

    def look_at_topics(self) -> None:
        """Have a store's query begin again where its tables changed, or ended where its topics are others."""
        for store in self._stores:
            if not store.captured.ids or store.fault is not None:
                continue
            try:
                now = self._facts.topics(store.name)
            except CdcError as error:
                if error.retry is not Retry.NEVER:
                    raise
                store.fault = error
                continue
            if now != store.captured:
                store.fault = TopicsChanged(f"the tables of {store.name} have changed")
            elif store.holds_outgrown(self._facts.schemas):
                store.fault = TopicsChanged(f"a table that {store.name} holds has changed again")

    def _topics_changed(self) -> bool:
        """Whether a store's query begins again with other topics."""
        self.look_at_topics()
        return any(isinstance(store.fault, TopicsChanged) for store in self._stores)

    def _is_due(self, what: str) -> bool:
        now_s = self._clock.monotonic()
        if now_s < self._due_s[what]:
            return False
        self._due_s[what] = now_s + self._every_s(what)
        return True

    def _every_s(self, what: str) -> float:
        if what != "ends":
            return _EVERY_S[what]
        # Several looks while the cleaner leaves the records alone that were the last ones at the look.
        lag_s = min((store.topics.compaction_lag_s for store in self._stores), default=0.0)
        return min(5.0, max(0.2, lag_s / 8))
