"""Dead letters: what a store did not take, whole, with where it came from and why, on ``<name>.dead``.

One record per letter, in the order in which its key met them. Never compacted. The record's key and value are
the refused record's own. Headers named ``dead.…`` say the rest, and the refused record's headers follow them.
Among the letters stand what an operator asks for and the answers to it: see :mod:`cdc.operate.letter_orders`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from cdc.record.documents import FIRST, require_format
from cdc.wire.format import OP, TRUNCATE_OP

_PREFIX = "dead."
_FLOOR_OP = TRUNCATE_OP.encode()
Parking = tuple[int, int]
"""(partition, offset) of the first letter of a key that waits"""
CAPTURE = "(capture)"
"""In the place of a sink's name: capture itself put the record aside, so no store has it."""
RecordHeaders = Sequence[tuple[str, bytes | None]]


class Why(StrEnum):
    """The reason for which a letter was written."""

    REFUSED = "refused"
    """The store does not take the record. Its key is parked from here on."""
    BEHIND = "behind"
    """A later event of a parked key: it waits its turn."""
    UNREADABLE = "unreadable"
    """Not a record of ours: it has no place in any order, so no key waits for it."""
    OVERSIZED = "oversized"
    """Larger than its topic takes: the stores go on showing what was before, until the key's next change that fits."""
    RELEASED = "released"
    """Not a letter but its answer: the key's letters up to ``offset`` were applied or dropped."""
    HELD = "held"
    """Not a letter: the answer to an order that changed nothing, or not all. ``reason`` says why."""
    RETRY = "retry"
    """Not a letter but an order: apply what waits."""
    DROP = "drop"
    """Not a letter but an order: forget what waits."""

    @property
    def is_letter(self) -> bool:
        """Whether it is a record that was put aside. Orders and their answers are not."""
        return self in (Why.REFUSED, Why.BEHIND, Why.UNREADABLE, Why.OVERSIZED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that ``sink`` could not carry, from ``topic``, ``partition``, ``offset``. ``reason`` is one sentence."""

    sink: str
    why: Why
    topic: str
    partition: int
    offset: int
    reason: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def parks(self) -> bool:
        """Whether later events of this key have to wait. A floor's key stands for a table, not for a row."""
        return self.why in (Why.REFUSED, Why.BEHIND) and dict(self.headers).get(OP) != _FLOOR_OP

    @property
    def address(self) -> str:
        """Where the record stands: ``shop.public.orders/0/4711``."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    def record_headers(self) -> list[tuple[str, bytes | None]]:
        """The headers of its record on ``<name>.dead``."""
        own: list[tuple[str, bytes | None]] = [
            (f"{_PREFIX}sink", self.sink.encode()),
            (f"{_PREFIX}why", self.why.value.encode()),
            (f"{_PREFIX}topic", self.topic.encode()),
            (f"{_PREFIX}partition", str(self.partition).encode()),
            (f"{_PREFIX}offset", str(self.offset).encode()),
            (f"{_PREFIX}reason", self.reason.encode()),
            (_FORMAT, b"%d" % FIRST),
            (_FOLLOWING, b"%d" % len(self.headers)),
        ]
        return own + list(self.headers)

    @classmethod
    def from_record(cls, key: bytes | None, value: bytes | None, headers: RecordHeaders) -> DeadLetter:
        """Read a record back. ValueError or KeyError on one that is no dead letter, FormatError on one of another
        format."""
        own = _own_count(headers)
        said = {name.removeprefix(_PREFIX): (text or b"").decode() for name, text in headers[:own]}
        return cls(
            sink=said["sink"],
            why=Why(said["why"]),
            topic=said["topic"],
            partition=int(said["partition"]),
            offset=int(said["offset"]),
            reason=said["reason"],
            key=key,
            value=value,
            headers=tuple(headers[own:]),
        )


class DeadLetters(Protocol):
    """``<name>.dead``. LogError when the broker does not answer."""

    def read(self) -> Iterable[DeadLetter]:
        """Every letter, in order, as far as the topic's end at the call."""

    def write(self, letters: Iterable[DeadLetter]) -> None:
        """Append and return when the broker holds them all. LogError otherwise."""


class LetterFeed(Protocol):
    """``<name>.dead``, followed from its end at the opening."""

    def poll(self, timeout_s: float) -> list[DeadLetter]:
        """Letters, orders and answers since the last call, in order. Waits for the first at most so long."""

    def close(self) -> None:
        """End the connection to the brokers."""


_OWN = ("sink", "why", "topic", "partition", "offset", "reason")
_FORMAT = f"{_PREFIX}format"
_FOLLOWING = f"{_PREFIX}headers"
"""How many headers of the refused record follow: what stands between this and the others is not known."""


def _own_count(headers: RecordHeaders) -> int:
    """How many of a letter's headers are its own. ValueError for no letter, FormatError for one of another format."""
    first = len(_OWN)
    if len(headers) <= first or headers[first][0] != _FORMAT:
        raise ValueError("no header with the format of a dead letter")
    require_format(int(headers[first][1] or b""), "a dead letter")
    following = next((text for name, text in headers[first:] if name == _FOLLOWING), None)
    return max(first, len(headers) - int(following or b""))


class Parked:
    """The keys of one sink that wait, and the records that are parked already, so that a replay parks none twice.

    A released key is forgotten: should it come again and be refused again, it is parked again.
    """

    def __init__(self, sink: str, letters: Iterable[DeadLetter] = ()) -> None:
        self._sink = sink
        self._keys: dict[tuple[str, bytes], set[Parking]] = {}
        self._loose: set[tuple[str, int, int]] = set()
        self._firsts: dict[str, dict[bytes, Parking]] = {}
        self.add(letters)

    def add(self, letters: Iterable[DeadLetter]) -> None:
        """Take letters in the order of the topic. Those of other sinks pass."""
        for letter in letters:
            if letter.sink != self._sink:
                continue
            if letter.why is Why.RELEASED:
                self._release(letter)
            elif letter.parks and letter.key is not None:
                here = (letter.partition, letter.offset)
                self._keys.setdefault((letter.topic, letter.key), set()).add(here)
                firsts = self._firsts.setdefault(letter.topic, {})
                # A replay may bring an earlier record after a later one.
                firsts[letter.key] = min(here, firsts.get(letter.key, here))
            elif letter.why.is_letter:
                self._loose.add(place(letter))

    def fresh(self, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        """Those that are not on the topic yet, in the order of their partition."""
        new = {place(letter): letter for letter in letters if not self._holds(letter)}
        return [new[where] for where in sorted(new)]

    def waits(self, topic: str, key: bytes | None) -> bool:
        """Whether a key is parked."""
        return key is not None and (topic, key) in self._keys

    def keys(self) -> dict[str, list[bytes]]:
        """topic -> parked keys."""
        return {topic: list(firsts) for topic, firsts in self.firsts().items()}

    def firsts(self) -> Mapping[str, Mapping[bytes, Parking]]:
        """topic -> key -> from where on it waits. As it is now and will be: :meth:`snapshot` for another thread."""
        return self._firsts

    def snapshot(self) -> dict[str, dict[bytes, Parking]]:
        """The same as plain data that stays as it is, for a task. Takes as long as there are keys."""
        return {topic: dict(firsts) for topic, firsts in list(self._firsts.items())}

    def __len__(self) -> int:
        return len(self._keys)

    def _holds(self, letter: DeadLetter) -> bool:
        waiting = self._keys.get((letter.topic, letter.key), ()) if letter.key is not None else ()
        return (letter.partition, letter.offset) in waiting or place(letter) in self._loose

    def _release(self, answer: DeadLetter) -> None:
        self._loose.discard(place(answer))
        places = self._keys.get((answer.topic, answer.key)) if answer.key is not None else None
        if answer.key is not None and places is not None:
            left = {one for one in places if not _answered(one, answer)}
            if left:
                self._keys[(answer.topic, answer.key)] = left
                self._firsts[answer.topic][answer.key] = min(left)
            else:
                del self._keys[(answer.topic, answer.key)]
                del self._firsts[answer.topic][answer.key]
                if not self._firsts[answer.topic]:
                    del self._firsts[answer.topic]


def place(letter: DeadLetter) -> tuple[str, int, int]:
    """Where the record stands: topic, partition, offset."""
    return (letter.topic, letter.partition, letter.offset)


class Waiting:
    """The letters that have not been released, whole, each record once. Of every sink."""

    def __init__(self, letters: Iterable[DeadLetter] = ()) -> None:
        self._groups: dict[tuple[str, str, bytes | None], dict[Parking, DeadLetter]] = {}
        self.add(letters)

    def add(self, letters: Iterable[DeadLetter]) -> None:
        """Take letters and answers in the order of the topic."""
        for letter in letters:
            group = self._groups.setdefault((letter.sink, letter.topic, letter.key), {})
            here = (letter.partition, letter.offset)
            if letter.why.is_letter:
                group.setdefault(here, letter)
            elif letter.why is Why.RELEASED:
                for where, one in list(group.items()):
                    if where == here or (one.parks and _answered(where, letter)):
                        del group[where]

    def beside(self, letter: DeadLetter) -> list[DeadLetter]:
        """Those of the same sink, topic and key, oldest first."""
        return list(self._groups.get((letter.sink, letter.topic, letter.key), {}).values())

    def every(self) -> list[DeadLetter]:
        """All of them, key by key, oldest first."""
        return [letter for group in self._groups.values() for letter in group.values()]


def waiting(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """The letters that have not been released, whole, each record once, oldest first. Of every sink."""
    return Waiting(letters).every()


def _answered(where: Parking, answer: DeadLetter) -> bool:
    return where[0] == answer.partition and where[1] <= answer.offset
