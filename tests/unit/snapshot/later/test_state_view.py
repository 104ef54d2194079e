"""What the state topic says of requests: commands are records of their own, and what is no request is passed over."""

from __future__ import annotations

from dataclasses import replace

import orjson

from cdc.record.state import CommandState, ReadingState, RequestState, requests_of
from snapshot.later.planner import StateView

FIRST = RequestState(id="snapshot:public.t", table="public.t", after_lsn=10, reason="asked", serial=1)
NEWER = replace(FIRST, after_lsn=90, reason="was rewritten", serial=2)


def command(state: str, serial: int = 1) -> CommandState:
    return CommandState(id=FIRST.id, serial=serial, state=state)


def heard(*documents: RequestState | CommandState | ReadingState) -> StateView:
    found = StateView()
    for document in documents:
        found.apply(document.key(), document.to_json())
    return found


def test_h99_a_wish_never_takes_the_place_of_a_newer_request() -> None:
    """Whoever pauses has read the first request; the watch writes a newer one meanwhile."""
    state = heard(FIRST, NEWER, command("paused"))
    assert state.requests_now() == [NEWER]
    assert requests_of(state.records) == [NEWER]
    assert state.stale_commands() == [command("paused")]


def test_a_wish_counts_for_its_request_until_that_is_over() -> None:
    state = heard(FIRST, command("paused"))
    assert state.requests_now() == requests_of(state.records) == [replace(FIRST, state="paused")]
    state.apply(command("asked").key(), command("asked").to_json())
    assert state.requests_now() == [FIRST]
    assert state.stale_commands() == []
    for key, value in state.removals(FIRST.id, 1):
        state.apply(key, value)
    assert (state.requests_now(), state.commands, state.stale_commands()) == ([], {}, [])
    assert heard(NEWER, command("cancelled")).removals(FIRST.id, 1) == [(command("cancelled").key(), None)]


def test_h111_what_is_no_request_is_passed_over() -> None:
    state = heard(FIRST)
    key = FIRST.key()
    for value in (b"{", b"[]", b'{"id": 1}', orjson.dumps({**orjson.loads(FIRST.to_json()), "state": "wild"})):
        state.apply(key, value)
        assert state.requests_now() == []
        assert requests_of({key: value}) == []
    state.apply(b"no JSON", b"no JSON")
    state.apply(b"[1]", b"{}")
    state.apply(command("asked").key(), b'{"id": "x", "serial": 1, "state": "wild"}')
    assert (state.requests_now(), state.commands) == ([], {})
    state.apply(b"no JSON", None)
    assert b"no JSON" not in state.records


def test_a_reading_that_is_removed_is_named() -> None:
    reading = ReadingState(id="r", table="public.t", serial=1, epoch=1)
    state = heard(reading)
    assert state.states == {"r": reading}
    assert state.apply(reading.key(), None) == "r"
    assert state.states == {}
    assert state.apply(FIRST.key(), None) == ""
