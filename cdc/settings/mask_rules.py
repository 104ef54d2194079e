"""The masks that columns may have: a closed set, what each does to a value, and those of a pipeline's tables. Pure.

Columns are masked before anything leaves capture. A table's shape says how each of its columns was masked, see
:class:`cdc.record.schema.Mask`: what reads rows by a shape masks them by it.

A value is masked as the text that Postgres prints for it, so that each way of reading it gives the same: the stream,
COPY and a statement's answer. A masked column is text on the wire. NULL stays NULL, so no function here sees one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Literal

from cdc.process.errors import ConfigError
from cdc.record.schema import DROPPED, Column, DroppedColumn, Mask, TableSchema
from cdc.record.topic_names import TableName

MaskValue = Callable[[bytes], bytes]
"""A value's text as Postgres prints it, to the masked text."""

MASK_KEY_HINT = 'set [source] mask_key = "env:CDC_MASK_KEY", and that variable to 32 bytes or more at random'
SHORTEST_KEY_BYTES = 32
"""As long as what SHA-256 gives: below it, the key is the weaker part (RFC 2104)."""
_TRUNCATE = re.compile(r"truncate:([1-9]\d{0,8})")
_FORMS = 'a mask is "hmac", "drop" or "truncate:20", with the number of characters to keep'
_FINGERPRINT_OF = b"headrace mask key"
_FINGERPRINT_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class MaskRule:
    """One mask. ``characters``: how many ``truncate`` keeps.

    >>> MaskRule.parse("truncate:20"), str(MaskRule.parse("hmac"))
    (MaskRule(kind='truncate', characters=20), 'hmac')
    """

    kind: Literal["hmac", "drop", "truncate"]
    characters: int = 0

    @classmethod
    def parse(cls, text: str) -> MaskRule:
        """The mask of a setting's text. ValueError for any other text."""
        if text in ("hmac", "drop"):
            return cls("hmac" if text == "hmac" else "drop")
        found = _TRUNCATE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no mask: {_FORMS}")
        return cls("truncate", int(found[1]))

    def __str__(self) -> str:
        return f"truncate:{self.characters}" if self.kind == "truncate" else self.kind


class MaskKey:
    """The key of masks by ``hmac``. Shows as ``***``.

    ConfigError for one that is shorter than 32 bytes in UTF-8. ``fingerprint``: says whether two keys are the same one,
    and nothing else of a key that was not guessed.
    """

    __slots__ = ("_key", "fingerprint")

    def __init__(self, text: str) -> None:
        self._key = text.encode()
        if len(self._key) < SHORTEST_KEY_BYTES:
            raise ConfigError(
                f"the key of masks, [source] mask_key, has less than {SHORTEST_KEY_BYTES} bytes",
                hint="make one at random: openssl rand -base64 48",
            )
        self.fingerprint = hmac.digest(self._key, _FINGERPRINT_OF, "sha256").hex()[:_FINGERPRINT_CHARACTERS]

    def masked(self, text: bytes) -> bytes:
        """HMAC-SHA-256 of a value's text, as 64 hex digits."""
        return hmac.digest(self._key, text, hashlib.sha256).hex().encode()

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


def truncated(text: bytes, characters: int) -> bytes:
    """The first so many characters of a text in UTF-8: characters as Postgres counts them, not bytes.

    >>> truncated("łódź".encode(), 2).decode()
    'łó'
    """
    if len(text) <= characters:
        return text
    # A character takes at most four bytes, and one that is cut in two at the end is dropped.
    return text[: 4 * characters].decode(errors="ignore")[:characters].encode()


_NONE: Mapping[str, MaskRule] = MappingProxyType({})
_CHANGED_HINT = "its rows have to be read again under the masks of now: cdc snapshot begins anew"


