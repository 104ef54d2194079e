"""Waiting for a store to show an LSN."""

from __future__ import annotations

import pytest

from cdc.clock import ManualClock
from cdc.errors import DifferenceFound
from cdc.freshness.rules import wait_until_read, wait_until_shown
from cdc.progress import Watermark


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
    ("held", "shown"), [(at(999, epoch=1), False), (at(100, epoch=2), True), (at(1, epoch=3), True)]
)
def test_an_older_epoch_shows_nothing_of_a_newer_token(held: Watermark, shown: bool) -> None:
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


def test_h131_a_store_without_lsns_shows_all_below_its_offsets() -> None:
    def upto(offset: int) -> Watermark:
        return Watermark(epoch=1, lsn=0, offsets={"shop.a": {0: offset}})

    ends = {"shop.a": {0: 7, 1: 0}}
    assert wait_until_read("cache", Store(None, upto(6), upto(7)), ends, clock=ManualClock()) == upto(7)
    with pytest.raises(DifferenceFound, match="cache is 1 records behind, and did not catch up in 3 s"):
        wait_until_read("cache", Store(upto(6)), ends, timeout_s=3, clock=ManualClock())
    with pytest.raises(DifferenceFound, match="cache has no watermark yet"):
        wait_until_read("cache", Store(None), ends, timeout_s=0, clock=ManualClock())
