"""Counts the steps that a backtracking matcher needs, so that a bound on work needs no clock.

The matcher is as simple as can be: alternatives in order, repeats that give back one at a time. Python's own has
shortcuts on top of that, so what is counted here is the most that it does, but for its constant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

Takes = Callable[[int], bool]
_SPACE = frozenset(b" \t\n\r\f\v")
_DIGIT = frozenset(b"0123456789")


class TooMany(Exception):
    """A match took more steps than were allowed."""


class _Run(NamedTuple):
    """Of one class of characters, at least ``least`` and at most ``most``; ``give`` back, or not; ``lazy``."""

    takes: Takes
    least: int
    most: int
    give: bool
    lazy: bool


class _Split(NamedTuple):
    first: int
    second: int


class _Inner(NamedTuple):
    """A part with no way back into it: an atomic group, or a look around. ``wanted`` None: it is consumed."""

    program: Sequence[Any]
    wanted: bool | None
    behind: int


class _At(NamedTuple):
    what: Any


class Steps:
    """A pattern whose work can be counted."""

    def __init__(self, pattern: re.Pattern[bytes] | re.Pattern[str]) -> None:
        self._flags = pattern.flags
        tree = parser.parse(pattern.pattern, pattern.flags)
        self._program = self._compiled(tree)
        self.alphabet = sorted(_mentioned(tree))
        self.example = example(tree)

    def match(
        self, text: bytes | str, at: int = 0, *, limit: int = 10**7, whole: bool = False
    ) -> tuple[int | None, int]:
        """Where a match from ``at`` ends, None without one, and the steps taken. Raises TooMany."""
        codes = text if isinstance(text, bytes) else [ord(character) for character in text]
        machine = _Machine(self._program, codes, at, limit)
        return machine.run(whole=whole), machine.steps

    def search(self, text: bytes | str, *, limit: int = 10**7) -> int:
        """The steps to find the first match anywhere. Raises TooMany."""
        steps = 0
        for at in range(len(text) + 1):
            end, taken = self.match(text, at, limit=limit - steps)
            steps += taken
            if end is not None:
                break
        return steps

    def _compiled(self, tree: Iterable[Any]) -> list[Any]:
        program: list[Any] = []
        for op, value in tree:
            self._part(program, op, value)
        return program

    def _part(self, program: list[Any], op: Any, value: Any) -> None:
        if (takes := self._takes(op, value)) is not None:
            program.append(_Run(takes, 1, 1, give=False, lazy=False))
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            self._repeat(program, op, *value)
        elif op is sre.SUBPATTERN:
            program += _moved(self._compiled(value[3]), len(program))
        elif op is sre.BRANCH:
            self._branch(program, value[1])
        elif op is sre.ATOMIC_GROUP:
            program.append(_Inner(self._compiled(value), None, 0))
        elif op in (sre.ASSERT, sre.ASSERT_NOT):
            behind = value[1].getwidth()[0] if value[0] < 0 else 0
            program.append(_Inner(self._compiled(value[1]), op is sre.ASSERT, behind))
        elif op is sre.AT:
            program.append(_At(value))
        else:
            raise NotImplementedError(f"{op} in a pattern")

    def _repeat(self, program: list[Any], op: Any, least: int, most: Any, body: Any) -> None:
        most = 1 << 40 if most is sre.MAXREPEAT else int(most)
        (single, *more) = list(body)
        takes = None if more else self._takes(*single)
        if takes is not None:
            program.append(_Run(takes, least, most, give=op is not sre.POSSESSIVE_REPEAT, lazy=op is sre.MIN_REPEAT))
            return
        if op is sre.POSSESSIVE_REPEAT:
            inner: list[Any] = []
            self._repeat(inner, sre.MAX_REPEAT, least, most, body)
            program.append(_Inner(inner, None, 0))
            return
        if body.getwidth()[0] == 0:
            raise NotImplementedError("a repeated part that may be empty")
        for _ in range(least):
            program += _moved(self._compiled(body), len(program))
        if most >= 1 << 40:
            once = self._compiled(body)
            start, end = len(program), len(program) + len(once) + 2
            program.append(_Split(start + 1, end) if op is sre.MAX_REPEAT else _Split(end, start + 1))
            program += [*_moved(once, start + 1), _Split(start, start)]
            return
        for _ in range(most - least):
            once = self._compiled(body)
            start, end = len(program), len(program) + len(once) + 1
            program.append(_Split(start + 1, end) if op is sre.MAX_REPEAT else _Split(end, start + 1))
            program += _moved(once, start + 1)

    def _branch(self, program: list[Any], parts: Sequence[Any]) -> None:
        ways = [self._compiled(part) for part in parts]
        end = len(program) + sum(len(way) + 2 for way in ways) - 2
        for number, way in enumerate(ways):
            last = number == len(ways) - 1
            if not last:
                program.append(_Split(len(program) + 1, len(program) + len(way) + 2))
            program += _moved(way, len(program))
            if not last:
                program.append(_Split(end, end))

    def _takes(self, op: Any, value: Any) -> Takes | None:
        if self._flags & re.IGNORECASE and op is sre.LITERAL:
            either = {ord(chr(value).lower()), ord(chr(value).upper())}
            return lambda code: code in either
        if op is sre.LITERAL:
            return lambda code: bool(code == value)
        if op is sre.NOT_LITERAL:
            return lambda code: bool(code != value)
        if op is sre.ANY:
            return (lambda code: True) if self._flags & re.DOTALL else (lambda code: code != 10)
        return _in(tuple(value)) if op is sre.IN else None


@lru_cache(maxsize=512)
def _in(items: tuple[Any, ...]) -> Takes:
    codes = frozenset(code for code in range(0x250) if _member(items, code))
    beyond = _member(items, 0x1F600)
    return lambda code: code in codes if code < 0x250 else beyond


def _member(items: Sequence[Any], code: int) -> bool:
    negated = items[0][0] is sre.NEGATE
    return negated != any(_holds(op, value, code) for op, value in items[negated:])


def _holds(op: Any, value: Any, code: int) -> bool:
    if op is sre.LITERAL:
        return bool(code == value)
    if op is sre.RANGE:
        return bool(value[0] <= code <= value[1])
    kinds: dict[Any, bool] = {
        sre.CATEGORY_DIGIT: code in _DIGIT,
        sre.CATEGORY_SPACE: code in _SPACE,
        sre.CATEGORY_WORD: chr(code).isalnum() or code == 95,
        sre.CATEGORY_NOT_SPACE: code not in _SPACE,
    }
    return kinds[value]


def _moved(program: Sequence[Any], by: int) -> Iterator[Any]:
    for one in program:
        yield _Split(one.first + by, one.second + by) if isinstance(one, _Split) else one


class _Machine:
    """One match of a program: where it is, and the ways that are left to it."""

    def __init__(self, program: Sequence[Any], text: Any, at: int, limit: int) -> None:
        self.program = program
        self.text = text
        self.at = at
        self.pc = 0
        self.steps = 0
        self.limit = limit
        self.back: list[tuple[int, int, int, int]] = []
        """Where to go on, from the first position to the last, one step (1 or -1) at a time."""

    def run(self, *, whole: bool) -> int | None:
        """Where the match ends."""
        while True:
            self._count(1)
            if self.pc == len(self.program):
                if not whole or self.at == len(self.text):
                    return self.at
                going = False
            else:
                going = self._step(self.program[self.pc])
            if not going and not self._return():
                return None

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self.limit:
            raise TooMany(f"over {self.limit} steps")

    def _return(self) -> bool:
        if not self.back:
            return False
        self.pc, self.at, last, by = self.back.pop()
        if self.at != last:
            self.back.append((self.pc, self.at + by, last, by))
        return True

    def _step(self, one: Any) -> bool:
        if isinstance(one, _Run):
            return self._taken(one)
        if isinstance(one, _Split):
            if one.first != one.second:
                self.back.append((one.second, self.at, self.at, 1))
            self.pc = one.first
            return True
        self.pc += 1
        return self._inside(one) if isinstance(one, _Inner) else _stands(one.what, self.text, self.at)

    def _taken(self, one: _Run) -> bool:
        start, most = self.at, min(len(self.text), self.at + one.most)
        reach = start
        while reach < most and one.takes(self.text[reach]):
            reach += 1
        self._count(reach - start)
        least = start + one.least
        if reach < least:
            return False
        self.pc += 1
        self.at = least if one.lazy else reach
        if reach > least and one.lazy:
            self.back.append((self.pc, least + 1, reach, 1))
        elif reach > least and one.give:
            self.back.append((self.pc, reach - 1, least, -1))
        return True

    def _inside(self, one: _Inner) -> bool:
        if self.at < one.behind:
            return one.wanted is False
        inner = _Machine(one.program, self.text, self.at - one.behind, self.limit - self.steps)
        end = inner.run(whole=False)
        self._count(inner.steps)
        if one.wanted is not None:
            return one.wanted == (end is not None)
        self.at = self.at if end is None else end
        return end is not None


def _stands(what: Any, text: Any, at: int) -> bool:
    if what in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
        return at == 0
    if what is sre.AT_END_STRING:
        return bool(at == len(text))
    if what is sre.AT_END:
        return bool(at == len(text) or (at == len(text) - 1 and text[at] == 10))
    if what is sre.AT_BOUNDARY:
        before, after = at > 0 and _word(text[at - 1]), at < len(text) and _word(text[at])
        return before != after
    raise NotImplementedError(f"{what} in a pattern")


def _word(code: int) -> bool:
    return chr(code).isalnum() or code == 95


def _mentioned(tree: Iterable[Any]) -> set[int]:
    """The characters that literals and classes name."""
    found: set[int] = set()
    for op, value in tree:
        if op in (sre.LITERAL, sre.NOT_LITERAL):
            found.add(value)
        elif op is sre.RANGE:
            found |= set(value)
        elif op is sre.CATEGORY:
            found |= {ord("1"), ord("a"), ord(" ")}
        else:
            for part in _parts(op, value):
                found |= _mentioned(part)
    return found


def _parts(op: Any, value: Any) -> Sequence[Any]:
    if op is sre.BRANCH:
        return list(value[1])
    if op is sre.SUBPATTERN:
        return [value[3]]
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return [value[2]]
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return [value[1]]
    return [value] if op in (sre.IN, sre.ATOMIC_GROUP) else []


def example(tree: Iterable[Any]) -> str:
    """A text that the pattern takes, or nearly: the first way everywhere, and each repeated part at least once."""
    return "".join(_example(op, value) for op, value in tree)


def _example(op: Any, value: Any) -> str:
    if op is sre.LITERAL:
        return chr(value)
    if op in (sre.IN, sre.NOT_LITERAL, sre.ANY):
        items = tuple(value) if op is sre.IN else ((sre.NEGATE, None), (sre.LITERAL, value or 10))
        return next(chr(code) for code in (*b"a1A: ", *range(0x250)) if _member(items, code))
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return example(value[2]) * max(1, int(value[0]))
    if op is sre.BRANCH:
        return example(value[1][0])
    if op is sre.SUBPATTERN:
        return example(value[3])
    return "" if op is not sre.ATOMIC_GROUP else example(value)
