"""An event that a signal's handler sets while the same thread waits for it."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from cdc.process.clock import SignalEvent
from tests.waiting import TIME_SCALE

SIGNALLED = """
import signal

from cdc.process.clock import SignalEvent

event = None
signal.signal(signal.SIGALRM, lambda *_: event.set())
for number in range(3_000):
    event = SignalEvent()
    signal.setitimer(signal.ITIMER_REAL, 0.00002 + number % 100 / 1e6)
    while not event.wait(0.00001):
        pass
print("each was heard")
"""


ELSEWHERE = """
import signal, threading

from cdc.process.clock import SignalEvent

event = SignalEvent()
signal.signal(signal.SIGALRM, lambda *_: event.set())
waits = threading.Event()


def send():
    waits.wait()
    signal.pthread_kill(threading.get_ident(), signal.SIGALRM)


threading.Thread(target=send).start()
waits.set()
event.wait()
print("it was heard")
"""


def test_h554_a_handler_ends_the_wait_that_it_interrupts() -> None:
    """With an event of threading's one of some hundred handlers waits for ever for the lock of the wait below it."""
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=20 * TIME_SCALE, check=True
    )
    assert done.stdout == "each was heard\n"


def test_h554_a_signal_to_another_thread_ends_it() -> None:
    """Nothing wakes the thread that waits then, as where the signal comes just before it falls asleep."""
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=20 * TIME_SCALE, check=True
    )
    assert done.stdout == "it was heard\n"


def test_h554_each_that_waits_is_told() -> None:
    event, told = SignalEvent(), threading.Barrier(4, timeout=5 * TIME_SCALE)

    def wait() -> None:
        if event.wait(60 * TIME_SCALE):
            told.wait()

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert not event.wait(0.0)
    assert not event.is_set()
    event.set()
    told.wait()
    for thread in threads:
        thread.join()
    assert event.wait()
    assert event.is_set()


def test_h554_it_stays_set() -> None:
    event = SignalEvent()
    event.set()
    with pytest.raises(RuntimeError, match="stays set"):
        event.clear()
    assert event.wait(0.0)
