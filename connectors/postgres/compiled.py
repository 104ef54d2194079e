"""Python source made per table: one function per kind of message, from raw bytes to JSON bytes.

A row is matched by one regular expression that finds every column and sees that each value has the form its
type nearly always has; what it captured goes into a template by a single ``%``. That is about 2 us for seven
columns, where a loop over columns takes 10. It works because text of Postgres holds no NUL, so the bytes
``t 0 0`` before a value's length can only part columns.

Each function tries two expressions. *Plain*: no value null, no text that JSON must escape. *Loose*: nulls and
any text, each value through its own function. What neither matches (a value of 64 KB or more, ``infinity``,
``NaN``, an unchanged TOASTed column, a changed key, bytes cut short) gives None and takes the long way in
:mod:`connectors.postgres.encoder`, which knows every form and every error. The declared length of each value is
compared with what was matched, so a changed byte cannot move a column's border.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from types import CodeType, MappingProxyType
from typing import Any, NamedTuple

from connectors.postgres.envelope import escaped
from connectors.postgres.jsontext import name as member
from connectors.postgres.values import Codec, Encode, Fast

Made = tuple[bytes, bytes]
FromFrame = Callable[[bytes, int, int, bytes, bytes], Made | None]
"""(frame, lsn, tx_seq, plain template, loose template) -> (key, value); None: take the long way."""
FromLine = Callable[[bytes, bytes, bytes], Made | None]
"""(COPY line, plain template, loose template) -> (key, value); None: take the long way."""

ROW_AT = 30
"""Where a row's marker stands in an XLogData message: ``w``, three numbers of 8 bytes, kind, oid."""
MOST_COLUMNS = 400
"""Above it no function is made: it would take longer to make than it saves."""

