"""A key as a person writes it, and whether a key of a record or a store is the same one. Pure."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from hashlib import blake2b
from urllib.parse import unquote
from uuid import UUID

import orjson

from cdc.errors import UsageError
from cdc.foreign import quoted
from cdc.schema import Column, TableSchema
from cdc.wire.plain import PlainTable, escape_key
from cdc.wire.plain import store_key as stored
from cdc.wire.types import EXACT_KINDS, INTEGERS

_ESCAPED = re.compile(r"(?:[^%:]|%25|%3A)*")
_DATE, _CLOCK = r"[+-]?\d{4,}-\d\d-\d\d", r"\d\d:\d\d:\d\d(?:\.\d+)?"
_ENDLESS = "|-?infinity"
_FORMS = {
    "bool": re.compile("true|false"),
    "date": re.compile(f"{_DATE}Z{_ENDLESS}"),
    "time": re.compile(f"{_CLOCK}Z"),
    "timetz": re.compile(f"{_CLOCK}Z"),
    "timestamp": re.compile(f"{_DATE}T{_CLOCK}Z{_ENDLESS}"),
    "timestamptz": re.compile(f"{_DATE}T{_CLOCK}Z{_ENDLESS}"),
    "numeric": re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|NaN|-?Infinity"),
    "bytea": re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
}
"""The text of a value in the stores, by kind. Another text of it, as psql shows it, would be taken for a key that
nobody knows (H305)."""
_WITHOUT_ZONE = frozenset(("date", "time", "timestamp"))
_TIMES = frozenset(("time", "timetz", "timestamp", "timestamptz"))


@dataclass(frozen=True, slots=True)
class TypedKey:
    """``typed``: as it was written. ``text``: the key as the stores have it. ``kinds``: of the key's columns.
    ``masks``: of those that are masked, as :attr:`cdc.schema.TableSchema.key_masks` has them."""

    typed: str
    text: str
    kinds: tuple[str, ...]
    masks: tuple[str, ...] = ()

    @classmethod
    def read(cls, typed: str, shape: TableSchema) -> TypedKey:
        """A key of the table: its columns' values joined by ``:`` as the stores have them, or the record's JSON.

        The value of a key of one column may have a ``:`` in it. UsageError, naming the columns, for what is no key.
        """
        kinds = tuple("" if column.array else column.kind for column in shape.key)
        if not shape.key:
            raise UsageError(f"{shape.table} has no key", hint="cdc forget asks for the key of a row")
        text = _of_json(typed, shape)
        parts = _parts(typed, shape) if text is None else [unquote(part) for part in text.split(":")]
        values = [_value(part, column) for part, column in zip(parts, shape.key, strict=True)]
        return cls(typed, ":".join(map(escape_key, values)), kinds, shape.key_masks)

    @property
    def exact(self) -> bool:
        """Whether no other text is equal to this key's."""
        return EXACT_KINDS.issuperset(self.kinds)

    def matches(self, store_key: str) -> bool:
        """Whether a key as a store has it is this one, by the source's equality."""
        if store_key in (self.text, stored((self.text,))):
            return True
        return not self.exact and self._folded(store_key) == self._folded(self.text)

    def digest(self, table: str) -> str:
        """Stands for the key in the log. A person who can guess the key can tell that it is this one."""
        return blake2b(f"{table}\0{self.text}".encode(), digest_size=8).hexdigest()

    def _folded(self, store_key: str) -> list[Hashable]:
        parts = store_key.split(":")
        if len(parts) != len(self.kinds):
            return [store_key, None]
        return [_folded(unquote(part), kind) for part, kind in zip(parts, self.kinds, strict=True)]


def _of_json(typed: str, shape: TableSchema) -> str | None:
    """The key that JSON with the key's columns is. None for what is no such JSON."""
    if not typed.lstrip().startswith("{"):
        return None
    with suppress(orjson.JSONDecodeError):
        found = orjson.loads(typed)
        if set(found) == {column.name for column in shape.key}:
            try:
                return PlainTable(shape).key(typed.encode())
            except ValueError as error:
                raise UsageError(f"that is no key of {shape.table}: {quoted(error)}", hint=_hint(shape)) from None
    return None


def _parts(typed: str, shape: TableSchema) -> Sequence[str]:
    parts = typed.split(":")
    if len(parts) == len(shape.key) and all(map(_ESCAPED.fullmatch, parts)):
        return [unquote(part) for part in parts]
    if len(shape.key) == 1:
        return [typed]
    raise UsageError(f"that is no key of {shape.table}: it has {len(shape.key)} columns", hint=_hint(shape))


def _value(part: str, column: Column) -> str:
    try:
        if "\0" in part:
            raise ValueError
        if column.array:
            return part
        if column.kind in INTEGERS:
            return str(int(part))
        return str(UUID(part)) if column.kind == "uuid" else _in_form(part, column.kind)
    except ValueError:
        raise UsageError(
            f"that is no key: the column {column.name} takes {column.type}", hint="write it as cdc events prints it"
        ) from None


def _in_form(part: str, kind: str) -> str:
    form = _FORMS.get(kind)
    if form is None:
        return part
    candidates = [part]
    if kind in _WITHOUT_ZONE:
        candidates += [f"{part}Z", f"{part.replace(' ', 'T', 1)}Z"]
    found = next((one for one in candidates if form.fullmatch(one)), None)
    if found is None:
        raise ValueError
    return found


def _folded(part: str, kind: str) -> Hashable:
    if kind in _TIMES:
        return part.removesuffix("Z").rstrip("0").rstrip(".") if "." in part else part.removesuffix("Z")
    with suppress(InvalidOperation, ValueError):
        if kind in ("numeric", "money"):
            number = Decimal(part)
            return number if number.is_finite() else part
        if kind in ("float4", "float8"):
            return float(part)
    return {"citext": part.lower(), "bpchar": part.rstrip(" ")}.get(kind, part)


def _hint(shape: TableSchema) -> str:
    names = ":".join(column.name for column in shape.key)
    members = ", ".join(f'"{column.name}": …' for column in shape.key)
    return f"write {names}, as the stores do (a colon within is %3A), or '{{{members}}}'"
