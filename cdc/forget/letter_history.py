"""The letters, orders and answers of one key on the dead letters' topic, and what of that topic is done with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cdc.dead import CAPTURE, DeadLetter, Why, place, waiting
from cdc.forget.key_history import FLOOR_KEYS
from cdc.forget.typed_key import TypedKey
from cdc.orders import identity_of
from cdc.schema import TableSchema
from cdc.wire.plain import PlainTable


class SeenLetter(NamedTuple):
    """One record of the topic. ``letter``: None for what is no letter, order or answer."""

    offset: int
    time_ms: int
    letter: DeadLetter | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterHistory:
    """``mine``: the records with the key, of any kind. ``waiting``: letters of it that nobody has dealt with.
    ``unclear``: letters that may hold something of the row: of its table, with a key that cannot be read, and documents
    of a view (H301).

    ``done_below``: the offset below which nothing is waited for: every letter is answered, and so is every order.
    ``ordered``: store and key of orders that nobody has answered yet.
    """

    mine: Sequence[SeenLetter]
    unclear: Sequence[SeenLetter]
    waiting: Sequence[DeadLetter]
    done_below: int
    ordered: Collection[tuple[str, bytes | None]] = ()

    @property
    def trimmable(self) -> bool:
        """Whether each record of the key, or that may be of the row, stands where nothing is waited for."""
        found = [*self.mine, *self.unclear]
        return bool(found) and all(one.offset < self.done_below for one in found)

    def orders(self, sinks: Iterable[str]) -> list[tuple[DeadLetter, Why]]:
        """The orders to the stores about the letters that wait, one for each key and store.

        A letter that parks the key is tried again, and not dropped: the delete waits behind it, or is it. ``sinks``:
        those that a query feeds.
        """
        asked = {*sinks, CAPTURE}
        mine = [one for one in self.waiting if one.sink in asked and (one.sink, one.key) not in self.ordered]
        parked = {(one.sink, one.key): one for one in mine if one.parks}
        loose = [one for one in mine if not one.parks]
        return [*((one, Why.RETRY) for one in parked.values()), *((one, Why.DROP) for one in loose)]


def letter_history(
    seen: Sequence[SeenLetter],
    key: TypedKey,
    shapes: Sequence[TableSchema],
    may_nest: Callable[[DeadLetter], bool] = lambda _letter: False,
) -> LetterHistory:
    """The key's part of the topic. ``seen``: all of it, in order. ``shapes``: every version of the table's shape.
    ``may_nest``: whether a letter is a document that may nest the row."""
    plain, topics = [PlainTable(shape) for shape in shapes], {shape.topic for shape in shapes}

    def is_mine(letter: DeadLetter) -> bool:
        return _is_of(letter, topics, key, plain)

    def is_unclear(letter: DeadLetter) -> bool:
        if letter.topic not in topics:
            return may_nest(letter)
        return letter.value is not None and not list(_texts(letter.key or b"", plain)) and not _is_floor(letter)

    letters = [one.letter for one in seen if one.letter is not None]
    answered = _answered(letters)
    left = waiting(letters)
    return LetterHistory(
        mine=[one for one in seen if one.letter is not None and is_mine(one.letter)],
        unclear=[one for one in seen if one.letter is not None and is_unclear(one.letter)],
        waiting=[one for one in left if is_mine(one)],
        ordered={(one.sink, one.key) for one in letters if _asks(one) and identity_of(one) not in answered},
        done_below=_done_below(seen, {(one.sink, *place(one)) for one in left}, is_mine),
    )


def _is_of(letter: DeadLetter, topics: Collection[str], key: TypedKey, plain: Sequence[PlainTable]) -> bool:
    """By any shape: a letter that nobody could read names none."""
    return letter.topic in topics and letter.key is not None and any(key.matches(t) for t in _texts(letter.key, plain))


def _is_floor(letter: DeadLetter) -> bool:
    return letter.key is not None and letter.key.startswith(FLOOR_KEYS)


def _texts(key: bytes, plain: Sequence[PlainTable]) -> Iterable[str]:
    for one in plain:
        try:
            yield one.key(key)
        except ValueError:
            continue


def _done_below(
    seen: Sequence[SeenLetter], left: set[tuple[str, str, int, int]], is_mine: Callable[[DeadLetter], bool]
) -> int:
    answered = _answered(one.letter for one in seen if one.letter is not None)
    for offset, _, letter in seen:
        # Of what is no letter nothing is known: it stays, and so does all behind it.
        if letter is None or _is_needed(letter, left, answered, is_mine):
            return offset
    return seen[-1].offset + 1 if seen else 0


def _is_needed(
    letter: DeadLetter,
    left: set[tuple[str, str, int, int]],
    answered: set[str | None],
    is_mine: Callable[[DeadLetter], bool],
) -> bool:
    if letter.why.is_letter and (letter.sink, *place(letter)) in left:
        return True
    if _asks(letter):
        return identity_of(letter) not in answered
    # A view that is built anew learns from it which row the log lacks, also when it was dropped.
    return letter.sink == CAPTURE and letter.why.is_letter and not is_mine(letter)


def _answered(letters: Iterable[DeadLetter]) -> set[str | None]:
    return {identity_of(one) for one in letters if not _asks(one)}


def _asks(letter: DeadLetter) -> bool:
    return letter.why in (Why.RETRY, Why.DROP)
