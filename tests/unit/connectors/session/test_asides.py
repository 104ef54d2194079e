"""What the state topic says of a table that is set aside, and that progress never passes it before (H119)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cdc.process.clock import ManualClock
from cdc.record.position import Position
from cdc.record.state import requests_of
from cdc.record.tables_aside import CannotFollow, Cause, TableState, left_out
from connectors.session.asides import SetAside
from tests.memory_log import MemoryCompactedTopic
from tests.unit.connectors.session.noting import NAME, SHAPE, WHY, by_hand, noted, reread, set_aside


def test_h119_a_table_goes_from_aside_to_reading_to_following() -> None:
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    found = noted(state)
    assert found is not None
    assert (found.state, found.cause, found.since_lsn, found.xid) == (TableState.ASIDE, Cause.CHANGED, 800, 7)
    assert found.sentence() == (
        f"{NAME} is set aside, and lacks changes until it is read again: its key is another one; give it back"
    )
    asides.set_aside(SHAPE.table, WHY, 900, 8)
    assert noted(state) == found, "what it lacks began at the first"
    # Another session takes it up from there.
    asides = set_aside(state)
    assert asides.hindrance(by_hand(5)) == found.sentence()
    asides.remedy(NAME, 7)
    assert asides.remedied() == [(NAME, 7)]
    assert not asides.followed(NAME, 7)
    asides.resume(NAME, 1000, 7)
    assert asides.followed(NAME, 7)
    reading = noted(state)
    assert reading is not None
    assert (reading.state, reading.from_lsn, reading.since_lsn) == (TableState.READING, 1000, 800)
    (request,) = requests_of(state.read())
    assert (request.table, request.after_lsn, request.whole) == (NAME, 1000, True)
    assert asides.hindrance(request) == ""
    asides.read(reread("done", 900))
    assert noted(state) == reading, "that reading began before the table was followed again"
    asides.read(reread("done", 1000))
    assert noted(state) is None
    assert not asides.documents


def test_h119_what_is_noted_is_asked_for_each_time() -> None:
    state = MemoryCompactedTopic()
    set_aside(state).set_aside(SHAPE.table, WHY, 800, 7)
    asides = set_aside(state)
    of = asides.of
    found = of(NAME)
    assert found is not None
    assert found.state is TableState.ASIDE
    asides.resume(NAME, 1000)
    found = of(NAME)
    assert found is not None
    assert found.state is TableState.READING, "its changes are carried again, in this session too"
    asides.read(reread("done", 1000))
    assert of(NAME) is None


def test_h119_what_was_dropped_is_not_written_behind_its_reading() -> None:
    """Another table held progress back: a start brings the changes again that were dropped before the reading."""
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(SHAPE.table, WHY, 800, 7)

    def seen(found: dict[int, Position], after_lsn: int = 500) -> dict[int, Position]:
        return set_aside(state).seen(found, after_lsn, {NAME: SHAPE.topic}.get, {SHAPE.topic: (3, 2)}.__getitem__)

    assert seen({}) == {}
    asides.resume(NAME, 1008)
    until, later = Position(1, 1000, 0xFFFFFFFF), Position(1, 1016, 3)
    assert seen({}) == {3: until, 4: until}
    assert seen({}, 1000) == {3: until, 4: until}, "commits at that place come again"
    assert not left_out(state.read(), 2), "an epoch begins anew"
    assert seen({1: later, 3: later}) == {1: later, 3: later, 4: until}
    over = reread("done", 1024)
    state.write([(over.key(), over.to_json())])
    asides.read(over)
    assert noted(state) is None
    until = Position(1, 1024, 0xFFFFFFFF)
    assert seen({3: later}) == {3: until, 4: until}, "the table is followed, and what was dropped still comes again"
    assert seen({3: later}, 1025) == {3: later}, "progress is behind it"


def test_h119_a_reading_at_the_next_place_for_a_commit_counts() -> None:
    """A keepalive may end anywhere; commits, and so the floors of readings, lie at multiples of eight."""
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    asides.resume(NAME, 1005)
    asides.read(reread("done", 992))
    assert noted(state) is not None
    asides.read(reread("done", 1000))
    assert noted(state) is None


def test_h119_a_reading_that_ended_unseen_ends_it_too() -> None:
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    asides.resume(NAME, 1000)
    over = reread("done", 1008)
    state.write([(over.key(), over.to_json())])
    again = set_aside(state)
    assert not again.documents
    again.write_notes()
    assert not [key for key in state.read() if b'"aside"' in key]


def test_h120_a_reading_that_fails_sets_the_table_aside_again() -> None:
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    asides.resume(NAME, 1000)
    asides.read(reread("failed", 1008))
    found = noted(state)
    assert found is not None
    assert (found.state, found.cause, found.since_lsn) == (TableState.ASIDE, Cause.NOT_READABLE, 800)
    assert asides.pending() == [], "not at once again"


def test_h120_an_operator_who_asks_takes_the_key_as_it_is() -> None:
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    asides.hindrance(by_hand(5, where="id = 3"))
    assert not asides.asked(NAME), "some rows are not the table"
    asides.hindrance(by_hand(5))
    assert asides.asked(NAME)
    asides.resume(NAME, 1000)
    found = noted(state)
    assert found is not None
    assert found.new_key
    asides.set_aside(SHAPE.table, WHY, 1100, 9)
    found = noted(state)
    assert found is not None
    assert found.since_lsn == 800, "it was not read in between"
    asides.hindrance(by_hand(5))
    assert not asides.asked(NAME), "one wish is tried once"
    asides.hindrance(by_hand(6))
    assert asides.asked(NAME)


def test_h119_the_request_is_written_before_its_note() -> None:
    """A crash between the two records leaves a table that is aside, and not one that nobody reads."""
    written: list[bytes] = []

    class Ordered(MemoryCompactedTopic):
        def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
            found = list(records)
            written.extend(key for key, _ in found)
            super().write(found)

    asides = set_aside(Ordered())
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    written.clear()
    asides.resume(NAME, 1000)
    assert [b'"request"' in key for key in written] == [True, False]


def test_h120_repeated_failures_are_retried_less_and_less_often() -> None:
    clock = ManualClock()
    asides = SetAside(MemoryCompactedTopic(), {}, epoch=1, clock=clock)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    waits = []
    for _ in range(9):
        asides.resume(NAME, 1000)
        asides.read(replace(reread("failed", 1008), id=f"snapshot:{NAME}:where:1"))
        assert asides.pending() == []
        assert asides.documents[NAME].state is TableState.READING, "another reading's failure is not this one's"
        asides.read(reread("failed", 1008))
        began_s = clock.monotonic()
        while not asides.pending():
            clock.advance(1)
        waits.append(clock.monotonic() - began_s)
    assert waits == [3, 6, 12, 24, 48, 96, 192, 300, 300]
    asides.resume(NAME, 1000)
    asides.read(reread("done", 1008))
    asides.set_aside(SHAPE.table, WHY, 1100, 8)
    assert [one.table for one in asides.pending()] == [NAME], "it was followed: another cause is another matter"


def test_h120_only_an_operators_reading_takes_another_key() -> None:
    state, taken = MemoryCompactedTopic(), dict[str, bool]()
    asides = SetAside(state, {}, epoch=1, clock=ManualClock(), accept=taken.__setitem__)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    asides.resume(NAME, 1000)
    assert taken == {NAME: False}, "nobody asked"
    asides.set_aside(SHAPE.table, WHY, 1100, 8)
    asides.hindrance(by_hand(5))
    asides.resume(NAME, 1200)
    assert taken == {NAME: True}
    taken.clear()
    asides = SetAside(state, state.read(), epoch=1, clock=ManualClock(), accept=taken.__setitem__)
    assert taken == {NAME: True}, "another session goes on with it"
    asides.set_aside(SHAPE.table, WHY, 1300, 9)
    assert taken == {NAME: False}, "the next key is another wish"


def test_h119_a_table_that_waits_is_named_and_forgotten() -> None:
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.note_waiting(NAME, 800)
    assert noted(state) is None, "the loop does not wait for the brokers"
    asides.write_notes()
    found = noted(state)
    assert found is not None
    assert (found.state, found.due) == (TableState.WAITING, False)
    assert asides.hindrance(by_hand(5)) == found.sentence()
    restarted = set_aside(state)
    assert not restarted.documents, "what waited comes again"
    restarted.write_notes()
    assert noted(state) is None
    asides.waits_no_more(NAME)
    assert not asides.documents


def test_h120_a_history_is_not_noted() -> None:
    state = MemoryCompactedTopic()
    with pytest.raises(CannotFollow):
        set_aside(state, histories=[NAME]).set_aside(SHAPE.table, WHY, 800, 7)
    assert state.read() == {}
