"""Windows while a table waits: those of other tables go on, its own are given up (H121)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cdc.capture.windows import Moment, Overrun, Window, WindowPairs, Windows, Written
from cdc.record.ports import Record
from cdc.record.position import Position
from tests.unit.cdc.capture.test_windows import OpenGate

WAITS, FREE = 0, 1
"""Lanes: each table's topic has one partition."""
WAITING = frozenset([WAITS])


class World:
    """Windows over two tables. The stream is at 1000 and is with the broker, the progress record holds at 500."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.windows = Windows(
            epoch=1,
            after_lsn=0,
            gate=OpenGate(),
            lanes=lambda topic: (WAITS if topic == "waits" else FREE, 1),
            partition=lambda key, count: 0,
            produce=self._produce,
        )

    def _produce(self, records: Sequence[Record]) -> int:
        self.log += records
        return len(self.log)

    def offer(self, topic: str, waiting: frozenset[int] = frozenset()) -> Window:
        """A window, granted and read."""
        window = self.windows.ask(topic)
        self.windows.turn(Moment(1000, 500, 0, 1000, waiting))
        position = self.windows.granted(window)
        headers = [("pos", position.text().encode()), ("op", b"r")]
        self.windows.offer(window, WindowPairs(pairs=[(b"k", b"v")], headers=headers))
        return window

    def turn(self, *, position: int = 500, stored: int = 1000, waiting: frozenset[int] = WAITING) -> None:
        self.windows.turn(Moment(1000, position, len(self.log), stored, waiting))

    def lanes(self) -> list[int]:
        return [record[0] for record in self.log]


def test_h121_a_table_that_waits_holds_back_no_window_of_another() -> None:
    world = World()
    window = world.offer("free", WAITING)
    world.turn(stored=900)
    assert world.lanes() == [], "what the stream brought below its position is not with the broker yet"
    world.turn()
    assert world.lanes() == [FREE]
    world.turn()
    assert isinstance(window.outcome, Written)
    assert Position.parse(world.log[0][3][0][1].decode()).commit_lsn < 1000


def test_h121_with_no_table_waiting_the_progress_decides() -> None:
    world = World()
    world.offer("free")
    world.turn(waiting=frozenset())
    assert world.lanes() == []
    world.turn(waiting=frozenset(), position=1000)
    assert world.lanes() == [FREE]


@pytest.mark.parametrize("when", ["at the grant", "at the emission"])
def test_h121_a_window_of_a_table_that_waits_is_given_up(when: str) -> None:
    world = World()
    early = when == "at the grant"
    window = world.offer("waits", WAITING if early else frozenset())
    world.turn(position=1000, waiting=frozenset() if early else WAITING)
    assert isinstance(window.outcome, Overrun)
    assert world.lanes() == []
