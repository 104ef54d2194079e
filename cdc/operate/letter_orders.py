"""Orders of an operator about dead letters, and the answers: records among the letters of ``<name>.dead``.

``cdc dead retry`` and ``drop`` write an order for each key. The application that feeds the store carries it out
between two batches, because nobody else knows what the key has coming, and answers on the same topic. An order
that nobody hears stays: the next ``cdc sink`` finds it unanswered. One answer is one record, so an order is either
answered, with the key's letters released, or it is carried out once more, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cdc.wire.dead_letter import DeadLetter, Waiting, Why, place

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
