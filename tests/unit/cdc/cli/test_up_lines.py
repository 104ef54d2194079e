"""``cdc up`` in a pipe: a line now and then, and a look for the page meanwhile."""

from __future__ import annotations

from dataclasses import replace
from queue import Queue
from threading import Event

import pytest

from cdc.cli.up import Telling, lines
from cdc.process.clock import SYSTEM_CLOCK, ManualClock
from cdc.process.errors import CdcError
from cdc.settings.model import LimitSettings
from cdc.status.pace import LiveLook, LiveLooks, LooksBeside
from cdc.status.rules import Status, status_of
from tests.unit.cdc.status.test_rules import FACTS
from tests.unit.cdc.status.test_status_faults import aside


class Parts:
    """Parts that run for ``left`` looks after them."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.looks = 0

    def look(self) -> Status:
        self.looks += 1
        return status_of(FACTS, LimitSettings())

    def alive(self) -> None:
        self.left -= 1
        if not self.left:
            raise CdcError("cdc run ended")


@pytest.mark.parametrize(("served", "looks"), [(False, 3), (True, 40)])
def test_each_part_is_asked_once_a_line_or_for_the_page(served: bool, looks: int) -> None:
    """In eighty seconds."""
    parts, said, seen = Parts(40), list[str](), list[LiveLook]()
    with pytest.raises(CdcError, match="cdc run ended"):
        lines(
            parts.look, parts.alive, Telling(said.append, seen.append if served else None, LiveLooks()), ManualClock()
        )
    assert said == ["log 50 B behind  cache 0/5F5E0CE 0.0 s"] * 3
    assert (parts.looks, len(seen)) == (looks, looks if served else 0)
    assert not served or seen[-1].pace is not None


def test_a_line_is_bounded() -> None:
    asides = {f"public.t{number}": aside(f"public.t{number}") for number in range(200)}
    shown, said = status_of(replace(FACTS, tables=200, asides=asides), LimitSettings()), list[str]()
    parts = Parts(1)
    with pytest.raises(CdcError):
        lines(lambda: shown, parts.alive, Telling(said.append, None, LiveLooks()), ManualClock())
    assert (said[0].count("! "), said[0].endswith("  ! and 195 more")) == (6, True)


def test_looks_are_told_of_beside_a_step() -> None:
    """A first snapshot may take hours. Those that follow know what was seen before them."""
    looks, told = LiveLooks(), Queue[LiveLook]()
    parts = Parts(1)
    with LooksBeside(parts.look, told.put, looks, 0.01, SYSTEM_CLOCK):
        assert [told.get(timeout=20).pace is None for _ in range(3)] == [True, False, False]
    count = parts.looks
    assert looks.look(parts.look, SYSTEM_CLOCK).pace is not None
    assert parts.looks == count + 1, "it looks on"


def test_a_step_that_fails_waits_for_no_look() -> None:
    hangs, began = Event(), Event()

    def look() -> Status:
        began.set()
        assert hangs.wait(60)
        return Parts(1).look()

    with pytest.raises(CdcError, match="failed"), LooksBeside(look, lambda _: None, LiveLooks(), 1, SYSTEM_CLOCK):
        assert began.wait(20)
        raise CdcError("failed")
    hangs.set()
