"""Conditions on a table's rows: a small grammar, parsed into checked parts. Pure.

A condition travels through ``<name>.state``, where others may write too. So it is never evaluated as text: it is
parsed here, by the command that asks and again by the capture that reads, and what does not parse is refused. The
parts are columns, operators of a closed list and literals. There are no functions, casts, arithmetic or subqueries,
so a condition cannot change anything and cannot wait. ``snapshot/later/window_read.py`` makes a part of a
statement of it.

    condition := all {"or" all}
    all       := one {"and" one}
    one       := "not" one | "(" condition ")" | test
    test      := value ("=" | "<>" | "!=" | "<" | "<=" | ">" | ">=") value
               | column ["not"] "in" "(" value {"," value} ")"
               | column ["not"] "between" value "and" value
               | column ["not"] ("like" | "ilike") string
               | column "is" ["not"] "null"
               | column
    value     := column | string | number | "true" | "false"

A test names at least one column. A column is a name as in SQL, quoted or not. A string is in single quotes, a quote in
it doubled. It takes the type of the column that it is compared with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

MOST_CHARACTERS = 20_000
MOST_DEPTH = 50
SIGNS = ("=", "<>", "<", "<=", ">", ">=")
WORDS = frozenset({"and", "between", "false", "ilike", "in", "is", "like", "not", "null", "or", "true"})
"""Reserved: a column of such a name is written in double quotes."""


class NoCondition(ValueError):
    """The text is no condition. The argument says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column, by its name as the catalog has it."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class NumberLiteral:
    value: Decimal


@dataclass(frozen=True, slots=True)
class Truth:
    value: bool


Value = ColumnName | Text | NumberLiteral | Truth


@dataclass(frozen=True, slots=True)
class Compared:
    """``sign``: one of :data:`SIGNS`."""

    left: Value
    sign: str
    right: Value


