"""Where one writer stops so that another can go on: at the end of a transaction, and nothing beyond it."""

from __future__ import annotations

import orjson
import pytest

from cdc.boundary import capture_up_to
from cdc.capture import Session, StartingPoint
from cdc.clock import ManualClock
from cdc.errors import LogError
from cdc.ports import Batch
from cdc.testing import MemoryStream
from tests.unit.cdc.test_capture import FakeAssembler, FakeLog


def frames(*ends: int) -> list[bytes]:
    return [orjson.dumps([end, 2]) for end in ends]


class Opened:
    """A session on doubles."""

    def __init__(self, *batches: Batch, delay: int = 0) -> None:
        self.clock = ManualClock()
        self.closed: list[bool] = []
        self.log = FakeLog(self.clock, delay=delay)
        self.stream = MemoryStream(batches, clock=self.clock)

    def session(self) -> Session:
        return Session(
            stream=self.stream,
            assembler=FakeAssembler(),
            log=self.log,
            start=StartingPoint(epoch=1, position=100, topic="s.progress", lane=9),
            look=lambda: (None, None),
            close=self.closed.append,
        )


def test_it_ends_behind_the_mark_and_writes_nothing_of_what_follows_in_the_same_batch() -> None:
    opened = Opened(Batch(frames(110, 120), None), Batch(frames(130, 140, 150), None), delay=5)
    assert capture_up_to(opened.session(), 125, opened.clock) == 130
    assert sum(len(group) for group in opened.log.groups) == 3 * 2 + 1
    assert opened.log.progress() == [130]
    assert opened.stream.acknowledged == [130]
    assert opened.stream.closed
    assert opened.closed == [True]


def test_what_the_broker_does_not_take_is_not_acknowledged() -> None:
    opened = Opened(Batch(frames(130), None), delay=10**9)
    with pytest.raises(LogError, match="did not take everything"):
        capture_up_to(opened.session(), 125, opened.clock)
    assert opened.log.progress() == []
    assert opened.stream.acknowledged == []
    assert (opened.stream.closed, opened.closed) == (True, [False])
