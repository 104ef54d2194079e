"""PySpark's side of events: the readers of ``.option("events", topic)``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from cdc.process.clock import SYSTEM_CLOCK
from cdc.wire.records import Span
from spark.frames.event_cuts import EventCut, ended, read_cut, read_events, require_events, spans_between
from spark.frames.frame import packed, require_growth
from spark.frames.history_watermarks import HistoryWatermark, KeptHistory
from spark.frames.options import FrameOptions
from spark.frames.pickled_source import PickledByValue, kept_reader, telling
from spark.frames.ports import Connect, EventTopic, FrameLog

_LOOK_S = 0.1


class EventShare(InputPartition):
    """The share of a batch that one task reads. ``marker_us`` 0: another task has the marker."""

    def __init__(self, spans: tuple[Span, ...], floors: dict[int, str], marker_us: int) -> None:
        self.spans = spans
        self.floors = floors
        self.marker_us = marker_us


class _EventTasks(PickledByValue):
    """The executors' side of both readers."""

    def __init__(self, options: FrameOptions, connect: Connect) -> None:
        self._options = options
        self._reading = connect.reading(options)
        self._topic = connect.log(options).events(options.events)
        require_events(self._topic)
        self.live_connect = connect

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a share."""
        assert isinstance(partition, EventShare)
        with telling():
            yield from read_events(
                partition.spans,
                partition.floors,
                partition.marker_us,
                ours=self._topic.ours,
                reader=kept_reader(self._reading),
            )

    def _shares(self, start: EventCut, end: EventCut, topic: EventTopic, marker_us: int) -> list[EventShare]:
        floors = dict(start.floors)
        tasks = packed(spans_between(start, end, topic), self._options.slots or 2) or [()]
        return [EventShare(spans, floors, 0 if number else marker_us) for number, spans in enumerate(tasks)]


_BEGINNING = EventCut(offsets={}, floors={})


class EventReader(_EventTasks, DataSourceReader):
    """One batch: from ``starting_offsets``, or where the topic begins, up to ``ending_offsets``, or the newest cut. It
    has no marker."""

    def partitions(self) -> list[EventShare]:
        """The tasks."""
        with telling():
            log = self.live_connect.log(self._options)
            end = _end(self._options, self._topic) or newest_cut(log, self._topic) or _BEGINNING
            return self._shares(_start(self._options), end, log.events(self._options.events), 0)


class EventStreamReader(_EventTasks, DataSourceStreamReader):
    """A stream: from the topic's beginning, by cuts."""

    def __init__(self, options: FrameOptions, connect: Connect) -> None:
        super().__init__(options, connect)
        self.live_log: FrameLog | None = None
        self.live_reached: EventCut | None = None
        self.live_newest: tuple[float, EventCut] | None = None
        self.live_watermark: HistoryWatermark | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a fresh checkpoint begins."""
        return self._document(_BEGINNING)

    def latestOffset(self) -> dict[str, Any]:
        """The newest cut, or the one before it where nothing came since. With ``shown_by`` the newest that is shown."""
        with telling():
            now_s, reached = SYSTEM_CLOCK.monotonic(), self.live_reached or _BEGINNING
            if self.live_newest is None or now_s - self.live_newest[0] >= _LOOK_S:
                found = _end(self._options, self._topic) or newest_cut(self._log(), self._topic)
                if found is not None:
                    require_growth({self._topic.topic: reached.offsets}, {self._topic.topic: found.offsets})
                cut = found if found is not None and found.is_news(reached) else reached
                if cut is not reached and self._waits:
                    cut = self._watermark().given(cut, reached, now_s)
                self.live_newest = now_s, cut
            return self._document(self.live_newest[1])

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[EventShare]:
        """The tasks of a batch."""
        with telling():
            # Another program's topic may have got partitions: the next cut has them.
            self._topic = topic = self._log().events(self._options.events)
            begin, reached = (read_cut(one, self._options.pipeline, topic) for one in (start, end))
            self.live_reached = reached
            if self._waits and reached.highest > begin.highest:
                # A batch that is planned already is not asked for again: its store may have been taken back since.
                self._watermark().require(reached.highest)
            marker_us = reached.at_us if reached.at_us > begin.at_us else 0
            return self._shares(begin, reached, topic, marker_us)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint keeps the cuts: nothing to do."""

    @property
    def _waits(self) -> bool:
        """Whether batches end where a store shows the history. One with an end has waited when it first ran."""
        return bool(self._options.shown_by) and self._options.ending is None

    def _watermark(self) -> HistoryWatermark:
        if self.live_watermark is None:
            self.live_watermark = HistoryWatermark(KeptHistory.read(self._options.shown_by))
        return self.live_watermark

    def _log(self) -> FrameLog:
        if self.live_log is None:
            self.live_log = self.live_connect.log(self._options)
        return self.live_log

    def _document(self, cut: EventCut) -> dict[str, Any]:
        return cut.document(self._options.pipeline, self._topic)


def _start(options: FrameOptions) -> EventCut:
    """The cut that a read was given to begin at."""
    if isinstance(options.starting, str):
        return _BEGINNING
    return EventCut(offsets=options.starting.get(options.events, {}), floors=options.starting_floors)


def _end(options: FrameOptions, topic: EventTopic) -> EventCut | None:
    """The cut that a read was given to end at."""
    if options.ending is None:
        return None
    return EventCut(offsets=options.ending.get(topic.topic, {}), at_us=options.ending_at_us, floors={})


def newest_cut(log: FrameLog, topic: EventTopic) -> EventCut | None:
    """The newest cut of a topic, None before the first."""
    if not topic.ours:
        return ended(log.ends({topic.topic: topic.partitions}), topic)
    progress = log.newest_progress()
    return EventCut.of(progress, topic.topic) if progress is not None else None
