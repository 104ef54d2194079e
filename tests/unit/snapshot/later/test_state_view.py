"""What the state topic says of requests: wishes are records of their own, and what is no request is passed over."""

from __future__ import annotations

from dataclasses import replace

import orjson

from cdc.state import RequestState, RereadState, WishState, requests_of
from snapshot.later.state_view import Heard

FIRST = RequestState(id="snapshot:public.t", table="public.t", after_lsn=10, reason="asked", serial=1)
NEWER = replace(FIRST, after_lsn=90, reason="was rewritten", serial=2)


def wish(state: str, serial: int = 1) -> WishState:
    return WishState(id=FIRST.id, serial=serial, state=state)


def heard(*documents: RequestState | WishState | RereadState) -> Heard:
    found = Heard()
    for document in documents:
        found.hear(document.key(), document.to_json())
    return found


def test_h99_a_wish_never_takes_the_place_of_a_newer_request() -> None:
    """Whoever pauses has read the first request; the watch writes a newer one meanwhile."""
    state = heard(FIRST, NEWER, wish("paused"))
    assert state.wished() == [NEWER]
    assert requests_of(state.records) == [NEWER]
    assert state.void() == [wish("paused")]


def test_a_wish_counts_for_its_request_until_that_is_over() -> None:
    state = heard(FIRST, wish("paused"))
    assert state.wished() == requests_of(state.records) == [replace(FIRST, state="paused")]
    state.hear(wish("asked").key(), wish("asked").to_json())
    assert state.wished() == [FIRST]
    assert state.void() == []
    for key, value in state.over(FIRST.id, 1):
        state.hear(key, value)
    assert (state.wished(), state.wishes, state.void()) == ([], {}, [])
    assert heard(NEWER, wish("cancelled")).over(FIRST.id, 1) == [(wish("cancelled").key(), None)]


def test_h111_what_is_no_request_is_passed_over() -> None:
    state = heard(FIRST)
    key = FIRST.key()
    for value in (b"{", b"[]", b'{"id": 1}', orjson.dumps({**orjson.loads(FIRST.to_json()), "state": "wild"})):
        state.hear(key, value)
        assert state.wished() == []
        assert requests_of({key: value}) == []
    state.hear(b"no JSON", b"no JSON")
    state.hear(b"[1]", b"{}")
    state.hear(wish("asked").key(), b'{"id": "x", "serial": 1, "state": "wild"}')
    assert (state.wished(), state.wishes) == ([], {})
    state.hear(b"no JSON", None)
    assert b"no JSON" not in state.records


def test_a_reading_that_is_removed_is_named() -> None:
    reading = RereadState(id="r", table="public.t", serial=1, epoch=1)
    state = heard(reading)
    assert state.states == {"r": reading}
    assert state.hear(reading.key(), None) == "r"
    assert state.states == {}
    assert state.hear(FIRST.key(), None) == ""
