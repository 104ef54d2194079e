"""One poller for all who wait for a store: it looks while somebody waits, and answers each of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import pytest

from cdc.freshness.bounded_ports import MOST_LEFT, BoundedLooks, KeptStores, started
from cdc.freshness.rules import FIRST_PAUSE_S, LONGEST_PAUSE_S
from cdc.freshness.run import Pollers, WatermarkPoller
from cdc.process.errors import SinkError
from cdc.record.progress import Watermark
from tests.unit.cdc.freshness.asked import at, wanted
from tests.waiting import wait_until


def answering() -> threading.Event:
    made = threading.Event()
    made.set()
    return made


@dataclass
class Store:
    """A store that a test moves. Threads look at it."""

    held: Watermark | None = None
    away: Exception | None = None
    looks: int = 0
    opened: int = 0
    closed: int = 0
    answers: threading.Event = field(default_factory=answering)

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
    given_up = wanted(11)
    poller.ask(given_up)
    wait_until(lambda: store.looks > looks + 2, 20)
    poller.forget(given_up)
    assert len(poller) == 0

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
    asked = wanted(1)
    with pytest.raises(TimeoutError):
        poller.ask(asked).result(0.01)
    assert asked.late(0.01).message == "the cache has not answered within 0.01 s"
    store.answers.set()
    assert poller.ask(wanted(1)).result(30) == at(1)
    poller.end()


@dataclass
class Silent(Store):
    """A store whose present connection says nothing any more, while new ones are served."""

    silent: bool = False

    def open(self) -> Store:
        self.opened += 1
        return Store(self.held, answers=self.answers) if self.silent else Store(self.held)


def test_h266_a_silent_connection_is_left_behind_for_a_new_one() -> None:
    store = Silent(at(1), silent=True)
    poller = WatermarkPoller(store.open, limit_s=0.2)
    assert poller.ask(wanted(1)).result(30) == at(1)
    store.answers.clear()
    store.silent = False
    with pytest.raises(SinkError, match=r"does not answer: a look at it takes longer than 0\.2 s"):
        poller.ask(wanted(1)).result(30)
    assert poller.ask(wanted(1)).result(30) == at(1)
    assert store.opened == 2
    store.answers.set()
    poller.end()


def test_h266_so_many_are_left_behind_and_no_more() -> None:
    store = Silent(at(1), silent=True)
    looks = BoundedLooks(store.open, nullcontext, limit_s=0.02)
    for _ in range(MOST_LEFT):
        assert looks.look() == at(1)
        store.answers.clear()
        with pytest.raises(SinkError, match="does not answer"):
            looks.look()
        store.answers = answering()
    with pytest.raises(SinkError, match="does not answer"):
        looks.look()
    assert store.opened == MOST_LEFT
    looks.close(30)


def test_h266_a_store_that_opens_slowly_has_its_time() -> None:
    store = Silent(at(1), silent=True)
    store.answers.clear()
    looks = BoundedLooks(store.open, nullcontext, limit_s=0.02, open_s=60)
    later = threading.Timer(0.2, store.answers.set)
    later.start()
    assert looks.look() == at(1)
    assert store.opened == 1
    looks.close(30)
    store.answers.clear()
    with pytest.raises(SinkError, match=r"longer than 0\.1 s"):
        BoundedLooks(store.open, nullcontext, limit_s=30, open_s=0.1).look()
    store.answers.set()


def test_a_thread_that_cannot_be_had_is_tried_again() -> None:
    left = [RuntimeError("can't start new thread"), None, RuntimeError("can't start new thread")]

    def start(name: str, run: Callable[[], None]) -> threading.Thread:
        if left and (none_left := left.pop(0)) is not None:
            raise none_left
        return started(name, run)

    store = Store(at(1))
    poller = WatermarkPoller(store.open, start=start)
    with pytest.raises(SinkError, match="cannot be asked: can't start new thread"):
        poller.ask(wanted(1))
    with pytest.raises(SinkError, match="cannot be asked: RuntimeError"):
        poller.ask(wanted(1)).result(30)
    assert poller.ask(wanted(1)).result(30) == at(1)
    poller.end()


def test_a_look_is_brief() -> None:
    within: list[bool] = []
    brief = [False]

    class Noting(Store):
        def read(self) -> Watermark | None:
            within.append(brief[0])
            return super().read()

    @contextmanager
    def briefly() -> Iterator[None]:
        brief[0] = True
        yield
        brief[0] = False

    poller = WatermarkPoller(Noting(at(1)).open, briefly)
    assert poller.ask(wanted(1)).result(30) == at(1)
    poller.end()
    assert within == [True]


def test_looks_are_paced_however_many_ask() -> None:
    store = Store(at(1))
    poller = WatermarkPoller(store.open)
    began_s = time.monotonic()
    for _ in range(200):
        assert poller.ask(wanted(1)).result(30) == at(1)
    took_s = time.monotonic() - began_s
    poller.end()
    assert store.looks <= took_s / FIRST_PAUSE_S + 1


def test_pauses_grow_until_somebody_new_comes() -> None:
    answers = threading.Event()
    answers.set()

    class Stopping(Store):
        def read(self) -> Watermark | None:
            answers.wait(60)
            return super().read()

    store = Stopping(at(1))
    poller = WatermarkPoller(store.open)
    poller.ask(wanted(2))
    wait_until(lambda: poller.pause_s == LONGEST_PAUSE_S, 20)
    began_s, looks = time.monotonic(), store.looks
    wait_until(lambda: store.looks >= looks + 4, 20)
    assert time.monotonic() - began_s >= 2.5 * LONGEST_PAUSE_S
    # Without an answer the pause grows once at most, however late this looks at it.
    answers.clear()
    poller.ask(wanted(3))
    assert poller.pause_s < LONGEST_PAUSE_S
    answers.set()
    poller.end()


def test_the_end_of_an_owner_ends_his_waits() -> None:
    store, owner = Store(at(1)), object()
    poller = WatermarkPoller(store.open)
    his, another = wanted(2), wanted(2)
    his.owner, another.owner = owner, object()
    for one in (his, another):
        poller.ask(one)
    poller.dismiss(owner, SinkError("closed"))
    with pytest.raises(SinkError, match="closed"):
        his.answer.result(0)
    assert (another.answer.done(), len(poller)) == (False, 1)
    poller.end()
    with pytest.raises(SinkError, match="not followed any more"):
        another.answer.result(0)
    with pytest.raises(SinkError, match="not followed any more"):
        poller.ask(wanted(1))


def test_a_fork_keeps_its_users() -> None:
    poller = WatermarkPoller(Store(at(1)).open)
    poller.join()
    poller.join()
    poller.forked()
    assert [poller.leave(), poller.leave()] == [False, True]


def test_a_store_of_an_older_generation_is_closed() -> None:
    opened: list[Store] = []

    class Old(Store):
        def current(self) -> bool:
            return len(opened) > 1

    def open_store(_: str) -> Store:
        opened.append(Old(at(1)))
        return opened[-1]

    stores = KeptStores(open_store)
    stores.watermarks("cache")
    stores.watermarks("cache")
    assert [store.closed for store in opened] == [1, 0]
    stores.close()
    assert [store.closed for store in opened] == [1, 1]


def test_the_last_user_of_a_store_closes_it() -> None:
    store, pollers = Store(at(1)), Pollers()
    first, second = (pollers.join("cache", lambda: WatermarkPoller(store.open)) for _ in range(2))
    assert first is second
    first.ask(wanted(1)).result(30)
    pollers.leave("cache")
    assert (len(pollers), store.closed) == (1, 0)
    pollers.leave("cache")
    assert (len(pollers), store.closed) == (0, 1)