@dataclass(frozen=True, slots=True)
class Masks:
    """``tables``: rules by ``schema.table`` and column. ``key``: None where no rule needs one. Shows no key."""

    tables: Mapping[str, Mapping[str, MaskRule]] = field(default_factory=dict)
    key: MaskKey | None = None

    def __bool__(self) -> bool:
        return bool(self.tables)

    def of(self, table: TableName | str) -> Mapping[str, MaskRule]:
        """The rules of a table by column, empty for most."""
        return self.tables.get(str(table), _NONE)

    def noted(self, rule: MaskRule) -> str:
        """A rule as a shape notes it: with the fingerprint of the key that it needs. ConfigError without that key."""
        return f"hmac:{self._known_key().fingerprint}" if rule.kind == "hmac" else str(rule)

    def noted_of(self, table: TableName | str) -> dict[str, str]:
        """All rules of a table as they are noted, by column."""
        return {column: self.noted(rule) for column, rule in sorted(self.of(table).items())}

    def noted_among(self, schema: TableSchema) -> dict[str, str]:
        """Those of a shape's columns. A column that came later is not among them."""
        names = {column.name for column in schema.columns} | {one.name for one in schema.dropped}
        return {column: noted for column, noted in self.noted_of(schema.table).items() if column in names}

    def function(self, noted: str) -> MaskValue:
        """The function that masks a value by a rule as it was noted. ConfigError where it was noted under another key,
        or is ``drop``, which leaves no value."""
        kind, _, of = noted.partition(":")
        if kind == "hmac":
            key = self._known_key()
            if key.fingerprint != of:
                raise ConfigError("a table's shape was noted under another [source] mask_key", hint=_CHANGED_HINT)
            return key.masked
        rule = MaskRule.parse(noted)
        if rule.kind != "truncate":
            raise ConfigError(f"the mask {kind} leaves no value")
        return partial(truncated, characters=rule.characters)

    def marked(self, schema: TableSchema) -> TableSchema:
        """A shape that has its columns' masks noted, without a key and with the columns' own types, to see which
        columns are masked."""
        rules = {column: rule for column, rule in self.of(schema.table).items() if column not in schema.noted_masks}
        gone = [one for one in schema.columns if one.name in rules and rules[one.name].kind == DROPPED]
        columns = tuple(
            replace(one, mask=_mask(one, str(rules[one.name]))) if one.name in rules else one
            for one in schema.columns
            if one not in gone
        )
        dropped = (DroppedColumn(name=one.name, attnum=one.attnum, type_oid=one.type_oid) for one in gone)
        return replace(schema, columns=columns, dropped=(*schema.dropped, *dropped))

    def require(self, schema: TableSchema) -> None:
        """ConfigError unless the shape has each mask that the settings want for its columns: one from before would show
        values."""
        found = schema.noted_masks
        wanted = self.noted_among(schema)
        lacking = [column for column, noted in wanted.items() if found.get(column) != noted]
        if lacking:
            raise ConfigError(
                f"the masks of {schema.table} changed since its shape was noted: {', '.join(lacking)}",
                hint=_CHANGED_HINT,
            )

    def _known_key(self) -> MaskKey:
        if self.key is None:
            raise ConfigError("masks by hmac need a key", hint=MASK_KEY_HINT)
        return self.key


NO_MASKS = Masks()


def require_masks(table: TableName, lacking: Iterable[tuple[str, str]]) -> None:
    """ConfigError for a relation that would show what is masked elsewhere. ``lacking``: the masks that it has not, each
    by the table and the column that have or had it."""
    found = ", ".join(f"{column} of {other}" for other, column in sorted(set(lacking)))
    if found:
        raise ConfigError(
            f"{table} lacks masks that it has as a part of another table, or had under another name: {found}",
            hint=f'set them under [tables."{table}"] columns, or leave the table out: [source] exclude. A column that '
            "has another name since cannot be told from others: rename it back first",
        )


def _mask(column: Column, rule: str) -> Mask:
    return Mask(rule=rule, type=column.type, type_oid=column.type_oid, kind=column.kind, typmod=column.typmod)
