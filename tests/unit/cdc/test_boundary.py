"""Where one writer stops so that another can go on: at the end of a transaction, and nothing beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson
import pytest

from cdc.boundary import capture_up_to
from cdc.capture import CaptureSession, StartingPoint
from cdc.clock import ManualClock
from cdc.errors import LogError
from cdc.ports import Record, StreamBatch
from cdc.progress import PROGRESS_KEY
from cdc.testing import MemoryStream
from tests.unit.cdc.test_capture import FakeAssembler, FakeLog


def frames(*ends: int) -> list[bytes]:
    return [orjson.dumps([end, 2]) for end in ends]


class Opened:
    """A session on doubles."""

    def __init__(self, *batches: StreamBatch, delay: int = 0) -> None:
        self.clock = ManualClock()
        self.closed: list[bool] = []
        self.assembler = FakeAssembler()
        self.log = FakeLog(self.clock, delay=delay)
        self.stream = MemoryStream(batches, clock=self.clock)

    def session(self) -> CaptureSession:
        return CaptureSession(
            stream=self.stream,
            assembler=self.assembler,
            log=self.log,
            start=StartingPoint(epoch=1, position=100, topic="s.progress", lane=9),
            look=lambda: (None, None),
            close=self.closed.append,
        )


def test_it_ends_behind_the_mark_and_writes_nothing_beyond() -> None:
    opened = Opened(StreamBatch(frames(110, 120), None), StreamBatch(frames(130, 140, 150), None), delay=5)
    assert capture_up_to(opened.session(), 125, opened.clock) == 130
    assert sum(len(group) for group in opened.log.groups) == 3 * 2 + 1
    assert opened.log.progress() == [130]
    assert opened.stream.acknowledged == [130]
    assert opened.stream.closed
    assert opened.closed == [True]


def test_what_the_broker_does_not_take_is_not_acknowledged() -> None:
    opened = Opened(StreamBatch(frames(130), None), delay=10**9)
    with pytest.raises(LogError, match="did not take everything"):
        capture_up_to(opened.session(), 125, opened.clock)
    assert opened.log.progress() == []
    assert opened.stream.acknowledged == []
    assert (opened.stream.closed, opened.closed) == (True, [False])


@pytest.mark.parametrize("batches", [[(125, 130, 140)], [(125,), (130,), (140,)]])
def test_a_transaction_that_ends_at_the_mark_is_not_beyond_it(batches: list[tuple[int, ...]]) -> None:
    opened = Opened(*(StreamBatch(frames(*ends), None) for ends in batches))
    told: list[int] = []
    assert capture_up_to(opened.session(), 125, opened.clock, told.append) == 130
    assert sum(len(group) for group in opened.log.groups) == 2 * 2 + 1
    assert told[-1] == 130


def test_its_progress_speaks_of_table_topics_alone() -> None:
    opened = Opened(StreamBatch(frames(130), None))
    capture_up_to(opened.session(), 125, opened.clock)
    ((lane, key, value, _),) = opened.log.groups[-1]
    assert (lane, key) == (9, PROGRESS_KEY)
    assert orjson.loads(value or b"")["offsets"] == {"s.public.t": {"0": 7}}


def test_h81_nothing_is_acknowledged_before_progress_is_stored() -> None:
    opened = Opened(StreamBatch(frames(130), None))
    opened.log.most = 1
    with pytest.raises(LogError, match="did not take everything"):
        capture_up_to(opened.session(), 125, opened.clock)
    assert opened.log.progress() == [130]
    assert opened.stream.acknowledged == []


@dataclass
class WaitingAssembler(FakeAssembler):
    """A row of the first transaction waits until it is asked for the ``after``-th time."""

    after: int = 1
    oldest_waiting: int | None = 104

    def resume(self) -> Sequence[Record]:
        self.after -= 1
        if self.after:
            return ()
        self.oldest_waiting = None
        return [(0, b"waited", b"v", [])]


def test_h95_waiting_records_are_written_before_their_progress() -> None:
    opened = Opened(StreamBatch(frames(130), None), delay=3)
    opened.assembler = WaitingAssembler(after=3)
    assert capture_up_to(opened.session(), 125, opened.clock) == 130
    keys = [[record[1] for record in group] for group in opened.log.groups]
    assert keys == [[b"k", b"k"], [b"waited"], [PROGRESS_KEY]], "and nothing where nothing came"
    assert opened.stream.acknowledged == [130]


def test_h95_a_table_that_waits_for_good_stops_acknowledging() -> None:
    opened = Opened(StreamBatch(frames(130), None))
    opened.assembler = waiting = WaitingAssembler(after=10**9)
    with pytest.raises(LogError):
        capture_up_to(opened.session(), 125, opened.clock)
    assert opened.log.progress() == []
    assert 10**9 - waiting.after < 2000, "in a minute"
