"""The masks that the settings want, and where it is noted under which a table's rows were read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

from cdc.mask_rules import MaskKey, MaskRule, Masks
from cdc.schema import TableSchema
from cdc.secret_reference import reveal
from cdc.settings import Settings
from cdc.state import Document
from cdc.topic import TableName


def masks_of(settings: Settings) -> Masks:
    """The masks that the settings want. ConfigError where their key cannot be read or is too short."""
    masks, reference = rules_of(settings), settings.source.mask_key
    keyed = any(rule.kind == "hmac" for rules in masks.tables.values() for rule in rules.values())
    return replace(masks, key=_key(reference.reference)) if keyed and reference is not None else masks


def rules_of(settings: Settings) -> Masks:
    """The same without the key, for those who mask nothing and have no key."""
    return Masks(
        {
            name: {column: MaskRule.parse(text) for column, text in table.columns.items()}
            for name, table in settings.tables.items()
            if table.columns
        }
    )


def as_masked(
    settings: Settings, shape: Callable[[TableName], TableSchema | None]
) -> Callable[[TableName], TableSchema | None]:
    """The shape of a table with the masks of the settings noted, too: they may be newer than the log's shape."""

    def found(table: TableName) -> TableSchema | None:
        known = shape(table)
        return None if known is None else rules_of(settings).marked(known)

    return found


@cache
def _key(reference: str) -> MaskKey:
    """Read once in a process: under another key of a file that changed meanwhile, a reading would differ from the
    stream. The next start finds it, and has the tables read again."""
    return MaskKey(reveal(reference))


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskState(Document):
    """The masks under which all rows of each table were read, or are asked for: table -> column -> rule as noted.

    ``versions``: the newest shape of each of these tables that the log knew then. ``partitions``: oids of relations
    that are partitions of them, or were. ``asked``: of each table whose rows are still to be read under them the serial
    of the request, until it or a later one of the whole table is done.
    """

    WHAT = "masks"

    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, list[int]] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
