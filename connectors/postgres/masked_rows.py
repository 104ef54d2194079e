"""The places at which a value that was read becomes its masked one: a message's rows, and a line of COPY. Pure.

The stream's messages are masked before anything keeps them, so that no buffer, file or record behind has the plain
value. A masked message is one of a table that has the masked columns as text, and the dropped ones not at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn

from cdc.errors import DecodeError
from cdc.lsn import Lsn
from cdc.mask_rules import Masks, MaskValue
from cdc.schema import DROPPED, TableSchema
from connectors.postgres.abridge import Abridged
from connectors.postgres.messages import Relation

_ROW_AT = 30
_MARKERS = b"KON"
_TEXT, _OMITTED = ord("t"), ord("x")
_NO_VALUE = b"nu"
_OMITTED_BYTES = 1 + 8 + 32
_COPY_SPECIAL = re.compile(rb"[\b\f\n\r\t\v\\]")
_COPY_ESCAPED = MappingProxyType(
    {b"\b": rb"\b", b"\f": rb"\f", b"\n": rb"\n", b"\r": rb"\r", b"\t": rb"\t", b"\v": rb"\v", b"\\": rb"\\"}
)


class MaskedRows:
    """Masks the rows of one announced table. ``columns``: names in the rows' order. ``noted``: by column, see
    :meth:`cdc.mask_rules.Masks.noted`."""

    def __init__(self, columns: Sequence[str], noted: Mapping[str, str], masks: Masks, table: str) -> None:
        self._table = table
        self._dropped = [noted.get(column) == DROPPED for column in columns]
        self._functions = [_function(noted.get(column), masks) for column in columns]
        self._kept = (len(columns) - sum(self._dropped)).to_bytes(2)

    def frame(self, frame: bytes) -> bytes:
        """An insert, update or delete in an XLogData message, masked. DecodeError, which quotes no value, for a broken
        one."""
        out: list[bytes] = [frame[:_ROW_AT]]
        at = _ROW_AT
        # Too short for a row: the decoder says so.
        while at < len(frame):
            at = self._row(frame, at, out)
        masked = b"".join(out)
        return Abridged(masked) if isinstance(frame, Abridged) else masked

    def _row(self, frame: bytes, at: int, out: list[bytes]) -> int:
        count = int.from_bytes(frame[at + 1 : at + 3])
        if frame[at] not in _MARKERS or count != len(self._functions):
            self._refuse(frame)
        out += (frame[at : at + 1], self._kept)
        at += 3
        for function, dropped in zip(self._functions, self._dropped, strict=True):
            start, at = at, self._end(frame, at)
            if dropped:
                continue
            kind = frame[start]
            if function is None or kind != _TEXT:
                out.append(frame[start:at])
            else:
                value = function(frame[start + 5 : at])
                out += (b"t", len(value).to_bytes(4), value)
        return at

    def _end(self, frame: bytes, at: int) -> int:
        """Where a value ends."""
        kind = frame[at] if at < len(frame) else 0
        if kind == _TEXT:
            end = at + 5 + int.from_bytes(frame[at + 1 : at + 5])
        elif kind in _NO_VALUE:
            end = at + 1
        elif kind == _OMITTED and isinstance(frame, Abridged):
            end = at + _OMITTED_BYTES
        else:
            self._refuse(frame)
        if end > len(frame):
            self._refuse(frame)
        return end

    def _refuse(self, frame: bytes) -> NoReturn:
        raise DecodeError(
            f"a row of {self._table}, which has masks, is not as the table was announced "
            f"(record at {Lsn(int.from_bytes(frame[1:9]))})",
            hint="nothing was skipped and nothing acknowledged; please report it with the server's version",
        )


class MaskedTables:
    """The announced tables that have masks. ``tables``: by the oid's bytes."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self.tables: dict[bytes, MaskedRows] = {}

    def announced(self, relation: Relation, shape: TableSchema | None) -> None:
        """Rows that follow are of this form. ``shape``: by which they are masked. None where they are not followed, or
        are kept until they can be read, as those of a table with masks never are."""
        oid = relation.relation_oid.to_bytes(4)
        self.tables.pop(oid, None)
        if shape is not None and (noted := shape.noted_masks):
            columns = [column.name for column in relation.columns]
            self.tables[oid] = MaskedRows(columns, noted, self._masks, str(shape.table))


class MaskedValues:
    """Masks values of a table's columns by its shape, dropped columns not among them.

    ConfigError where the shape lacks a mask of ``masks``, or was masked under another key.
    """

    def __init__(self, schema: TableSchema, masks: Masks) -> None:
        masks.require(schema)
        self._functions: list[MaskValue | None] = [
            masks.function(column.mask.rule) if column.mask is not None else None for column in schema.columns
        ]
        self._places = [i for i, function in enumerate(self._functions) if function is not None]

    def __bool__(self) -> bool:
        return bool(self._places)

    def value(self, index: int, text: bytes) -> bytes:
        """The value of one column, masked if the column is."""
        function = self._functions[index]
        return text if function is None else function(text)

    def line(self, line: bytes, unescape: Callable[[bytes], bytes | None]) -> bytes:
        """A line of COPY in text format, masked. ``unescape``: a field's value, None for NULL. DecodeError for a line
        of another number of fields."""
        fields = line.removesuffix(b"\n").split(b"\t")
        if len(fields) != len(self._functions):
            raise DecodeError(f"a row of {len(fields)} columns where {len(self._functions)} were asked for")
        for i in self._places:
            text = unescape(fields[i])
            if text is not None:
                fields[i] = _COPY_SPECIAL.sub(lambda found: _COPY_ESCAPED[found[0]], self.value(i, text))
        return b"\t".join(fields)


def _function(noted: str | None, masks: Masks) -> MaskValue | None:
    return None if noted is None or noted == DROPPED else masks.function(noted)