@dataclass(frozen=True, slots=True)
class Among:
    column: ColumnName
    values: tuple[Value, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Between:
    column: ColumnName
    low: Value
    high: Value
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like:
    """``any_case``: ``ilike``."""

    column: ColumnName
    pattern: Text
    any_case: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Null:
    column: ColumnName
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    condition: Condition


@dataclass(frozen=True, slots=True)
class All:
    """Two or more, joined by ``and``."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Two or more, joined by ``or``."""

    conditions: tuple[Condition, ...]


Condition = ColumnName | Compared | Among | Between | Like | Null | Not | All | Either


def parse(text: str) -> Condition:
    """The condition that a text is. Raises :class:`NoCondition`."""
    if len(text) > MOST_CHARACTERS:
        raise NoCondition(f"it has more than {MOST_CHARACTERS:,} characters")
    parser = _Parser(_tokens(text))
    found = parser.either()
    parser.end()
    return found


def columns(condition: Condition) -> frozenset[str]:
    """The names of all columns in it.

    >>> sorted(columns(parse("a = 1 and (b is null or c in (d, 2))")))
    ['a', 'b', 'c', 'd']
    """
    return frozenset(_names(condition))


def show(condition: Condition | Value) -> str:  # noqa: C901, PLR0911 - one case for each part of the grammar
    """The text of a condition in one spelling. :func:`parse` gives the same condition back.

    >>> show(parse('NOT (Total>=1.50 or "Name" ilike \\'o\\'\\'b%\\')'))
    '(not ("total" >= 1.50 or "Name" ilike \\'o\\'\\'b%\\'))'
    """
    match condition:
        case ColumnName(name):
            return '"{}"'.format(name.replace('"', '""'))
        case Text(value):
            return "'{}'".format(value.replace("'", "''"))
        case NumberLiteral(number):
            return str(number)
        case Truth(truth):
            return "true" if truth else "false"
        case Compared(left, sign, right):
            return f"{show(left)} {sign} {show(right)}"
        case Among(column, values, negated):
            return f"{show(column)} {_not(negated)}in ({', '.join(map(show, values))})"
        case Between(column, low, high, negated):
            return f"{show(column)} {_not(negated)}between {show(low)} and {show(high)}"
        case Like(column, pattern, any_case, negated):
            return f"{show(column)} {_not(negated)}{'ilike' if any_case else 'like'} {show(pattern)}"
        case Null(column, negated):
            return f"{show(column)} is {_not(negated)}null"
        case Not(inner):
            return f"(not {show(inner)})"
        case All(conditions):
            return f"({' and '.join(map(show, conditions))})"
        case Either(conditions):
            return f"({' or '.join(map(show, conditions))})"


def _not(negated: bool) -> str:
    return "not " if negated else ""


def _names(part: Condition | Value) -> Iterator[str]:  # noqa: C901 - one case for each part of the grammar
    match part:
        case ColumnName(name):
            yield name
        case Text() | NumberLiteral() | Truth():
            pass
        case Compared(left, _, right):
            yield from (*_names(left), *_names(right))
        case Among(column, values):
            yield from _names(column)
            for value in values:
                yield from _names(value)
        case Between(column, low, high):
            yield from (*_names(column), *_names(low), *_names(high))
        case Like(column) | Null(column):
            yield from _names(column)
        case Not(inner):
            yield from _names(inner)
        case All(conditions) | Either(conditions):
            for one in conditions:
                yield from _names(one)


class _Token(NamedTuple):
    """``kind``: ``text``, ``name``, ``number``, ``word`` (reserved), ``sign`` or ``end``."""

    kind: str
    value: str
    shown: str


_END = _Token("end", "", "its end")
_LETTER = r"A-Za-z_\x80-\U0010ffff"
_TOKEN = re.compile(
    rf"""[ \t\r\n\f\v]*+(?:(?P<text>'(?:[^']|'')*+')
    |(?P<name>"(?:[^"]|"")++")
    |(?P<number>[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]{{1,3}}(?![0-9]))?)
    |(?P<word>[{_LETTER}][{_LETTER}0-9$]*+)
    |(?P<sign><=|>=|<>|!=|[=<>(),]))""",
    re.VERBOSE,
)
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
"""Postgres folds a name's ASCII letters and, in most databases, no others."""


def _tokens(text: str) -> list[_Token]:
    if "\0" in text:
        raise NoCondition("it has a NUL character")
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise NoCondition(f"it cannot be read from {_short(text[at:])} on")
        found.append(_token(match))
        at = match.end()
    return found


def _token(match: re.Match[str]) -> _Token:
    kind = match.lastgroup or ""
    value = match[kind]
    shown = _short(value)
    match kind:
        case "text":
            return _Token(kind, value[1:-1].replace("''", "'"), shown)
        case "name":
            return _Token(kind, value[1:-1].replace('""', '"'), shown)
        case "word":
            word = value.translate(_LOWER)
            return _Token("word" if word in WORDS else "name", word, shown)
    return _Token(kind, "<>" if value == "!=" else value, shown)


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 30 else f"{text[:30]}…"


class _Parser:
    """By recursive descent. Depth is bounded."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def either(self) -> Condition:
        found = [self._all()]
        while self._word("or"):
            found.append(self._all())
        return Either(tuple(found)) if len(found) > 1 else found[0]

    def end(self) -> None:
        if self._next is not _END:
            raise NoCondition(f"{self._next.shown} follows where it should end")

    def _all(self) -> Condition:
        found = [self._one()]
        while self._word("and"):
            found.append(self._one())
        return All(tuple(found)) if len(found) > 1 else found[0]

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise NoCondition(f"it is nested more than {MOST_DEPTH} deep")
        found = self._nested()
        self._depth -= 1
        return found

    def _nested(self) -> Condition:
        if self._word("not"):
            return Not(self._one())
        if self._sign("("):
            found = self.either()
            self._expect(")")
            return found
        return self._test()

    def _test(self) -> Condition:
        left = self._value()
        if self._next.kind == "sign" and self._next.value in SIGNS:
            sign, right = self._take().value, self._value()
            if not isinstance(left, ColumnName) and not isinstance(right, ColumnName):
                raise NoCondition(f"{show(left)} {sign} {show(right)} compares no column")
            return Compared(left, sign, right)
        if not isinstance(left, ColumnName):
            raise NoCondition(f"a column is missing before {self._next.shown}")
        return self._of_column(left)

    def _of_column(self, column: ColumnName) -> Condition:
        if self._word("is"):
            negated = self._word("not")
            self._expect_word("null")
            return Null(column, negated)
        negated = self._word("not")
        if self._word("in"):
            return Among(column, self._values(), negated)
        if self._word("between"):
            low = self._value()
            self._expect_word("and")
            return Between(column, low, self._value(), negated)
        if self._word("like"):
            return Like(column, self._text(), False, negated)
        if self._word("ilike"):
            return Like(column, self._text(), True, negated)
        if negated:
            raise NoCondition(f"{self._next.shown} follows not")
        return column

    def _values(self) -> tuple[Value, ...]:
        self._expect("(")
        found = [self._value()]
        while self._sign(","):
            found.append(self._value())
        self._expect(")")
        return tuple(found)

    def _value(self) -> Value:
        token = self._take()
        match token.kind:
            case "name":
                return ColumnName(token.value)
            case "text":
                return Text(token.value)
            case "number":
                return NumberLiteral(Decimal(token.value))
            case "word" if token.value in ("true", "false"):
                return Truth(token.value == "true")
        raise NoCondition(f"{token.shown} stands where a column or a value should")

    def _text(self) -> Text:
        token = self._take()
        if token.kind != "text":
            raise NoCondition(f"{token.shown} stands where a pattern in single quotes should")
        return Text(token.value)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _word(self, word: str) -> bool:
        return self._skip("word", word)

    def _sign(self, sign: str) -> bool:
        return self._skip("sign", sign)

    def _skip(self, kind: str, value: str) -> bool:
        token = self._next
        if (token.kind, token.value) != (kind, value):
            return False
        self._at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._sign(sign):
            raise NoCondition(f"{self._next.shown} stands where {sign} should")

    def _expect_word(self, word: str) -> None:
        if not self._word(word):
            raise NoCondition(f"{self._next.shown} stands where {word} should")
