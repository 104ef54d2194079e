"""Source text that takes a row's values out of a message, for the functions of
:mod:`connectors.postgres.encoding.compiled`.

Time is linear in a message's bytes, with any content. An expression may hold a part of any length only
where one border is possible: what follows such a part begins with ``t 0 0`` or with a byte that the part does not
match, and no value holds a NUL. Where a null may follow a value of any text, the text could go on over the null's
marker ``n``, and an expression would try each such border. There the value is cut out by the length it declares.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from connectors.postgres.encoding.wire_values import Fast

ROW_AT = 30
"""Where a row's marker stands in an XLogData message: ``w``, three numbers of 8 bytes, kind, oid."""
NAMES: Mapping[str, Any] = {
    "E": b"",
    "Z": b"\0\0",
    "NULL": b"null",
    "join": b"".join,
    "size": struct.Struct(">I").unpack_from,
}
"""The names that the source below uses, besides its own."""
_TEXT, _NULL = ord("t"), ord("n")


class MessageRow(NamedTuple):
    """One row of a message: a letter for names in source, and pgoutput's marker."""

    letter: str
    marker: bytes


class Value:
    """The source of one value: of column ``index``, on a side, in a form.

    ``mapper``: the name of the form's function. ``walked``: its end is where the declared length says.
    """

    def __init__(self, index: int, letter: str, form: Fast, mapper: str, *, nullable: bool, walked: bool) -> None:
        self.form = form
        self.nullable = nullable
        self.walked = walked
        self.name = f"{letter}{index}"
        self.groups = [f"{self.name}_{part}" for part in range(form.groups)]
        self.mapper = mapper

    def captured(self) -> list[str]:
        """The names its groups get, in order."""
        return [f"{self.name}_l", *self.groups] if self.form.length is None else self.groups

    def pattern(self) -> bytes:
        """The regular expression that one value matches in a message."""
        length = b"(..)" if self.form.length is None else re.escape(self.form.length.to_bytes(2))
        matched = rb"t\x00\x00" + length + self.form.pattern
        return b"(?:" + matched + b"|n)" if self.nullable else matched

    def walk(self) -> Iterator[str]:
        """Its one group, from ``at`` on. ``at`` stands behind it then."""
        (found,) = self.groups
        null = [f"elif kind == {_NULL}:", f" {found} = None", " at += 1"] if self.nullable else []
        yield "kind = frame[at]"
        yield f"if kind == {_TEXT}:"
        yield " start = at + 5"
        yield " at = start + size(frame, at + 1)[0]"
        yield f" {found} = frame[start:at]"
        yield from null
        yield "else: break"

    def declared(self) -> str:
        """The expression for the length that the message declares, 0 for null."""
        return f"({self.name}_l or Z)" if self.nullable else f"{self.name}_l"

    def measured(self) -> str:
        """The expression for the length of what was matched, 0 for null."""
        if self.nullable and self.form.groups == 1 and not self.form.extra:
            return f"len({self.groups[0]} or E)"
        extra = [str(self.form.extra)] if self.form.extra else []
        total = " + ".join([*(f"len({group})" for group in self.groups), *extra])
        return f"({total} if {self.groups[0]} is not None else 0)" if self.nullable else total

    def parts(self) -> list[str]:
        """The values for the form's own text."""
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


class RowReading:
    """``lines`` take all values out of a message's rows, and break off where it is none that they know.

    ``values``: by side and column. Every other column of ``columns`` must be null. ``names``: what the lines use.
    ``prefix`` parts these from those of another reading in the same function.
    """

    def __init__(self, prefix: str, values: Mapping[MessageRow, Mapping[int, Value]], columns: int) -> None:
        self.names: dict[str, Any] = {}
        self._prefix = prefix
        self._pattern = b""
        self._captured: list[str] = []
        self._matches = 0
        self.lines = list(self._rows(values, columns))
        sized = [v for found in values.values() for v in found.values() if v.form.length is None and not v.walked]
        if sized:
            self.names[f"{prefix}_sizes"] = struct.Struct(f">{len(sized)}H").pack
            declared = f"join(({', '.join(v.declared() for v in sized)},))"
            self.lines.append(f"if {prefix}_sizes({', '.join(v.measured() for v in sized)}) != {declared}: break")

    def _rows(self, values: Mapping[MessageRow, Mapping[int, Value]], columns: int) -> Iterator[str]:
        for side, found in values.items():
            self._pattern += side.marker + re.escape(columns.to_bytes(2))
            for i in range(columns):
                value = found.get(i)
                if value is None:
                    self._pattern += b"n"
                elif value.walked:
                    if self._pattern:
                        yield from self._matched()
                    yield from value.walk()
                else:
                    self._pattern += value.pattern()
                    self._captured += value.captured()
        if self._pattern:
            yield from self._matched(rb"\Z")
        else:
            # A value cut short ends behind the end.
            yield "if at != len(frame): break"

    def _matched(self, end: bytes = b"") -> Iterator[str]:
        """The pattern gathered since the last walk, in one expression."""
        name, at = f"{self._prefix}_match{self._matches}", "at" if self._matches else str(ROW_AT)
        self.names[name] = re.compile(self._pattern + end, re.DOTALL).match
        yield f"match = {name}(frame, {at})"
        yield "if match is None: break"
        if self._captured:
            yield f"({listed(self._captured)}) = match.groups()"
        if not end:
            yield "at = match.end()"
        self._matches += 1
        self._pattern, self._captured = b"", []


def listed(names: Iterable[str]) -> str:
    """The list in a tuple's parentheses: a table may have no columns, and one that is left out no key."""
    return "".join(f"{name}, " for name in names)
