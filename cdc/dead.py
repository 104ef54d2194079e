"""Dead letters: what a store did not take, whole, with where it came from and why, on ``<name>.dead``.

One record per letter, in the order in which its key met them; never compacted. The record's key and value are
the refused record's own; headers named ``dead.…`` say the rest, and the refused record's headers follow them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

_PREFIX = "dead."
_FLOOR_OP = b"t"
Parking = tuple[int, int]
"""(partition, offset) of the first letter of a key that waits"""
RecordHeaders = Sequence[tuple[str, bytes | None]]


class Why(StrEnum):
    """What a letter is."""

    REFUSED = "refused"
    """The store does not take the record; its key is parked from here on."""
    BEHIND = "behind"
    """A later event of a parked key: it waits its turn."""
    UNREADABLE = "unreadable"
    """Not a record of ours: it has no place in any order, so no key waits for it."""
    RELEASED = "released"
    """Not a letter but its answer: the key's letters up to ``offset`` were applied or dropped, it is free again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that ``sink`` could not carry, from ``topic``, ``partition``, ``offset``; ``reason`` is one sentence."""

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
        """Whether later events of this key have to wait; a floor's key stands for a table, not for a row."""
        return self.why in (Why.REFUSED, Why.BEHIND) and dict(self.headers).get("op") != _FLOOR_OP

    def record_headers(self) -> list[tuple[str, bytes | None]]:
        """The headers of its record on ``<name>.dead``."""
        own: list[tuple[str, bytes | None]] = [
            (f"{_PREFIX}sink", self.sink.encode()),
            (f"{_PREFIX}why", self.why.value.encode()),
            (f"{_PREFIX}topic", self.topic.encode()),
            (f"{_PREFIX}partition", str(self.partition).encode()),
            (f"{_PREFIX}offset", str(self.offset).encode()),
            (f"{_PREFIX}reason", self.reason.encode()),
        ]
        return own + list(self.headers)

    @classmethod
    def from_record(cls, key: bytes | None, value: bytes | None, headers: RecordHeaders) -> DeadLetter:
        """Read a record back; raises ValueError or KeyError on one that is no dead letter."""
        own = len(_OWN)
        said = {name.removeprefix(_PREFIX): (held or b"").decode() for name, held in headers[:own]}
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


_OWN = ("sink", "why", "topic", "partition", "offset", "reason")


class Parked:
    """The keys of one sink that wait, and the records that are parked already, so that a replay parks none twice."""

    def __init__(self, sink: str, letters: Iterable[DeadLetter] = ()) -> None:
        self._sink = sink
        self._first: dict[tuple[str, bytes], Parking] = {}
        self._last: dict[tuple[str, bytes], int] = {}
        self._places: set[tuple[str, int, int]] = set()
        self.add(letters)

    def add(self, letters: Iterable[DeadLetter]) -> None:
        """Take letters in the order of the topic; those of other sinks pass."""
        for letter in letters:
            if letter.sink != self._sink:
                continue
            if letter.why is Why.RELEASED:
                self._release(letter)
                continue
            self._places.add((letter.topic, letter.partition, letter.offset))
            if letter.parks and letter.key is not None:
                key, here = (letter.topic, letter.key), (letter.partition, letter.offset)
                self._first[key] = min(here, self._first.get(key, here))
                # A replay may tell of an earlier record after a later one.
                self._last[key] = max(letter.offset, self._last.get(key, -1))

    def fresh(self, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        """Those that are not on the topic yet, in the order of their partition."""
        new = {
            (letter.topic, letter.partition, letter.offset): letter
            for letter in letters
            if (letter.topic, letter.partition, letter.offset) not in self._places
        }
        return [new[place] for place in sorted(new)]

    def keys(self) -> dict[str, list[bytes]]:
        """topic -> parked keys."""
        return {topic: list(firsts) for topic, firsts in self.firsts().items()}

    def firsts(self) -> dict[str, dict[bytes, Parking]]:
        """topic -> key -> from where on it waits: plain data, for a task."""
        found: dict[str, dict[bytes, Parking]] = {}
        for (topic, key), first in self._first.items():
            found.setdefault(topic, {})[key] = first
        return found

    def __len__(self) -> int:
        return len(self._first)

    def _release(self, letter: DeadLetter) -> None:
        if letter.key is None or (letter.topic, letter.key) not in self._first:
            return
        key = (letter.topic, letter.key)
        if self._last[key] <= letter.offset:
            del self._first[key], self._last[key]
        else:
            self._first[key] = max(self._first[key], (letter.partition, letter.offset + 1))
