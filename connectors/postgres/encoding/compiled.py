"""Python source made per table: one function per kind of message, from raw bytes to JSON bytes.

A row is matched by a regular expression that finds every column and sees that each value has the form its type
nearly always has. Its groups go into a template by a single ``%``. That is about 2 us for seven columns,
where a loop over columns takes 10. It works because text of Postgres holds no NUL, so the bytes ``t 0 0`` before a
value's length can only part columns.

Each function tries two tiers. *Plain*: no value null, no text that JSON must escape. *Loose*: nulls and any text,
each value through its own function. Text is cut out by its declared length (see
:mod:`connectors.postgres.encoding.row_reading`). A row that neither takes (``infinity``, ``NaN``, an unchanged
TOASTed column, a changed key, bytes cut short) gives None and takes the long way in
:mod:`connectors.postgres.encoding.encoder`, which knows every form and every error. The declared length of each value
is compared with what was matched, so a changed byte cannot move a column's border.
"""

from __future__ import annotations

import re
import struct
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from types import CodeType, MappingProxyType
from typing import Any, NamedTuple

from cdc.wire.envelope import escaped
from cdc.wire.format import NEW_ROW, NO_NEW_ROW, NO_OLD_ROW, OLD_ROW
from cdc.wire.jsontree import name as member
from connectors.postgres.encoding.row_reading import NAMES, MessageRow, RowReading, Value, listed
from connectors.postgres.encoding.wire_values import Codec, Encode, Fast

Made = tuple[bytes, bytes]
FromFrame = Callable[[bytes, int, int, bytes, bytes], Made | None]
"""(frame, lsn, tx_seq, plain template, loose template) -> (key, value). None: take the long way."""
FromLine = Callable[[bytes, bytes, bytes], Made | None]
"""(COPY line, plain template, loose template) -> (key, value). None: take the long way."""

MOST_COLUMNS = 400
"""Above it no function is made: it would take longer to make than it saves."""

