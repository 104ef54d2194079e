"""Cuts of a topic of events, and the rows that a task makes of its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from cdc.process.errors import ConfigError, TopicError, UsageError
from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.progress import Progress
from cdc.wire.records import RecordColumns, Span
from spark.frames.event_cuts import EventCut, read_cut, read_events, require_events, spans_between
from spark.frames.ports import EventTopic

TOPIC = EventTopic(
    topic="t", id="one", partitions=2, starts={0: 0, 1: 0}, ours=True, compacted=False, append_time=False, keep_ms=-1
)


class Records:
    """A reader of one lot."""

    def __init__(self, lot: RecordColumns) -> None:
        self.lot = lot

    def read(self, spans: Iterable[Span]) -> Iterator[RecordColumns]:
        yield from [self.lot] * bool(list(spans))

    def close(self) -> None:
        """Nothing is open."""


def pos(lsn: int, seq: int = 1) -> bytes:
    return Position(1, lsn, seq).text().encode()


def lot(*records: tuple[bytes | None, bytes | None, int]) -> RecordColumns:
    """Records by position, operation and time in us, 0 for none."""
    count = len(records)
    headers: dict[int, Any] = {n: (("at", b"%d" % at),) for n, (_, _, at) in enumerate(records) if at}
    return RecordColumns(
        topic="t", partition=0, offsets=list(range(count)), times_ms=[7] * count, keys=[b"k"] * count,
        values=[b"{}"] * count, pos=[p for p, _, _ in records], op=[o for _, o, _ in records], ver=[None] * count,
        headers=headers,
    )  # fmt: skip


def rows(found: RecordColumns, floors: dict[int, str] | None = None, marker_us: int = 0, **kind: bool) -> list[Any]:
    span = [Span("t", 0, 0, 9)]
    batches = read_events(span, floors or {}, marker_us, ours=kind.get("ours", True), reader=Records(found))
    return [
        (row["offset"], row["partition"], row["refusal"], row["at"].microsecond)
        for b in batches
        for row in b.to_pylist()
    ]


def test_e8_a_repeated_record_is_named() -> None:
    found = lot(
        (pos(8), None, 5), (pos(8), None, 5), (pos(16), b"u", 6), (pos(9), b"u", 6), (pos(20), b"r", 6),
        (pos(24, CHUNK_SEQ), b"t", 6), (pos(24), b"gap", 6), (None, None, 0), (pos(32), b"d", 9),
    )  # fmt: skip
    assert rows(found) == [
        (0, 0, None, 5), (1, 0, "repeated", 5), (2, 0, None, 6), (3, 0, "repeated", 6), (6, 0, "gap", 6),
        (7, 0, "foreign", 7000), (8, 0, None, 9),
    ]  # fmt: skip


def test_a_change_of_a_history_has_its_time_as_a_column() -> None:
    found = lot((pos(8), b"u", 5), (pos(16), b"u", 0), (pos(24), b"u", 0))
    assert rows(found._replace(at=[None, b"8", None])) == [(0, 0, None, 5), (1, 0, None, 8), (2, 0, None, 7000)]


def test_e8_a_task_goes_on_above_what_lay_ahead_of_the_cut() -> None:
    progress = Progress(epoch=1, lsn=16, offsets={"t": {0: 5, 1: 6}}, ahead={"t": {0: pos(24).decode()}}, at_us=3)
    cut = EventCut.of(progress, "t")
    assert rows(lot((pos(24), None, 5), (pos(32), None, 5)), dict(cut.floors)) == [
        (0, 0, "repeated", 5),
        (1, 0, None, 5),
    ]
    assert read_cut(cut.document("shop", TOPIC), "shop", TOPIC) == cut


def test_e10_a_cut_brings_a_marker() -> None:
    assert rows(lot((pos(8), None, 5)), marker_us=900)[-1] == (0, -1, None, 900)
    assert rows(lot((None, None, 0)), ours=False) == [(0, 0, None, 7000), (0, -1, None, 7000)]
    reached = EventCut(offsets={0: 5}, at_us=1, floors={})
    assert not EventCut(offsets={0: 5}, at_us=4_000_000, floors={}).is_news(reached)
    assert EventCut(offsets={0: 5}, at_us=6_000_000, floors={}).is_news(reached)
    assert EventCut(offsets={0: 6}, at_us=1, floors={}).is_news(reached)


def test_what_is_no_topic_of_events_is_refused() -> None:
    def topic(**changes: Any) -> EventTopic:
        return replace(TOPIC, **changes)

    with pytest.raises(UsageError, match="is compacted"):
        require_events(topic(compacted=True))
    with pytest.raises(UsageError, match="none of the pipeline's") as found:
        require_events(topic(ours=False))
    assert "LogAppendTime" in found.value.hint
    require_events(topic(ours=False, append_time=True))
    start, end = EventCut(offsets={0: 3}, floors={}), EventCut(offsets={0: 9}, floors={})
    assert spans_between(start, end, TOPIC) == [Span("t", 0, 3, 9)]
    with pytest.raises(TopicError, match="begins at offset 5, and offset 3"):
        spans_between(start, end, topic(starts={0: 5}))
    assert spans_between(EventCut(offsets={}, floors={}), end, topic(starts={0: 5})) == [Span("t", 0, 5, 9)]
    with pytest.raises(TopicError, match="made anew"):
        read_cut(end.document("shop", TOPIC), "shop", topic(id="two"))
    with pytest.raises(ConfigError, match="of the pipeline other"):
        read_cut(end.document("other", TOPIC), "shop", TOPIC)
