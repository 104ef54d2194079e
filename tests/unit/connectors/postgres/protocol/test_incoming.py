"""The server's messages behind START_REPLICATION, in any pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import DecodeError
from connectors.postgres.protocol.frames import COPY_BOTH, Incoming, ServerNotice
from connectors.postgres.protocol.oversized_fields import abridged
from tests.unit.connectors.postgres import written as w

LIMIT = 512 * 1024
KEEPALIVE = b"k" + bytes(17)


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + (len(body) + 4).to_bytes(4) + body


def fields(**by_letter: str) -> bytes:
    return b"".join(letter.encode() + text.encode() + b"\0" for letter, text in by_letter.items()) + b"\0"


def read(incoming: Incoming, data: bytes, most: int = 1000) -> list[bytes]:
    """All frames that are complete now."""
    incoming.feed(data)
    found: list[bytes] = []
    while frames := incoming.frames(most):
        assert len(frames) <= most
        found += frames
    return found


def quiet(said: ServerNotice) -> None:
    raise AssertionError(said)


# A list of numbers is short where it is shown: a keepalive, or a row with a value of so many bytes.
frames = st.lists(st.sampled_from([None, 0, 3, 40, 300_000, LIMIT + 1, LIMIT + 300_000]), max_size=6)


def framed(size: int | None) -> bytes:
    return KEEPALIVE if size is None else w.frame(w.insert(b"1", b"v" * size))


@given(frames, st.lists(st.integers(0, 1 << 40), max_size=10), st.integers(1, 4))
def test_frames_come_out_as_they_were_sent_in_any_pieces(sizes: list[int | None], cuts: list[int], most: int) -> None:
    told: list[ServerNotice] = []
    incoming = Incoming(LIMIT, told.append)
    sent = [framed(size) for size in sizes]
    data = b"".join(message(b"d", frame) + message(b"S", b"a\0b\0") for frame in sent)
    data += message(b"N", fields(S="WARNING", C="55000", M="of no use ")) + message(b"c")
    found = []
    # A frame that came in one piece has taken its memory already: what is read at once is less than the limit.
    cuts += range(0, len(data), LIMIT // 2)
    for start, end in pairwise([0, *sorted(cut % len(data) for cut in cuts), len(data)]):
        found += read(incoming, data[start:end], most)
    assert found == [frame if len(frame) <= LIMIT else abridged(frame, LIMIT) for frame in sent]
    assert told == [ServerNotice("55000", "of no use")]
    assert incoming.ended
    assert incoming.error is None


def test_a_keepalive_ends_its_list() -> None:
    incoming = Incoming(LIMIT, quiet)
    row = w.frame(w.insert(b"1", b"a"))
    incoming.feed(message(b"d", row) + message(b"d", KEEPALIVE) + message(b"d", row))
    assert [incoming.frames(9), incoming.frames(9), incoming.frames(9)] == [[row, KEEPALIVE], [row], []]


def test_the_copy_begins_before_any_frame_of_it_is_given() -> None:
    incoming = Incoming(LIMIT, quiet)
    incoming.feed(message(b"W", bytes(3)) + message(b"d", KEEPALIVE))
    assert incoming.frames(1) == []
    assert incoming.kinds == [COPY_BOTH]
    assert incoming.frames(1) == [KEEPALIVE]


def test_an_error_comes_by_its_state_behind_earlier_frames() -> None:
    incoming = Incoming(LIMIT, quiet)
    row = w.frame(w.insert(b"1", b"a"))
    error = message(b"E", fields(S="ERROR", V="ERROR", C="58P01", M="the slot is gone", F="slot.c"))
    assert read(incoming, message(b"d", row) + error + message(b"E", fields(C="57P01", M="later"))) == [row]
    assert incoming.ended
    assert incoming.error == ServerNotice("58P01", "the slot is gone")


@pytest.mark.parametrize("data", [message(b"T", b"\0\0"), b"HTTP/1.1 400 Bad Request\r\n\r\n", b"X\x7f\xff\xff\xff"])
def test_what_is_no_stream_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="something else than a stream"):
        read(Incoming(LIMIT, quiet), data)