_COPY_ESCAPES: Mapping[bytes, bytes] = MappingProxyType(
    {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
)
_COPY_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_FIELD = rb"([^\t\n\x00]*)"


class Templates(NamedTuple):
    """The row part of a value, to be completed by a tail. See :mod:`cdc.wire.envelope`."""

    plain: bytes
    loose: bytes


class CompiledRows:
    """The functions compiled for a table. ``new``: insert, and update without an old row. ``pair``: update with one.
    ``old``: delete with the old row. ``keyed``: delete with the old key. ``line``: a line of COPY.

    Each is made when it is first asked for: no table needs all, and five thousand tables fit into memory.
    """

    def __init__(self, table: _Table, key: Sequence[int]) -> None:
        self._table = table
        self._key = key

    @cached_property
    def new(self) -> FromFrame:
        """Encodes a message with a new row alone: insert, and update without an old row."""
        return self._table.frame([MessageRow("n", b"N")])

    @cached_property
    def pair(self) -> FromFrame:
        """Encodes an update that carries the old row."""
        return self._table.frame([MessageRow("o", b"O"), MessageRow("n", b"N")])

    @cached_property
    def old(self) -> FromFrame:
        """Encodes a delete that carries the old row."""
        return self._table.frame([MessageRow("o", b"O")])

    @cached_property
    def keyed(self) -> FromFrame:
        """Encodes a delete that carries the old key."""
        return self._table.frame([MessageRow("k", b"K")], only=self._key)

    @cached_property
    def line(self) -> FromLine:
        """Encodes a line of COPY."""
        return self._table.line()

    @property
    def row_templates(self) -> Templates:
        """Templates of the row alone."""
        return self._table.row()

    @property
    def new_templates(self) -> Templates:
        """Templates for :attr:`new`: no row before, the row after."""
        return _around(NO_OLD_ROW + NEW_ROW, self._table.row())

    @property
    def pair_templates(self) -> Templates:
        """Templates for :attr:`pair`: the row before and the row after."""
        return _both(self._table.row())

    @property
    def old_templates(self) -> Templates:
        """Templates for :attr:`old`: the row before, no row after."""
        return _around(OLD_ROW, self._table.row(), NO_NEW_ROW)

    @property
    def keyed_templates(self) -> Templates:
        """Templates for :attr:`keyed`: the key's columns before, no row after."""
        return _around(OLD_ROW, self._table.row(self._key, bare=True), NO_NEW_ROW)


def compile_rows(names: Sequence[str], codecs: Sequence[Codec], key: Sequence[int]) -> CompiledRows:
    """Functions for a table with these columns, ``key`` being the key's columns in key order."""
    return CompiledRows(_Table([escaped(member(name)) for name in names], codecs, key), key)


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
    old = _around(OLD_ROW, row, NEW_ROW)
    return Templates(old.plain + row.plain, old.loose + row.loose)


class _Tier(NamedTuple):
    """One way to try, as source, and the names it uses."""

    lines: Sequence[str]
    names: dict[str, Any]


class _Table:
    """Makes the functions of one table."""

    def __init__(self, labels: Sequence[bytes], codecs: Sequence[Codec], key: Sequence[int]) -> None:
        self._labels = labels
        self._codecs = codecs
        self._key = list(key)
        keys = self.row(key)
        self._names: dict[str, Any] = {
            **NAMES,
            # Not the form it seemed to be: the long way says what is wrong.
            "REFUSED": (ValueError, KeyError, IndexError, struct.error),
            "KEY": keys.plain,
            "LOOSE_KEY": keys.loose,
        }

    def row(self, columns: Sequence[int] | None = None, *, bare: bool = False) -> Templates:
        """Templates of an object with these columns, all unless named. ``bare``: all others stand in it as null."""
        columns = range(len(self._labels)) if columns is None else columns
        plain = {i: self._labels[i] + self._codecs[i].fast.text for i in columns}
        loose = {i: self._labels[i] + b"%b" for i in columns}
        order: Sequence[int] = range(len(self._labels)) if bare else columns
        return Templates(
            *(b"{" + b",".join(form.get(i, self._labels[i] + b"null") for i in order) + b"}" for form in (plain, loose))
        )

    def frame(self, sides: Sequence[MessageRow], only: Sequence[int] | None = None) -> FromFrame:
        """A function over messages with these rows. Of columns not in ``only`` just nulls are taken."""
        if len(self._labels) * len(sides) > MOST_COLUMNS:
            return _long_way
        present = range(len(self._labels)) if only is None else sorted(only)
        tiers = [self._frame_tier(tier, sides, present) for tier in self._tiers(present)]
        lines = ["def encode(frame, lsn, seq, plain, loose):", *_tried(tiers)]
        made: FromFrame = _define(lines, _named(self._names, tiers))
        return made

    def _tiers(self, present: Sequence[int]) -> Sequence[str]:
        """No plain one where a text may end before the nulls of columns that are left out: it could go on over them."""
        whole = len(present) == len(self._labels)
        return ("plain", "loose") if whole or not any(self._codecs[i].fast.takes_nulls for i in present) else ("loose",)

    def line(self) -> FromLine:
        """A function over lines of COPY in text format."""
        if len(self._labels) > MOST_COLUMNS:
            return _long_way
        tiers = [self._line_tier(tier) for tier in ("plain", "loose")]
        lines = ["def encode(line, plain, loose):", *_tried(tiers)]
        made: FromLine = _define(lines, _named(self._names, tiers))
        return made

    def _values(self, letter: str, columns: Sequence[int], tier: str) -> dict[int, Value]:
        return {i: self._value(i, letter, tier) for i in columns}

    def _value(self, i: int, letter: str, tier: str) -> Value:
        codec = self._codecs[i]
        form = codec.fast if tier == "plain" else codec.loose
        nullable = tier == "loose" and i not in self._key
        if letter == "c" and form.anything:
            # A field of COPY that takes anything takes \N too.
            form, nullable = Fast(pattern=_FIELD, text=b"%b", mapped=_from_copy(codec.encode)), False
        return Value(i, letter, form, f"{tier}_f{i}", nullable=nullable, walked=tier == "loose" and form.anything)

    def _frame_tier(self, tier: str, sides: Sequence[MessageRow], present: Sequence[int]) -> _Tier:
        values = {side: self._values(side.letter, present, tier) for side in sides}
        reading = RowReading(tier, values, len(self._labels))
        new = list(values.values())[-1]
        lines = [*reading.lines, *self._stayed(values)]
        lines += self._built(tier, new, f"{tier} % ({{}}lsn, lsn, seq)", list(values.values()))
        return _Tier(lines, reading.names | _mappers(new))

    def _stayed(self, values: Mapping[MessageRow, Mapping[int, Value]]) -> Iterator[str]:
        """Of a pair only what kept its key is written."""
        old, new = next(iter(values.values())), list(values.values())[-1]
        if old is not new:
            moved = [f"{a} != {b}" for i in self._key for a, b in zip(old[i].groups, new[i].groups, strict=True)]
            yield f"if {' or '.join(moved) or 'False'}: return None"

    def _line_tier(self, tier: str) -> _Tier:
        values = self._values("c", range(len(self._labels)), tier)
        fields = [rb"(?:\\N|%b)" % v.form.pattern if v.nullable else v.form.pattern for v in values.values()]
        match = re.compile(rb"\t".join(fields) + rb"\n?\Z").match
        captured = [group for v in values.values() for group in v.groups]
        lines = [f"match = {tier}_match0(line)", "if match is None: break", f"({listed(captured)}) = match.groups()"]
        lines += self._built(tier, values, f"{tier} % ({{}})")
        return _Tier(lines, {f"{tier}_match0": match, **_mappers(values)})

    def _built(
        self, tier: str, keyed: Mapping[int, Value], filled: str, sides: Sequence[Mapping[int, Value]] = ()
    ) -> Iterator[str]:
        """The end of a tier: the row (``filled`` with its values), the key, and a look at the encoding."""
        every = [v for side in sides or (keyed,) for v in side.values()]
        if tier == "plain":
            inner = [part for v in every for part in v.parts()]
            key = ["KEY", *(part for i in self._key for part in keyed[i].parts())]
        else:
            yield from (f"{v.name} = {v.whole()}" for v in every)
            inner = [v.name for v in every]
            key = ["LOOSE_KEY", *(keyed[i].name for i in self._key)]
        yield f"made = {filled.format(listed(inner))}"
        yield "if not made.isascii(): made.decode()"
        yield f"return {key[0]} % ({listed(key[1:])}), made"


def _mappers(values: Mapping[int, Value]) -> dict[str, Any]:
    return {v.mapper: v.form.mapped for v in values.values()}


def _from_copy(encode: Encode) -> Encode:
    def field(escaped_text: bytes) -> bytes:
        text = unescape(escaped_text)
        return b"null" if text is None else encode(text)

    return field


def _named(names: dict[str, Any], tiers: Sequence[_Tier]) -> dict[str, Any]:
    return dict(ChainMap(*(tier.names for tier in tiers), names))


def _tried(tiers: Sequence[_Tier]) -> Iterator[str]:
    """One after the other: a tier that does not match breaks off."""
    yield " try:"
    for tier in tiers:
        yield "  while True:"
        yield from (f"   {line}" for line in tier.lines)


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
