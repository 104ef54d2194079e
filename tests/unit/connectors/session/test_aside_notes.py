"""A broker that is slow to answer, or does not: which tables are set aside is known all the same (H150)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cdc.process.errors import LogError
from cdc.record.tables_aside import AsideState, TableState
from cdc.record.topic_names import TableName
from connectors.session.asides import SessionAsides
from tests.memory_log import MemoryCompactedTopic
from tests.unit.connectors.session.noting import NAME, SHAPE, WHY, by_hand, noted, set_aside
from tests.waiting import wait_until


class Nothing:
    """An assembler without a table that waits."""

    oldest_waiting = None

    def announce_again(self, table: str, oid: int) -> None: ...

    def waiting(self) -> dict[TableName, int]:
        return {}

    def oldest_of(self, table: TableName) -> int | None:
        return None


class Away(MemoryCompactedTopic):
    """A topic of brokers that answer nothing while ``away``."""

    away = False

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        if self.away:
            raise LogError("the broker is away")
        super().write(records)


class Slow(MemoryCompactedTopic):
    """A topic whose brokers take each write only when they are let. ``begun`` counts the writes that wait or waited."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Semaphore(0)
        self.begun = 0
        self.order: list[tuple[bytes, bytes | None]] = []

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        found = list(records)
        self.begun += 1
        assert self.let.acquire(timeout=30)
        self.order += found
        super().write(found)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def test_h150_who_asks_does_not_wait_for_the_brokers(threads: ThreadPoolExecutor) -> None:
    state = Slow()
    asides = set_aside(state)
    rounds = SessionAsides(asides, Nothing(), {NAME: SHAPE.topic}.get)
    asides.remedy("public.other", 9)
    writing = threads.submit(asides.set_aside, SHAPE.table, WHY, 800, 7)
    wait_until(lambda: state.begun == 1, 10)
    asked: list[Callable[[], object]] = [
        lambda: asides.documents,
        lambda: rounds.lacking,
        lambda: asides.hindrance(by_hand(5)),
        asides.pending,
        asides.remedied,
        lambda: asides.remedy(NAME, 7),
        lambda: asides.note_waiting("public.third", 900),
        lambda: asides.waits_no_more("public.third"),
        lambda: rounds.turn(None, 1.0),
    ]
    try:
        for one in asked:
            threads.submit(one).result(10)
        assert not writing.done()
        assert asides.of(NAME) is None, "what no broker has is not so yet"
    finally:
        state.let.release()
    writing.result(10)
    assert asides.of(NAME) == noted(state)


def test_h150_documents_are_written_in_the_order_of_decisions(threads: ThreadPoolExecutor) -> None:
    state = Slow()
    asides = set_aside(state)
    asides.note_waiting(NAME, 800)
    notes = threads.submit(asides.write_notes)
    wait_until(lambda: state.begun == 1, 10)
    aside = threads.submit(asides.set_aside, SHAPE.table, WHY, 800, 7)
    asides.waits_no_more(NAME)
    for _ in range(2):
        state.let.release()
    notes.result(10)
    aside.result(10)
    asides.write_notes()
    assert [AsideState.from_json(value or b"").state for _, value in state.order] == [
        TableState.WAITING,
        TableState.ASIDE,
    ], "that it waits no more is not written behind why it is set aside"
    found = noted(state)
    assert found is not None
    assert found.state is TableState.ASIDE


def test_h150_a_note_that_no_broker_took_is_written_later() -> None:
    state = Away()
    asides = set_aside(state)
    asides.note_waiting(NAME, 800)
    state.away = True
    with pytest.raises(LogError):
        asides.write_notes()
    state.away = False
    asides.write_notes()
    assert noted(state) == asides.of(NAME)
    asides.waits_no_more(NAME)
    asides.write_notes()
    assert noted(state) is None
    assert state.writes == 2
    asides.write_notes()
    assert state.writes == 2, "nothing new is no write"
