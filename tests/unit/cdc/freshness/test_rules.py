"""Waiting for a store to show an LSN."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.freshness.rules import wait_until_shown, wait_until_token_shown
from cdc.process.clock import ManualClock
from cdc.process.errors import DifferenceFound
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from cdc.record.source_lineage import SourceLineage
from cdc.record.tokens import Token


class Store:
    """Shows one more LSN at each look."""

    def __init__(self, *held: Watermark | None) -> None:
        self.held = list(held)
        self.looks = 0

    def read(self) -> Watermark | None:
        self.looks += 1
        return self.held.pop(0) if len(self.held) > 1 else self.held[0]


def at(lsn: int, epoch: int = 1) -> Watermark:
    return Watermark(epoch=epoch, lsn=lsn)


def test_it_returns_what_the_store_shows() -> None:
    store = Store(None, at(5), at(99), at(100), at(200))
    assert wait_until_shown("cache", store, 100, clock=ManualClock()) == at(100)
    assert store.looks == 4


def test_past_the_time_it_says_where_the_store_stands() -> None:
    clock = ManualClock()
    with pytest.raises(DifferenceFound, match=r"cache stands at 0/5; 0/64 was not reached in 3 s"):
        wait_until_shown("cache", Store(at(5)), 100, timeout_s=3, clock=clock)
    with pytest.raises(DifferenceFound, match="cache has no watermark yet"):
        wait_until_shown("cache", Store(None), 100, timeout_s=0, clock=clock)


@pytest.mark.parametrize(
    ("held", "shown"), [(at(999, epoch=1), False), (at(100, epoch=2), True), (at(999, epoch=3), False)]
)
def test_another_epoch_shows_nothing_of_a_token(held: Watermark, shown: bool) -> None:
    def look() -> Watermark:
        return wait_until_shown("cache", Store(held), 100, epoch=2, timeout_s=0, clock=ManualClock())

    if shown:
        assert look() == held
    else:
        with pytest.raises(DifferenceFound):
            look()


def test_h93_a_quiet_server_is_nudged_once() -> None:
    nudges: list[int] = []
    with pytest.raises(DifferenceFound):
        wait_until_shown("cache", Store(at(5)), 100, timeout_s=10, clock=ManualClock(), nudge=lambda: nudges.append(1))
    assert nudges == [1]


LINEAGE = SourceLineage("7", 2, ((1, 90),))


def named(lsn: int, lineage: SourceLineage | None = LINEAGE) -> Watermark:
    return replace(at(lsn), lineage=lineage)


def test_a_token_is_waited_for_by_its_server() -> None:
    token = Token("7", 2, Lsn(100))
    store = Store(None, at(999), named(999, SourceLineage("8", 2)), named(99), named(100))
    assert wait_until_token_shown("cache", store, token, clock=ManualClock()) == named(100)
    assert store.looks == 5


def test_a_token_of_another_server_is_never_shown() -> None:
    with pytest.raises(DifferenceFound, match="cache shows server 7/2, and the token is of 8/1; waited 3 s") as late:
        wait_until_token_shown("cache", Store(named(999)), Token("8", 1, Lsn(1)), timeout_s=3, clock=ManualClock())
    assert "take a new token" in late.value.hint


def test_a_commit_that_a_promotion_left_behind_is_not_waited_for() -> None:
    clock = ManualClock()
    began_s = clock.monotonic()
    with pytest.raises(
        DifferenceFound, match=r"left 7/1:0/5B behind: its commit may be lost, and cache never shows it$"
    ):
        wait_until_token_shown("cache", Store(named(999)), Token("7", 1, Lsn(91)), clock=clock)
    assert clock.monotonic() == began_s
