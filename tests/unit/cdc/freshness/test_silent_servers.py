"""Servers that take a connection and say nothing: a wait ends in its time, and says which one it was."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from cdc.freshness.bounded_ports import MOST_LEFT, BoundedCalls, Unanswered
from cdc.freshness.run import WaitPorts, Waits
from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import LogError, SinkError
from cdc.record.progress import Watermark
from cdc.record.source_lineage import SourceLineage
from cdc.record.tokens import Token
from cdc.wire.dead_letter import DeadLetter

T = TypeVar("T")
LEAST_S = 0.05
_brief = ContextVar("brief", default=False)


@dataclass
class Servers:
    """A store that shows one LSN, and a log. ``silent``: what says nothing until the end."""

    silent: set[str] = field(default_factory=set)
    opened: int = 0
    briefly_opened: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    def waits(self) -> Waits:
        ports = WaitPorts(
            open=self._open,
            briefly=_briefly,
            epoch=lambda: self._answer("log", 2),
            letters=lambda: self._answer("letters", list[DeadLetter]()),
            nudge=lambda: self._answer("source", None),
            require=lambda: None,
            place=lambda sink, table: self._answer("topics", f"shop.{table}"),
        )
        return Waits(ports, SYSTEM_CLOCK, LEAST_S)

    def _open(self, sink: str) -> Servers:
        self.opened += 1
        self.briefly_opened = _brief.get()
        return self._answer("opening", self)

    @property
    def watermarks(self) -> Servers:
        return self

    def read(self) -> Watermark | None:
        lineage = SourceLineage(system="7", timeline=1)
        return self._answer("store", Watermark(epoch=2, lsn=50, topic_ids={"shop.t": "id"}, lineage=lineage))

    def current(self) -> bool:
        return self._answer("current", True)

    def close(self) -> None:
        self._answer("close", None)

    def _answer(self, what: str, answer: T) -> T:
        if what in self.silent:
            self.over.wait(20)
        return answer


@contextmanager
def _briefly() -> Iterator[None]:
    before = _brief.set(True)
    yield
    _brief.reset(before)


@pytest.fixture
def servers() -> Iterator[Servers]:
    made = Servers()
    yield made
    made.over.set()


@pytest.mark.parametrize("what", ["opening", "store"])
def test_h562_a_store_that_says_nothing_ends_the_wait(servers: Servers, what: str) -> None:
    """Its own client gave up after a minute and a half, of two seconds that somebody had."""
    waits = servers.waits()
    servers.silent = {what}
    with pytest.raises(SinkError, match=r"the store of cache has not answered within 0\.05 s"):
        waits.wait("cache", 50, timeout_s=0)
    servers.silent = set()
    assert waits.wait("cache", 50, timeout_s=0).lsn == 50, "opened anew"
    assert (servers.opened, servers.briefly_opened) == (2, True)


def test_h562_a_store_gone_silent_is_opened_anew(servers: Servers) -> None:
    waits = servers.waits()
    assert waits.wait("cache", 50, timeout_s=0).lsn == 50
    servers.silent = {"current", "close"}
    with pytest.raises(SinkError, match="has not answered"):
        waits.wait("cache", 50, timeout_s=0)
    with waits:
        assert waits.wait("cache", 50, timeout_s=0).lsn == 50
    assert servers.opened == 2


def test_h562_a_log_that_says_nothing_is_not_waited_for(servers: Servers) -> None:
    """The store's own word counts, with a warning, as where no broker answers. A token needs none."""
    servers.silent = {"log", "letters", "topics"}
    waits = servers.waits()
    assert waits.wait("cache", 50, timeout_s=0).lsn == 50
    assert waits.unsure.endswith("cache is in epoch 2: Kafka has not answered within 0.05 s")
    with pytest.raises(LogError, match="Kafka has not answered"):
        waits.wait("cache", 51, timeout_s=0)
    assert waits.wait("cache", Token.parse("7/1:0/32"), timeout_s=0).lsn == 50
    with pytest.raises(LogError, match="Kafka has not answered"):
        waits.wait("cache", 50, timeout_s=0, table="t")
    assert list(waits.waiting("cache")) == [
        "not known whether cache holds back a key: Kafka has not answered within 0.05 s"
    ]


def test_h562_so_many_calls_are_left_behind_and_no_more() -> None:
    over, calls = threading.Event(), BoundedCalls("test")

    def asked(call: Callable[[], object]) -> bool:
        try:
            calls.within(30.0 if over.is_set() else 0.01, call)
        except Unanswered:
            return False
        return True

    assert not any([asked(lambda: over.wait(60)) for _ in range(MOST_LEFT)])
    assert not asked(lambda: None), "not begun"
    over.set()
    for thread in [thread for thread in threading.enumerate() if thread.name == "test"]:
        thread.join(60)
    assert asked(lambda: None)
    calls.end()


def test_an_error_of_a_call_is_its_own() -> None:
    calls = BoundedCalls("test")
    with pytest.raises(TimeoutError, match="mine"):
        calls.within(30.0, _fail)
    assert calls.within(30.0, threading.current_thread).name == "test"
    calls.end()


def _fail() -> None:
    raise TimeoutError("mine")
