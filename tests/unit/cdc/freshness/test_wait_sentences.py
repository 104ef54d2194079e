"""When a wait for a store looks, nudges and ends, and what it says when it fails."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from cdc.freshness.rules import (
    require_whole,
    speaks_for,
    wait_until_shown,
    wait_until_spoken_for,
)
from cdc.process.clock import ManualClock
from cdc.process.errors import DifferenceFound, Exit
from cdc.record.progress import Hold, Watermark

TOPIC = "shop.public.a"
HOLD = Hold(table="public.a", reason="public.a: column n is text in the store, and integer in the source now")
KNOWS = Watermark(epoch=1, lsn=5, topic_ids={TOPIC: "id"})
HOLDS = Watermark(epoch=1, lsn=5, topic_ids={TOPIC: "id"}, held={TOPIC: HOLD})


class TimedStore:
    """Shows what it has at that time, and notes when it is looked at, in seconds from the first look."""

    def __init__(self, clock: ManualClock, *held: tuple[float, Watermark | None], takes_s: float = 0.0) -> None:
        self.clock = clock
        self.held = held
        self.takes_s = takes_s
        self.began = clock.monotonic()
        self.looks: list[float] = []

    def passed_s(self) -> float:
        return self.clock.monotonic() - self.began

    def read(self) -> Watermark | None:
        now = self.passed_s()
        self.looks.append(now)
        self.clock.advance(self.takes_s)
        return [watermark for since_s, watermark in self.held if since_s <= now][-1]


def at(lsn: int) -> Watermark:
    return Watermark(epoch=1, lsn=lsn)


def behind(seconds: float = 0.0, *, takes_s: float = 0.0) -> TimedStore:
    """A store that shows LSN 100 after so many seconds, and less before."""
    return TimedStore(ManualClock(0), (0.0, at(5)), (seconds, at(100) if seconds else at(5)), takes_s=takes_s)


def test_a_store_that_is_nearly_there_is_seen_at_once() -> None:
    """Most stores are milliseconds behind a write: the looks are close together at first."""
    store = behind(0.02)
    assert wait_until_shown("cache", store, 100, clock=store.clock) == at(100)
    assert store.passed_s() < 0.03


def test_looks_get_rarer_and_stay_below_a_fifth_of_a_second() -> None:
    store = behind(5.0)
    assert wait_until_shown("cache", store, 100, clock=store.clock) == at(100)
    gaps = [later - earlier for earlier, later in pairwise(store.looks)]
    assert len([look for look in store.looks if look < 0.1]) == 5
    assert gaps[:6] == sorted(gaps[:6])
    assert max(gaps) == pytest.approx(0.2)
    assert len(gaps) < 40


def test_a_wait_ends_when_its_time_is_over_and_not_later() -> None:
    store = behind()
    with pytest.raises(DifferenceFound, match=r"was not reached in 0\.1 s"):
        wait_until_shown("cache", store, 100, timeout_s=0.1, clock=store.clock)
    assert store.passed_s() == pytest.approx(0.1, abs=1e-6)


def test_the_last_look_is_when_the_time_is_over() -> None:
    store = behind(0.1)
    assert wait_until_shown("cache", store, 100, timeout_s=0.1, clock=store.clock) == at(100)


@pytest.mark.parametrize(
    ("wait", "said"),
    [
        (lambda store: wait_until_shown("cache", store, 100, clock=store.clock), "0/64 was not reached in 30 s"),
        (lambda store: wait_until_spoken_for("cache", store, TOPIC, clock=store.clock), "; waited 30 s"),
    ],
)
def test_nobody_waits_longer_than_half_a_minute_unasked(wait: Callable[[TimedStore], Watermark], said: str) -> None:
    store = behind()
    with pytest.raises(DifferenceFound) as caught:
        wait(store)
    assert caught.value.message.endswith(said)
    assert store.passed_s() == pytest.approx(30.0, abs=1e-3)


def test_h93_the_nudge_comes_when_a_second_has_passed() -> None:
    store = behind(3.0, takes_s=1.0)
    nudges: list[float] = []
    wait_until_shown("cache", store, 100, clock=store.clock, nudge=lambda: nudges.append(store.passed_s()))
    assert nudges == [1.0]
    quick = behind(3.0)
    nudges.clear()
    wait_until_shown("cache", quick, 100, clock=quick.clock, nudge=lambda: nudges.append(quick.passed_s()))
    assert len(nudges) == 1
    assert 1.0 <= nudges[0] < 1.2


def test_h93_a_store_that_follows_within_a_second_needs_no_nudge() -> None:
    store = behind(0.5)
    nudges: list[float] = []
    wait_until_shown("cache", store, 100, clock=store.clock, nudge=lambda: nudges.append(store.passed_s()))
    assert nudges == []


def test_a_late_store_ends_with_1_and_says_what_has_to_run() -> None:
    store = behind()
    with pytest.raises(DifferenceFound) as caught:
        wait_until_shown("cache", store, 100, timeout_s=1, clock=store.clock)
    assert caught.value.exit is Exit.DIFFERENCE
    assert caught.value.hint == "cdc status shows where it is held up; cdc run and cdc sink have to be running"


def test_it_waits_until_the_lsn_speaks_for_a_table() -> None:
    """A table that came later is not in the store's LSN before the store reads its topic."""
    store = TimedStore(ManualClock(0), (0.0, None), (0.1, at(5)), (0.3, HOLDS), (1.0, KNOWS))
    assert wait_until_spoken_for("cache", store, TOPIC, clock=store.clock) is KNOWS
    assert 1.0 <= store.passed_s() <= 1.2


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (None, "cache does not read the topic shop.public.a yet"),
        (at(5), "cache does not read the topic shop.public.a yet"),
        (HOLDS, HOLD.sentence("cache")),
    ],
)
def test_it_says_why_the_lsn_does_not_speak_for_a_table(held: Watermark | None, said: str) -> None:
    store = TimedStore(ManualClock(0), (0.0, held))
    with pytest.raises(DifferenceFound) as caught:
        wait_until_spoken_for("cache", store, TOPIC, timeout_s=2, clock=store.clock)
    assert caught.value.message == f"{said}; waited 2 s"
    assert caught.value.hint == "cdc status shows where it is held up"


