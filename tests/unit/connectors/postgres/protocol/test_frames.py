"""Frames of the replication session: vectors from the protocol's documentation, and what feedback may say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import DecodeError
from connectors.postgres.protocol.frames import Feedback, keepalive, status

LSN = st.integers(0, 2**64 - 1)


def test_keepalive_is_read() -> None:
    frame = b"k" + (0x16B3D48).to_bytes(8, "big") + (5).to_bytes(8, "big") + b"\x01"
    assert keepalive(frame) == (0x16B3D48, 946_684_800_000_005, True)


@given(st.binary(max_size=40).filter(lambda frame: len(frame) != 18))
def test_keepalive_of_another_length_is_refused(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        keepalive(frame)


def test_status_has_the_three_positions_the_clock_and_the_wish() -> None:
    frame = status(written=3, flushed=2, now_ns=(946_684_800 * 10**9) + 7000, reply=True)
    numbers = [int.from_bytes(frame[at : at + 8], "big") for at in (1, 9, 17, 25)]
    assert (frame[:1], numbers, frame[33:]) == (b"r", [3, 2, 2, 7], b"\x01")


@given(LSN, st.lists(st.tuples(st.booleans(), LSN)))
def test_h1_h3b_flushed_is_what_was_stored_not_what_was_received(start: int, steps: list[tuple[bool, int]]) -> None:
    feedback, held = Feedback(start), start
    for is_held, lsn in steps:
        if is_held:
            feedback.hold(lsn)
            held = max(held, lsn)
        else:
            feedback.receive(lsn)
        frame = feedback.status(946_684_800 * 10**9, reply=False)
        flushed, applied = (int.from_bytes(frame[at : at + 8], "big") for at in (9, 17))
        assert flushed == applied == held
        assert int.from_bytes(frame[1:9], "big") >= flushed