_COPY_ESCAPES: Mapping[bytes, bytes] = MappingProxyType(
    {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
)
_COPY_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_FIELD = rb"([^\t\n\x00]*)"


class Templates(NamedTuple):
    """The row part of a value, to be completed by a tail; see :mod:`connectors.postgres.envelope`."""

    plain: bytes
    loose: bytes


class Rows:
    """What is compiled for a table. ``new``: insert, and update without an old row; ``pair``: update with one;
    ``old``: delete with the old row; ``keyed``: delete with the old key; ``line``: a line of COPY.

    Each is made when it is first asked for: no table needs all, and five thousand tables fit into memory.
    """

    def __init__(self, table: _Table, key: Sequence[int]) -> None:
        self._table = table
        self._key = key

    @cached_property
    def new(self) -> FromFrame:
        return self._table.frame([_Side("n", b"N")])

    @cached_property
    def pair(self) -> FromFrame:
        return self._table.frame([_Side("o", b"O"), _Side("n", b"N")])

    @cached_property
    def old(self) -> FromFrame:
        return self._table.frame([_Side("o", b"O")])

    @cached_property
    def keyed(self) -> FromFrame:
        return self._table.frame([_Side("k", b"K")], only=self._key)

    @cached_property
    def line(self) -> FromLine:
        return self._table.line()

    @property
    def row_templates(self) -> Templates:
        return self._table.row()

    @property
    def new_templates(self) -> Templates:
        return _around(b'{"before":null,"after":', self._table.row())

    @property
    def pair_templates(self) -> Templates:
        return _both(self._table.row())

    @property
    def old_templates(self) -> Templates:
        return _around(b'{"before":', self._table.row(), b',"after":null')

    @property
    def keyed_templates(self) -> Templates:
        return _around(b'{"before":', self._table.row(self._key, bare=True), b',"after":null')


def compile_rows(names: Sequence[str], codecs: Sequence[Codec], key: Sequence[int]) -> Rows:
    """Functions for a table with these columns, ``key`` being the key's columns in key order."""
    return Rows(_Table([escaped(member(name)) for name in names], codecs, key), key)


def unescape(field: bytes) -> bytes | None:
    """A value of COPY's text format.

    >>> unescape(rb"tab\\t"), unescape(rb"\\N"), unescape(rb"\\\\N")
    (b'tab\\t', None, b'\\\\N')
    """
    if b"\\" not in field:
        return field
    if field == b"\\N":
        return None
    return _COPY_ESCAPE.sub(lambda match: _COPY_ESCAPES.get(match[1], match[1]), field)


def _around(before: bytes, row: Templates, after: bytes = b"") -> Templates:
    return Templates(before + row.plain + after, before + row.loose + after)


def _both(row: Templates) -> Templates:
    old = _around(b'{"before":', row, b',"after":')
    return Templates(old.plain + row.plain, old.loose + row.loose)


class _Side(NamedTuple):
    """One row of a message: a letter for names in source, and pgoutput's marker."""

    letter: str
    marker: bytes


class _Value:
    """The source of one value: of column ``index``, on a side, in a form."""

    def __init__(self, index: int, letter: str, form: Fast, *, nullable: bool) -> None:
        self.form = form
        self.nullable = nullable
        self.name = f"{letter}{index}"
        self.groups = [f"{self.name}_{part}" for part in range(form.groups)]
        self.mapper = f"f{index}"

    def captured(self) -> list[str]:
        """The names its groups get, in order."""
        return [f"{self.name}_l", *self.groups] if self.form.length is None else self.groups

    def pattern(self) -> bytes:
        length = b"(..)" if self.form.length is None else re.escape(self.form.length.to_bytes(2))
        matched = rb"t\x00\x00" + length + self.form.pattern
        return b"(?:" + matched + b"|n)" if self.nullable else matched

    def declared(self) -> str:
        return f"({self.name}_l or Z)" if self.nullable else f"{self.name}_l"

    def measured(self) -> str:
        if self.nullable and self.form.groups == 1 and not self.form.extra:
            return f"len({self.groups[0]} or E)"
        extra = [str(self.form.extra)] if self.form.extra else []
        total = " + ".join([*(f"len({group})" for group in self.groups), *extra])
        return f"({total} if {self.groups[0]} is not None else 0)" if self.nullable else total

    def parts(self) -> list[str]:
        """What goes into the form's own text."""
        *first, last = self.groups
        if self.form.mapped is None:
            return [*first, last]
        call = f"{self.mapper}({last})"
        if self.form.unless_length is not None:
            call = f"({last} if len({last}) == {self.form.unless_length} else {call})"
        return [*first, call]

    def whole(self) -> str:
        """The value as JSON."""
        parts = self.parts()
        written = parts[0] if self.form.text == b"%b" else f"{self.form.text!r} % ({', '.join(parts)},)"
        return f"{written} if {self.groups[0]} is not None else NULL" if self.nullable else written


class _Table:
    """Makes the functions of one table."""

    def __init__(self, labels: Sequence[bytes], codecs: Sequence[Codec], key: Sequence[int]) -> None:
        self._labels = labels
        self._codecs = codecs
        self._key = list(key)
        keys = self.row(key)
        self._names: dict[str, Any] = {
            "E": b"",
            "Z": b"\0\0",
            "NULL": b"null",
            "join": b"".join,
            # Not the form it seemed to be: the long way says what is wrong.
            "REFUSED": (ValueError, KeyError, struct.error),
            "KEY": keys.plain,
            "LOOSE_KEY": keys.loose,
        }

    def row(self, columns: Sequence[int] | None = None, *, bare: bool = False) -> Templates:
        """Templates of an object with these columns, all unless named; ``bare``: all others stand in it as null."""
        columns = range(len(self._labels)) if columns is None else columns
        plain = {i: self._labels[i] + self._codecs[i].fast.text for i in columns}
        loose = {i: self._labels[i] + b"%b" for i in columns}
        order: Sequence[int] = range(len(self._labels)) if bare else columns
        return Templates(
            *(b"{" + b",".join(form.get(i, self._labels[i] + b"null") for i in order) + b"}" for form in (plain, loose))
        )

    def frame(self, sides: Sequence[_Side], only: Sequence[int] | None = None) -> FromFrame:
        """A function over messages with these rows; of columns not in ``only`` just nulls are taken."""
        if len(self._labels) * len(sides) > MOST_COLUMNS:
            return _long_way
        present = range(len(self._labels)) if only is None else sorted(only)
        lines = ["def encode(frame, lsn, seq, plain, loose):", " try:"]
        names = dict(self._names)
        for tier in ("plain", "loose"):
            values = {side: self._values(side.letter, present, tier) for side in sides}
            names |= self._frame_names(tier, values)
            lines += self._frame_tier(tier, values)
        made: FromFrame = _define(lines, names)
        return made

    def line(self) -> FromLine:
        """A function over lines of COPY in text format."""
        if len(self._labels) > MOST_COLUMNS:
            return _long_way
        lines, names = ["def encode(line, plain, loose):", " try:"], dict(self._names)
        for tier in ("plain", "loose"):
            values = self._values("c", range(len(self._labels)), tier)
            fields = [rb"(?:\\N|%b)" % v.form.pattern if v.nullable else v.form.pattern for v in values.values()]
            names |= {
                f"match_{tier}": re.compile(rb"\t".join(fields) + rb"\n?\Z").match,
                **{f"{tier}_f{i}": v.form.mapped for i, v in values.items()},
            }
            lines += [f"  match = match_{tier}(line)", "  if match is not None:"]
            lines += _unpacked([group for v in values.values() for group in v.groups])
            lines += self._built(tier, values, f"{tier} % ({{}})")
        made: FromLine = _define(lines, names)
        return made

    def _values(self, letter: str, columns: Sequence[int], tier: str) -> dict[int, _Value]:
        found = {}
        for i in columns:
            codec = self._codecs[i]
            form = codec.fast if tier == "plain" else codec.loose
            copied = letter == "c" and form.anything
            if copied:
                form = Fast(pattern=_FIELD, text=b"%b", mapped=_from_copy(codec.encode))
            # A field of COPY that takes anything takes \N too.
            nullable = tier == "loose" and i not in self._key and not copied
            found[i] = _Value(i, letter, form, nullable=nullable)
            found[i].mapper = f"{tier}_f{i}"
        return found

    def _frame_names(self, tier: str, values: Mapping[_Side, Mapping[int, _Value]]) -> dict[str, Any]:
        count = re.escape(struct.pack(">H", len(self._labels)))
        pattern = b""
        for side, found in values.items():
            columns = (found[i].pattern() if i in found else b"n" for i in range(len(self._labels)))
            pattern += side.marker + count + b"".join(columns)
        sized = sum(v.form.length is None for found in values.values() for v in found.values())
        mappers = {f"{tier}_f{i}": v.form.mapped for found in values.values() for i, v in found.items()}
        return {
            f"match_{tier}": re.compile(pattern + rb"\Z", re.DOTALL).match,
            f"pack_{tier}": struct.Struct(f">{sized}H").pack,
            **mappers,
        }

    def _frame_tier(self, tier: str, values: Mapping[_Side, Mapping[int, _Value]]) -> Iterator[str]:
        flat = [v for found in values.values() for v in found.values()]
        yield f"  match = match_{tier}(frame, {ROW_AT})"
        yield "  if match is not None:"
        yield from _unpacked([name for v in flat for name in v.captured()])
        sized = [v for v in flat if v.form.length is None]
        if sized:
            declared = f"join(({', '.join(v.declared() for v in sized)},))"
            yield f"   if pack_{tier}({', '.join(v.measured() for v in sized)}) != {declared}: return None"
        old, new = next(iter(values.values())), list(values.values())[-1]
        if old is not new:
            moved = [f"{a} != {b}" for i in self._key for a, b in zip(old[i].groups, new[i].groups, strict=True)]
            yield f"   if {' or '.join(moved) or 'False'}: return None"
        yield from self._built(tier, new, f"{tier} % ({{}}lsn, lsn, seq)", list(values.values()))

    def _built(
        self, tier: str, keyed: Mapping[int, _Value], filled: str, sides: Sequence[Mapping[int, _Value]] = ()
    ) -> Iterator[str]:
        """The end of a tier: the row (``filled`` with its values), the key, and a look at the encoding."""
        every = [v for side in sides or (keyed,) for v in side.values()]
        if tier == "plain":
            inner = [part for v in every for part in v.parts()]
            key = ["KEY", *(part for i in self._key for part in keyed[i].parts())]
        else:
            yield from (f"   {v.name} = {v.whole()}" for v in every)
            inner = [v.name for v in every]
            key = ["LOOSE_KEY", *(keyed[i].name for i in self._key)]
        yield f"   made = {filled.format(_listed(inner))}"
        yield "   if not made.isascii(): made.decode()"
        yield f"   return {key[0]} % ({_listed(key[1:])}), made"


def _listed(names: Iterable[str]) -> str:
    """What stands in a tuple's parentheses: a table may have no columns, and one that is left out no key."""
    return "".join(f"{name}, " for name in names)


def _unpacked(names: Sequence[str]) -> Iterator[str]:
    yield f"   ({_listed(names)}) = match.groups()"


def _from_copy(encode: Encode) -> Encode:
    def field(escaped_text: bytes) -> bytes:
        text = unescape(escaped_text)
        return b"null" if text is None else encode(text)

    return field


def _define(lines: Sequence[str], names: dict[str, Any]) -> Any:
    """Run source made above: of numbers and fixed words, never of anything a table is named."""
    source = [*lines, " except REFUSED: return None", " return None"]
    exec(_code("\n".join(source)), names)
    return names["encode"]


@lru_cache(maxsize=4096)
def _code(source: str) -> CodeType:
    """Tables of the same form share theirs: thousands of them would take 20 kB each."""
    return compile(source, "<row>", "exec")


def _long_way(*_: Any) -> None:
    return None
