"""Masks: a table's shape under them, and the places at which a value that was read becomes its masked one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NoReturn

from cdc.process.errors import ConfigError, DecodeError
from cdc.record.position import Lsn
from cdc.record.schema import DROPPED, Column, DroppedColumn, Identity, Mask, TableSchema
from cdc.settings.mask_rules import Masks, MaskValue
from cdc.wire.envelope import may_be_unavailable
from connectors.postgres.protocol.messages import Relation
from connectors.postgres.protocol.oversized_fields import Abridged

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
    :meth:`cdc.settings.mask_rules.Masks.noted`."""

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


_TEXT_OID = 25


def masked_shape(schema: TableSchema, masks: Masks) -> TableSchema:
    """The shape of a table as its records are written. The same one where no mask concerns it.

    ConfigError where the masks cannot be kept: they name a column that the table has not (it may have another name
    now, under which it would be written as it is), or a key by another mask than ``hmac``, or a key by which rows would
    have to be looked up.
    """
    rules = masks.of(schema.table)
    if not rules:
        return schema
    gone = sorted(set(rules) - {column.name for column in schema.columns})
    if gone:
        raise ConfigError(
            f"the settings mask {', '.join(gone)} of {schema.table}, which has no such column",
            hint=f'write its name of now under [tables."{schema.table}"] columns, or remove it there if it was dropped',
        )
    dropped = {column for column, rule in rules.items() if rule.kind == "drop"}
    _require_key(schema, [column for column, rule in rules.items() if rule.kind != "hmac"])
    noted = {column: masks.noted(rule) for column, rule in rules.items()}
    columns = tuple(_masked(column, noted) for column in schema.columns if column.name not in dropped)
    left_out = (column for column in schema.columns if column.name in dropped)
    shape = replace(
        schema,
        columns=columns,
        dropped=tuple(DroppedColumn(name=c.name, attnum=c.attnum, type_oid=c.type_oid) for c in left_out),
    )
    _require_lookups(shape)
    return shape


def require_passed(passed: TableSchema, oid: int, names: Sequence[str], now: TableSchema | None) -> None:
    """ConfigError for a message of a table with masks whose columns may be others than those of these names.

    The stream may lag behind the catalog and the settings, and a message has no numbers. ``passed``: the shape that the
    stream has passed. While the table is that relation and has all of these columns still, in ``now``, each message
    begins with them. So they have to have their names, and what follows in it came later. ``now``: None for a table
    that is gone.
    """
    numbers = passed.numbers
    columns = sorted(numbers, key=lambda name: numbers[name])
    there = now is None or numbers.items() <= now.numbers.items()
    if passed.oid != oid or list(names[: len(columns)]) != columns or not there:
        raise ConfigError(
            f"{passed.table}, which has masks, was made anew, or columns of it were renamed or dropped",
            hint="once the stream is past that, it is followed again and read anew",
        )


def _masked(column: Column, noted: dict[str, str]) -> Column:
    rule = noted.get(column.name)
    if rule is None:
        return column
    mask = Mask(
        rule=rule,
        type=column.type,
        type_oid=column.type_oid,
        kind=column.kind,
        array=column.array,
        typmod=column.typmod,
    )
    return replace(column, mask=mask, type="text", type_oid=_TEXT_OID, kind="text", array=False, typmod=-1)


def _require_key(schema: TableSchema, others: Collection[str]) -> None:
    merging = [column.name for column in schema.key if column.name in others]
    if merging:
        raise ConfigError(
            f"{merging[0]} is of the key of {schema.table}, and a key can be masked by hmac alone",
            hint="drop and truncate would make one row of several",
        )


def _require_lookups(shape: TableSchema) -> None:
    """A masked key finds no row in the source: then nothing may have to be looked up."""
    if not shape.masked_key:
        return
    name = shape.table
    if shape.deferrable_key:
        raise ConfigError(
            f"the key of {name} is masked, and it is deferrable: rows of it may have to be looked up by their key",
            hint="make the constraint not deferrable, or take the mask off its columns",
        )
    if shape.identity is not Identity.FULL and any(map(_may_be_left_out, shape.columns)):
        raise ConfigError(
            f"the key of {name} is masked, and an update may leave out long values, which are looked up by the key",
            hint=f"alter table {name} replica identity full; then each update carries them",
        )


def _may_be_left_out(column: Column) -> bool:
    if column.mask is not None:
        column = replace(column, kind=column.mask.kind, array=column.mask.array)
    return may_be_unavailable(column) and column.key_position is None
