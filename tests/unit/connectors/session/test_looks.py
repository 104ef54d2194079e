"""Looks beside the stream: a silent server, one that refuses and a bug end nothing. Progress is that of the source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from cdc.capture.windows import Closed
from cdc.figures.capture_metrics import STALL_S, CaptureFigures, Flow
from cdc.process.clock import SYSTEM_CLOCK, ManualClock
from cdc.process.errors import SourceError
from connectors.session.side_queries import RepeatedLook, Standstill
from tests.waiting import wait_until


class Server:
    """Answers a look, each time by the next of its answers, and by the last one from then on."""

    def __init__(self, *answers: Callable[[], float]) -> None:
        self._answers = list(answers)
        self.looks = 0

    def look(self) -> float:
        self.looks += 1
        return self._answers[min(self.looks, len(self._answers)) - 1]()


def well() -> float:
    return 0.001


def raises(error: Exception) -> Callable[[], float]:
    def answer() -> float:
        raise error

    return answer


@contextmanager
def looking(server: Server) -> Iterator[RepeatedLook]:
    over = threading.Event()
    look = RepeatedLook("source", server.look, over, SYSTEM_CLOCK, again_s=0.001)
    look.start()
    try:
        yield look
    finally:
        over.set()
        look.join(10)


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_h95_a_look_without_an_answer_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    away = raises(SourceError("Postgres does not answer"))
    lost = raises(psycopg.OperationalError("a row's value"))
    server = Server(away, away, raises(OSError("reset")), well, lost, well)
    with looking(server):
        wait_until(lambda: server.looks > 8, 10)
    assert events(caplog) == ["look_unanswered", "look_unanswered"], "again behind an answer"
    assert [record.why for record in caplog.records] == ["Postgres does not answer", "OperationalError"]  # type: ignore[attr-defined]
    assert {record.look for record in caplog.records} == {"source"}  # type: ignore[attr-defined]


def test_h103_a_bug_in_a_look_does_not_end_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(raises(KeyError("bug")), well)
    with looking(server):
        wait_until(lambda: server.looks > 3, 10)
    assert events(caplog) == ["look_failed"]
    assert caplog.records[0].exc_info is not None


def test_h95_a_silent_server_holds_up_nobody_but_its_look() -> None:
    silent, asked = threading.Event(), threading.Event()

    def silence() -> float:
        asked.set()
        silent.wait(60)
        raise SourceError("cancelled")

    over, ended = threading.Event(), threading.Event()
    look = RepeatedLook("source", silence, over, SYSTEM_CLOCK, done=ended.set)
    look.start()
    assert asked.wait(10)
    over.set()
    assert not look.join(0.05), "it is left behind, and is no reason to stay"
    silent.set()
    assert look.join(10)
    assert ended.is_set(), "its session is closed by its own thread"


def test_h115_a_look_ends_with_its_session(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(raises(Closed()))
    with looking(server) as look:
        assert look.join(10)
    assert (server.looks, events(caplog)) == (1, [])


class Session:
    """A session's figures over time, with a look every three seconds."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.figures = CaptureFigures()
        self.records = 0
        self.figures.flow = lambda: Flow(records=self.records)
        self.standstill = Standstill(self.clock.monotonic())

    def look(self, wal_lsn: int, times: int = 1) -> bool:
        """Whether it stands still behind so many looks."""
        for _ in range(times):
            self.clock.advance(3)
            self.standstill.judge(self.figures, wal_lsn, self.clock.monotonic())
        return self.figures.stuck_since_s is not None


LONG = int(STALL_S / 3) + 2
"""Looks until a standstill is one."""


def test_h95_h96_a_source_ahead_of_what_does_not_move_is_stuck() -> None:
    session = Session()
    session.figures.flushed_lsn = 100
    assert not session.look(100, LONG), "it has all that there is"
    assert not session.look(200, LONG - 2)
    assert session.look(200, 3)
    session.figures.flushed_lsn = 150
    assert not session.look(300), "it moves"


@pytest.mark.parametrize("moves", ["received", "records", "waits"])
def test_h95_what_still_moves_or_waits_is_not_stuck(moves: str) -> None:
    session = Session()
    for step in range(LONG * 2):
        if moves == "received":
            session.figures.received_lsn = step
        elif moves == "records":
            session.records = step
        else:
            session.figures.waiting_since_s = 1.0
        assert not session.look(1000 + step)
