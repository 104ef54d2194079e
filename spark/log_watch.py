"""The thread that looks at the log beside the queries: progress, ends, topics, orders, idle stores' watermarks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.dead import LetterFeed
from cdc.errors import CdcError, Retry
from cdc.logs import LoggedCauses
from spark.ports import LogQuestions, ProgressFeed, SinkTopics
from spark.sink_metrics import LogFigures
from spark.store_thread import Store
from spark.watermark import LogEnds, LogView

log = logging.getLogger(__name__)

_POLL_S = 0.1
_IDLE_S = 0.5
_TOPICS_S = 10.0
_REST_S = 1.0


class TopicsChanged(CdcError):
    """A table was added to the pipeline, or taken from it: the query starts again with today's topics."""

    retry = Retry.NOW


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
        seen: LogFigures | None = None,
    ) -> None:
        self._seen = seen or LogFigures()
        self._stores = stores
        self._facts = facts
        self._feed = feed
        self._letters = letters
        self._view = view
        self._clock = clock
        self._due_s = {"ends": 0.0, "idle": 0.0, "topics": clock.monotonic() + _TOPICS_S}
        self._ended = threading.Event()
        self._logged = LoggedCauses()
        self._thread = threading.Thread(target=self._watch, name="log-watch", daemon=True)
        self.failure: BaseException | None = None
        """What ended the thread, if something did."""

    def start(self) -> None:
        """Start its thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and let go of the feed."""
        self._ended.set()
        self._thread.join()
        self._feed.close()
        if self._letters is not None:
            self._letters.close()

    def _watch(self) -> None:
        while not self._ended.is_set():
            try:
                self._look()
                self._logged.over("log")
            except CdcError as error:
                if error.retry is Retry.NEVER:
                    self.failure = error
                    return
                if self._logged.is_new("log", error.message):
                    log.warning("log_away", extra={"reason": error.message})
                self._ended.wait(_REST_S)
            except BaseException as failure:
                self.failure = failure
                return

    def _look(self) -> None:
        self._view.note_progress(self._feed.poll(_POLL_S))
        if self._letters is not None and (heard := self._letters.poll(0)):
            for store in self._stores:
                store.hear(heard)
        if self._is_due("ends"):
            self.look_at_ends()
        if self._is_due("topics"):
            self.look_at_topics()
        if self._is_due("idle"):
            for store in self._stores:
                store.idle()

    def look_at_ends(self) -> None:
        """Note where the topics of all stores end now."""
        ids: dict[str, str] = {}
        partitions: dict[str, int] = {}
        for store in self._stores:
            ids |= store.topics.ids
            partitions |= store.topics.partitions
        # Asked before it is answered: an end seen is at least as old as the stamp says.
        at_s = self._clock.monotonic()
        self._view.note_ends(LogEnds(at_s, self._facts.ends(SinkTopics(ids, partitions))))
        self._seen.seen_s = at_s

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

    def _is_due(self, what: str) -> bool:
        now_s = self._clock.monotonic()
        if now_s < self._due_s[what]:
            return False
        self._due_s[what] = now_s + self._every_s(what)
        return True

    def _every_s(self, what: str) -> float:
        if what != "ends":
            return _IDLE_S if what == "idle" else _TOPICS_S
        # Several looks while the cleaner leaves the records alone that were the last ones at the look.
        lag_s = min((store.topics.compaction_lag_s for store in self._stores), default=0.0)
        return min(5.0, max(0.2, lag_s / 8))
