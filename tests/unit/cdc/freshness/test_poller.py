"""One poller for all who wait for a store: it looks while somebody waits, and answers each of them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest

from cdc.errors import SinkError
from cdc.freshness.poller import Pollers, WatermarkPoller
from cdc.freshness.wanted import NotShown, TokenWaits, Wanted
from cdc.lsn import Lsn
from cdc.progress import Hold, Watermark
from cdc.source_lineage import SourceLineage
from cdc.tokens import Token
from tests.waiting import wait_until

LINEAGE = SourceLineage("7", 2, ((1, 90),))
HOLD = Hold(table="public.a", reason="public.a: column n is text in the store, and integer in the source now")


def at(lsn: int) -> Watermark:
    return Watermark(epoch=1, lsn=lsn, lineage=LINEAGE)


def wanted(lsn: int, *tables: str, timeline: int = 2, system: str = "7") -> Wanted:
    return Wanted("the cache", Token(system, timeline, Lsn(lsn)), frozenset(tables))


@dataclass
class Store:
    """A store that a test moves. Threads look at it."""

    held: Watermark | None = None
    away: Exception | None = None
    looks: int = 0
    opened: int = 0
    closed: int = 0
    answers: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    def open(self) -> Store:
        self.opened += 1
        return self

    @property
    def watermarks(self) -> Store:
        return self

    def read(self) -> Watermark | None:
        self.answers.wait(30)
        self.looks += 1
        if self.away is not None:
            raise self.away
        return self.held

    def current(self) -> bool:
        return True

    def close(self) -> None:
        self.closed += 1


def test_one_look_answers_all_whom_it_decides() -> None:
    waiting = TokenWaits()
    first, second, third = (waiting.add(wanted(lsn)) for lsn in (10, 20, 30))
    waiting.settle(at(20))
    assert (first.result(0), second.result(0), third.done(), len(waiting)) == (at(20), at(20), False, 1)
    third.cancel()
    waiting.settle(at(20))
    assert len(waiting) == 0


def test_nothing_of_another_server_is_ever_shown() -> None:
    waiting = TokenWaits()
    answers = [waiting.add(asked) for asked in (wanted(1, system="8"), wanted(1, timeline=3))]
    for mark in (None, Watermark(epoch=9, lsn=10**9), at(10**9)):
        waiting.settle(mark)
        assert not [answer for answer in answers if answer.done()]


def test_a_commit_that_is_lost_is_refused_at_once() -> None:
    waiting = TokenWaits()
    answer = waiting.add(wanted(91, timeline=1))
    waiting.settle(at(10**9))
    with pytest.raises(NotShown, match="a promotion left 7/1:0/5B behind"):
        answer.result(0)


def test_a_held_table_counts_where_it_is_read() -> None:
    holds = replace(at(50), held={"shop.public.a": HOLD})
    for tables, refused in (((), True), (("public.a",), True), (("public.b",), False)):
        waiting = TokenWaits()
        answer = waiting.add(wanted(50, *tables))
        waiting.settle(holds)
        assert isinstance(answer.exception(0), NotShown) is refused


def test_h119_a_table_that_is_set_aside_is_named() -> None:
    waiting = TokenWaits()
    answer = waiting.add(wanted(50))
    waiting.settle(replace(at(50), aside={"shop.public.a": "public.a is set aside"}))
    with pytest.raises(NotShown, match="is set aside"):
        answer.result(0)


def test_threads_and_loops_share_one_poller() -> None:
    store = Store(at(5))
    poller = WatermarkPoller(store.open)

    def move() -> None:
        wait_until(lambda: store.looks > 3, 20)
        store.held = at(10)

    async def on_a_loop() -> list[Watermark]:
        asked = asyncio.gather(*(asyncio.wrap_future(poller.ask(wanted(10))) for _ in range(8)))
        return await asyncio.wait_for(asked, 30)

    with ThreadPoolExecutor(9) as threads:
        answers = [threads.submit(lambda: poller.ask(wanted(10)).result(30)) for _ in range(8)]
        moved = threads.submit(move)
        assert asyncio.run(on_a_loop()) == [at(10)] * 8
        moved.result(30)
        assert [answer.result(30) for answer in answers] == [at(10)] * 8
    assert store.opened == 1
    assert [one.name for one in threading.enumerate()].count("freshness") == 1
    poller.end()
    assert store.closed == 1


def test_it_rests_while_nobody_waits() -> None:
    store = Store(at(10))
    poller = WatermarkPoller(store.open)
    assert poller.ask(wanted(10)).result(30) == at(10)
    looks = store.looks
    answer = poller.ask(wanted(11))
    wait_until(lambda: store.looks > looks + 2, 20)
    answer.cancel()

    def rests() -> bool:
        before = store.looks
        threading.Event().wait(0.3)
        return store.looks == before

    wait_until(rests, 20)
    poller.end()


def test_a_store_that_is_away_fails_all_who_wait_and_recovers() -> None:
    store = Store(away=SinkError("Redis is away"))
    poller = WatermarkPoller(store.open)
    with pytest.raises(SinkError, match="Redis is away"):
        poller.ask(wanted(1)).result(30)
    store.away = ValueError("a driver's own words, with a password in them")
    with pytest.raises(SinkError, match=r"^the store cannot be asked: ValueError$"):
        poller.ask(wanted(1)).result(30)
    store.away, store.held = None, at(1)
    assert poller.ask(wanted(1)).result(30) == at(1)
    poller.end()


def test_a_store_that_is_silent_keeps_nobody_beyond_his_time() -> None:
    store = Store(at(1))
    store.answers.clear()
    poller = WatermarkPoller(store.open)
    answer: Future[Watermark] = poller.ask(wanted(1))
    with pytest.raises(TimeoutError):
        answer.result(0.01)
    assert not poller.looked
    store.answers.set()
    assert answer.result(30) == at(1)
    poller.end()


def test_the_last_user_of_a_store_closes_it() -> None:
    store, pollers = Store(at(1)), Pollers()
    first, second = (pollers.join("cache", lambda: WatermarkPoller(store.open)) for _ in range(2))
    assert first is second
    first.ask(wanted(1)).result(30)
    pollers.leave("cache")
    assert (len(pollers), store.closed) == (1, 0)
    pollers.leave("cache")
    assert (len(pollers), store.closed) == (0, 1)