@pytest.mark.parametrize(
    ("watermark", "speaks"),
    [
        (KNOWS, True),
        (at(5), False),
        (HOLDS, False),
        (Watermark(epoch=1, lsn=5, topic_ids={"shop.public.b": "id"}, held={TOPIC: HOLD}), False),
    ],
)
def test_an_lsn_speaks_for_what_is_read_and_not_held(watermark: Watermark, speaks: bool) -> None:
    assert speaks_for(watermark, TOPIC) is speaks


def test_h119_a_store_without_tables_set_aside_is_whole() -> None:
    require_whole("cache", at(100))
    with pytest.raises(DifferenceFound) as caught:
        require_whole("cache", Watermark(epoch=1, lsn=100, aside={"shop.public.a": "public.a is set aside"}))
    assert caught.value.message == "cache shows all tables up to 0/64 but these: public.a is set aside"
    assert caught.value.hint == "cdc status names each table that is set aside, and why"


def test_h119_of_several_tables_set_aside_one_is_named() -> None:
    aside = {f"shop.public.{name}": f"public.{name} is set aside" for name in "abc"}
    with pytest.raises(DifferenceFound) as caught:
        require_whole("cache", Watermark(epoch=1, lsn=100, aside=dict(list(aside.items())[:2])))
    assert caught.value.message.endswith("but these: public.a is set aside, and 1 more")
    with pytest.raises(DifferenceFound, match=r": public\.a is set aside, and 2 more"):
        require_whole("cache", Watermark(epoch=1, lsn=100, aside=aside))
