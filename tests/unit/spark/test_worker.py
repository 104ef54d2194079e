"""The thread of a store: in order, and left behind when it does not come back."""

from __future__ import annotations

from functools import partial
from threading import Event

import pytest

from sinks.contract.memory_store import MemoryStore
from spark.figures.sink_metrics import Metrics
from spark.session.failures import Halted
from spark.stores.store_calls import Halt, StoreThread
from spark.stores.store_thread import Store, Surroundings
from spark.stores.watermark import LogView
from tests.unit.spark.doubles import MemoryDead, MemoryFacts
from tests.waiting import wait_until


def test_calls_are_done_in_order_and_their_errors_are_raised() -> None:
    worker = StoreThread("test")
    done: list[int] = []
    futures = [worker.submit(partial(done.append, number)) for number in range(5)]
    failed = worker.submit(lambda: 1 // 0)
    assert isinstance(failed.exception(10), ZeroDivisionError)
    assert all(future.done() for future in futures)
    assert done == [0, 1, 2, 3, 4]
    assert worker.end(10)


def test_h115_a_thread_that_does_not_come_back_is_left_behind() -> None:
    worker, silent = StoreThread("test"), Event()
    worker.submit(silent.wait)
    assert not worker.end(0.05)
    silent.set()


def test_h115_nobody_waits_for_a_silent_store_past_the_end() -> None:
    around = Surroundings(facts=MemoryFacts(), dead=MemoryDead(), view=LogView(), metrics=Metrics(), grace_s=0.1)
    store, silent, begun = Store("cache", MemoryStore().open, around), Event(), Event()

    def call() -> None:
        begun.set()
        silent.wait()

    future = store.submit(call)
    wait_until(begun.is_set)
    store.halt.set()
    with pytest.raises(Halted, match="did not answer in time"):
        store.result(future)
    store.end()
    assert not future.done(), "the call is left behind"
    silent.set()


def test_h115_what_ends_in_time_is_waited_for() -> None:
    around = Surroundings(facts=MemoryFacts(), dead=MemoryDead(), view=LogView(), metrics=Metrics(), grace_s=30)
    store, slow = Store("cache", MemoryStore().open, around), Event()
    future = store.submit(lambda: slow.wait(30))
    store.halt.set()
    slow.set()
    assert store.result(future)
    store.end()


class Watched(Halt):
    """One that sets an event once it was looked at three times."""

    def __init__(self, looked: Event) -> None:
        super().__init__()
        self._looked, self._looks = looked, 0

    def is_set(self) -> bool:
        self._looks += 1
        if self._looks > 3:
            self._looked.set()
        return super().is_set()


def test_h115_a_call_that_goes_on_has_all_of_its_grace() -> None:
    around = Surroundings(facts=MemoryFacts(), dead=MemoryDead(), view=LogView(), metrics=Metrics(), grace_s=30)
    store, slow = Store("cache", MemoryStore().open, around), Event()
    store.halt = Watched(slow)
    store.halt.set()
    assert store.result(store.submit(lambda: slow.wait(30)))
    store.end()


class HaltOfBefore(Halt):
    """One that was set an hour ago."""

    @property
    def since_s(self) -> float:
        return super().since_s + 3600


def test_h164_a_silent_call_is_waited_for_once_in_all() -> None:
    """The batch in hand was waited for since the wish to stop: the end of the store begins no time anew."""
    around = Surroundings(facts=MemoryFacts(), dead=MemoryDead(), view=LogView(), metrics=Metrics(), grace_s=3601)
    store, silent, begun = Store("cache", MemoryStore().open, around), Event(), Event()
    store.halt = HaltOfBefore()

    def call() -> None:
        begun.set()
        silent.wait()

    store.submit(call)
    wait_until(begun.is_set)
    assert not store.end()
    silent.set()


def test_a_wish_to_stop_knows_how_old_it_is() -> None:
    halt = Halt()
    assert halt.since_s == 0
    halt.set()
    wait_until(lambda: halt.since_s > 0.01)
    halt.set()
    assert halt.since_s > 0.01, "the first one counts"
    halt.clear()
    assert halt.since_s == 0
