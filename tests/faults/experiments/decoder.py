"""Bytes that no server sends: recorded messages, changed where it hurts, are refused or say exactly what they say."""

from __future__ import annotations

import random
import resource
import signal
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import NoReturn

from cdc.process.errors import DecodeError
from connectors.postgres.protocol.pgoutput import decode
from tests.faults.lab import Found
from tests.faults.recorded import Field, fields, messages, stands_for

_MOST_OFFSETS = 96
_TIMEOUT_S = 20
"""Of processor time, so that a busy machine raises no alarm. A trial takes a second at most."""
_MOST_GROWTH_KB = 64 * 1024
_LENGTHS = (
    0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 127, 128, 255, 256, 1599, 1600, 32767, 32768, 65534, 65535, 65536,
    1 << 24, (1 << 30) - 1, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 2, (1 << 32) - 1,
)  # fmt: skip


def trial(seed: int, message: bytes | None = None) -> Mapping[str, int]:
    """One recorded message, changed in some ten thousand ways. One that the seed chooses unless given."""
    rng = random.Random(seed)
    message = message or rng.choice(messages())
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with _Deadline(seed):
        cut = sum(_refused(message[:length]) for length in range(len(message)))
        tried, refused = _all(changed(message, rng))
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    if grown_kb > _MOST_GROWTH_KB:
        raise Found(f"decoding {message[:40]!r} changed took {grown_kb} kB")
    return {"inputs": tried + cut, "refused": refused + cut, "cut short": cut}


class _Deadline:
    """Raises out of a decoder that hangs."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGPROF, self._late)
        signal.setitimer(signal.ITIMER_PROF, _TIMEOUT_S)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._before)

    def _late(self, _signal: int, _frame: FrameType | None) -> NoReturn:
        raise Found(f"decoding took more than {_TIMEOUT_S} s (seed {self._seed})")


def _refused(payload: bytes) -> int:
    try:
        message = decode(payload)
    except DecodeError:
        return 1
    raise Found(f"{payload[:60].hex()} cut short at {len(payload)} bytes was taken for {type(message).__name__}")


def _all(inputs: Iterator[bytes]) -> tuple[int, int]:
    """How many were tried, how many of them refused."""
    tried = refused = 0
    for payload in inputs:
        tried += 1
        try:
            message = decode(payload)
        except DecodeError:
            refused += 1
        else:
            if not stands_for(message, payload):
                raise Found(f"{payload.hex()} was taken for {message!r}")
    return tried, refused


def changed(message: bytes, rng: random.Random) -> Iterator[bytes]:
    """A message in some ten thousand other forms."""
    pieces = fields(message)
    yield from _every_byte(message, rng)
    yield from _every_length(message, pieces, rng)
    yield from _rearranged(message, pieces, rng)
    yield from _several(message, pieces, rng)


def _every_byte(message: bytes, rng: random.Random) -> Iterator[bytes]:
    """Each byte as each other byte."""
    places: list[int] | range = range(len(message))
    if len(message) > _MOST_OFFSETS:
        places = sorted(rng.sample(places, _MOST_OFFSETS))
    for at in places:
        before, after = message[:at], message[at + 1 :]
        for byte in range(256):
            yield b"%b%c%b" % (before, byte, after)


def _every_length(message: bytes, pieces: tuple[Field, ...], rng: random.Random) -> Iterator[bytes]:
    """Each count and length as numbers up to 2^32, those about the right one and some at random."""
    sized = [piece for piece in pieces if piece.what in ("count", "length", "number")]
    for at, width, _ in sized if len(sized) <= _MOST_OFFSETS else rng.sample(sized, _MOST_OFFSETS):
        before, after = message[:at], message[at + width :]
        right = int.from_bytes(message[at : at + width])
        most = 1 << 8 * width
        near = range(right - 8, right + 9)
        some = (rng.getrandbits(rng.randint(1, 8 * width)) for _ in range(16))
        for number in (*_LENGTHS, *near, len(after), len(after) - 1, len(message), *some):
            yield before + (number % most).to_bytes(width) + after


def _rearranged(message: bytes, pieces: tuple[Field, ...], rng: random.Random) -> Iterator[bytes]:
    """Fields left out, doubled, swapped, and taken from other messages."""
    others = messages()
    for piece in pieces if len(pieces) <= _MOST_OFFSETS else rng.sample(pieces, _MOST_OFFSETS):
        end = piece.at + piece.width
        before, own, after = message[: piece.at], message[piece.at : end], message[end:]
        yield before + after
        yield before + own + own + after
        yield before + b"\0" * piece.width + after
        yield before + b"\xff" * piece.width + after
        for _ in range(8):
            donor = rng.choice(others)
            field = rng.choice(fields(donor))
            yield before + donor[field.at : field.at + field.width] + after
            yield before + donor[field.at :]
    for _ in range(500):
        first, second = sorted(rng.sample(pieces, 2)) if len(pieces) > 1 else (pieces[0], pieces[0])
        middle = message[first.at + first.width : second.at]
        one, two = message[first.at : first.at + first.width], message[second.at : second.at + second.width]
        yield message[: first.at] + two + middle + one + message[second.at + second.width :]


def _several(message: bytes, pieces: tuple[Field, ...], rng: random.Random) -> Iterator[bytes]:
    """Two to five changes at once."""
    size = len(message)
    for _ in range(2_000):
        changed = bytearray(message)
        for _ in range(rng.randint(2, 5)):
            at = rng.randrange(size)
            match rng.randrange(4):
                case 0:
                    changed[at : at + 1] = bytes((rng.randrange(256),))
                case 1:
                    piece = rng.choice(pieces)
                    changed[piece.at : piece.at + piece.width] = rng.randbytes(piece.width)
                case 2:
                    changed[at : at + rng.randint(0, 8)] = b""
                case _:
                    changed[at:at] = rng.randbytes(rng.randint(1, 8))
        yield bytes(changed)
