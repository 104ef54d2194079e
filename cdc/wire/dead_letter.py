"""Dead letters: what a store did not take, whole, with where it came from and why, on ``<name>.dead``.

One record per letter, in the order in which its key met them. Never compacted. The record's key and value are
the refused record's own. Headers named ``dead.…`` say the rest, and the refused record's headers follow them.

Among the letters stand an operator's orders and the answers to them. ``cdc dead retry`` and ``drop`` write an order for
each key. The application that feeds the store carries it out between two batches, because nobody else knows what the
key has coming, and answers on the same topic. An order that nobody hears stays: the next ``cdc sink`` finds it
unanswered. One answer is one record, so an order is either answered, with the key's letters released, or it is carried
out once more, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
OUTBOX = "(outbox)"
"""Beside it: what capture refused of the outbox."""
RecordHeaders = Sequence[tuple[str, bytes | None]]


def events_address(name: str) -> str:
    """In the place of a topic's name: what a pipeline refused of its outbox was never in one."""
    return f"{name}.outbox"


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


_ID = "order"
MOST_TRIES = 20
"""How many versions of a key, newest first, a retry tries before it gives the key up."""
Refusals = Mapping[tuple[str, int, int], str]
"""(topic, partition, offset) of the records that a store refused, and why."""
Apply = Callable[[Sequence[DeadLetter]], Refusals]


def order(letter: DeadLetter, why: Why, identity: str) -> DeadLetter:
    """An order about a letter: about its whole key where it parks one. ``why``: RETRY or DROP."""
    return replace(letter, why=why, reason="asked by an operator", value=None, headers=((_ID, identity.encode()),))


def identity_of(letter: DeadLetter) -> str | None:
    """The identity of an order, or of the order that an answer is about. None for a letter."""
    order_id = None if letter.why.is_letter else dict(letter.headers).get(_ID)
    return order_id.decode() if order_id is not None else None


def drop_by_hand(letter: DeadLetter) -> DeadLetter:
    """The answer that releases a letter which no store has in mind."""
    return _answer(letter, Why.RELEASED, f"dropped: {_events([letter])}", "")


class Orders:
    """The orders to one sink that are not answered yet."""

    def __init__(self, sink: str, letters: Iterable[DeadLetter] = ()) -> None:
        self._sink = sink
        self._open: dict[str, DeadLetter] = {}
        self._answered: set[str] = set()
        self.add(letters)

    def add(self, letters: Iterable[DeadLetter]) -> None:
        """Take what the topic says, in any order and any number of times."""
        for letter in letters:
            identity = identity_of(letter) if letter.sink == self._sink else None
            if identity is None:
                continue
            if letter.why in (Why.RELEASED, Why.HELD):
                self._answered.add(identity)
                self._open.pop(identity, None)
            elif identity not in self._answered:
                self._open.setdefault(identity, letter)

    def open(self) -> list[DeadLetter]:
        """Oldest first."""
        return list(self._open.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """An order, and the waiting letters that it is about, oldest first."""

    order: DeadLetter
    letters: Sequence[DeadLetter]


def queues(orders: Sequence[DeadLetter], letters: Waiting) -> list[Queue]:
    """The queue of each order, in as many steps as they have letters. ``letters``: all of the topic."""
    found: list[Queue] = []
    for one in orders:
        same = letters.beside(one)
        about = next((letter for letter in same if place(letter) == place(one)), None)
        if about is not None and not about.parks:
            mine = [about]
        else:
            mine = sorted((letter for letter in same if letter.parks), key=place)
        found.append(Queue(order=one, letters=mine))
    return found


def carry_out(asked: Sequence[Queue], apply: Apply) -> list[DeadLetter]:
    """Carry orders out. Returns the answers, to be written when what was applied shows.

    ``apply`` is given letters of many keys: it applies the newest of each and says which it refused. Of a key whose
    newest is refused the one before it is tried, and so on. Letters before all refused ones are then released.
    """
    applied, why = _retried([queue for queue in asked if queue.order.why is Why.RETRY], apply)
    answers: list[DeadLetter] = []
    for queue in asked:
        identity = identity_of(queue.order) or ""
        if not queue.letters:
            answers.append(_answer(queue.order, Why.HELD, "nothing waits under this key any more", identity))
        elif queue.order.why is Why.DROP:
            answers.append(_answer(queue.letters[-1], Why.RELEASED, f"dropped: {_events(queue.letters)}", identity))
        else:
            done = applied[identity]
            left = len(queue.letters) - len(done)
            if not left:
                answers.append(_answer(done[-1], Why.RELEASED, f"applied: {_events(done)}", identity))
                continue
            if done:
                answers.append(_answer(done[-1], Why.RELEASED, f"applied: {_events(done)}", ""))
            answers.append(_answer(queue.order, Why.HELD, why[identity], identity))
    return answers


def _retried(asked: Sequence[Queue], apply: Apply) -> tuple[dict[str, Sequence[DeadLetter]], dict[str, str]]:
    """By order: the letters that were applied, and why the rest was not."""
    applied: dict[str, Sequence[DeadLetter]] = {}
    why: dict[str, str] = {}
    left = {identity_of(queue.order) or "": list(queue.letters) for queue in asked}
    for _ in range(MOST_TRIES):
        trying = {identity: letters for identity, letters in left.items() if letters and identity not in applied}
        if not trying:
            break
        refused = apply([letter for letters in trying.values() for letter in letters])
        for identity, letters in trying.items():
            bad = [number for number, letter in enumerate(letters) if place(letter) in refused]
            if not bad:
                applied[identity] = letters
                continue
            why.setdefault(identity, refused[place(letters[bad[-1]])])
            left[identity] = letters[: bad[0]]
    return {identity: applied.get(identity, ()) for identity in left}, why


def _answer(about: DeadLetter, why: Why, reason: str, identity: str) -> DeadLetter:
    headers = ((_ID, identity.encode()),) if identity else ()
    return replace(about, why=why, reason=reason, value=None, headers=headers)


def _events(letters: Sequence[DeadLetter]) -> str:
    return "1 event" if len(letters) == 1 else f"{len(letters)} events"
