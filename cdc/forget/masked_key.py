"""A key with masked columns as a person has it: its values, or the HMACs that the stores have. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import unquote

from cdc.errors import ConfigError, UsageError
from cdc.forget.typed_key import TypedKey
from cdc.mask_rules import Masks
from cdc.schema import Column, Mask, TableSchema
from cdc.wire.plain import escape_key
from cdc.wire.types import EXACT_KINDS

_HMAC = re.compile("[0-9a-f]{64}")
_AS_STORES = "write it as the stores and cdc events have it: 64 hex digits for each masked column"


class AskedKey(NamedTuple):
    """``key``: as the stores have it. ``also``: other forms that the row may stand under. ``note``: a sentence about
    them, empty where there is nothing to say. ``typed`` and ``note`` have no plain value of a masked column."""

    key: TypedKey
    also: tuple[TypedKey, ...] = ()
    note: str = ""


def asked_key(typed: str, shape: TableSchema, masks: Masks) -> AskedKey:
    """The key of a row in each form that places may have it in: masked, and plain as before its mask.

    ``masks``: of the settings. UsageError for what is no key of the table, and for a plain value that Postgres may
    print in several ways: its HMAC is not known. ConfigError for a plain one without the key of masks of its HMAC.
    """
    if not shape.masked_key:
        return AskedKey(TypedKey.read(typed, shape))
    plain = replace(shape, columns=tuple(map(_unmasked, shape.columns)))
    parts = _parts(typed, shape, plain)
    hidden = [_HMAC.fullmatch(part) is not None for part, c in zip(parts, shape.key, strict=True) if c.mask is not None]
    if all(hidden):
        key = _of_parts(parts, shape)
        # A value may have 64 hex digits itself.
        with suppress(UsageError, ConfigError):
            return AskedKey(key, (_masked(_of_parts(parts, plain), shape, masks),))
        return AskedKey(key)
    if any(hidden):
        raise UsageError(f"a part of that key of {shape.table} is an HMAC, and another one is not", hint=_AS_STORES)
    told = _of_parts(parts, plain)
    key = _masked(told, shape, masks)
    note = f"the key of {shape.table} is masked: it was looked for as {key.text}, and as it was typed"
    return AskedKey(key, (replace(told, typed=""),), note)


def _parts(typed: str, shape: TableSchema, plain: TableSchema) -> list[str]:
    try:
        text = TypedKey.read(typed, shape).text
    except UsageError:
        # JSON of plain values has numbers where a masked column has text.
        text = TypedKey.read(typed, plain).text
    return [unquote(part) for part in text.split(":")]


def _of_parts(parts: Sequence[str], shape: TableSchema) -> TypedKey:
    text = ":".join(map(escape_key, parts))
    return replace(TypedKey.read(text, shape), typed=text)


def _masked(told: TypedKey, shape: TableSchema, masks: Masks) -> TypedKey:
    parts = [unquote(part) for part in told.text.split(":")]
    return _of_parts(
        [p if c.mask is None else _hmac(p, c.mask, shape, masks) for p, c in zip(parts, shape.key, strict=True)], shape
    )


def _hmac(part: str, mask: Mask, shape: TableSchema, masks: Masks) -> str:
    try:
        function = masks.function(mask.rule)
    except ConfigError:
        raise ConfigError(
            f"the key of {shape.table} is masked, and these settings have not the key of masks that it was masked with",
            hint=f"{_AS_STORES}. Or run the command where capture's settings and key of masks are",
        ) from None
    return function(_printed(part, mask, shape).encode()).decode()


def _printed(part: str, mask: Mask, shape: TableSchema) -> str:
    """A value as Postgres prints it, from its text in the stores."""
    if mask.array or mask.kind not in EXACT_KINDS or (mask.kind == "date" and part.startswith("-")):
        raise UsageError(
            f"the key of {shape.table} is masked, and it is not known how Postgres prints a value of {mask.type}",
            hint=_AS_STORES,
        )
    if mask.kind == "bool":
        return part[:1]
    return part.removesuffix("Z") if mask.kind == "date" else part


def _unmasked(column: Column) -> Column:
    mask = column.mask
    if mask is None:
        return column
    return replace(column, mask=None, type=mask.type, type_oid=mask.type_oid, kind=mask.kind, array=mask.array)
