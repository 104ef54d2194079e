"""tests/waiting.py itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from cdc.process.clock import ManualClock
from tests.waiting import wait_until


def test_returns_the_first_true_value() -> None:
    states: Iterator[int] = iter([0, 0, 7, 9])
    assert wait_until(lambda: next(states), clock=ManualClock()) == 7


def test_an_assertion_inside_means_not_yet() -> None:
    states: Iterator[int] = iter([1, 2, 3])

    def third() -> bool:
        assert next(states) == 3
        return True

    assert wait_until(third, clock=ManualClock())


def test_past_the_deadline_it_names_the_caller_and_the_state() -> None:
    with pytest.raises(AssertionError, match=r"test_waiting\.py:\d+: not reached .*: seven rows \(last: 0\)"):
        wait_until(lambda: 0, 5, "seven rows", clock=ManualClock())


def test_a_look_that_costs_is_taken_less_often() -> None:
    clock = ManualClock()
    looks: list[float] = []

    def look() -> bool:
        looks.append(clock.monotonic())
        clock.advance(0.2)
        return len(looks) == 5

    assert wait_until(look, 60, clock=clock)
    assert [round(after - before, 3) for before, after in itertools.pairwise(looks)] == [1.0] * 4
