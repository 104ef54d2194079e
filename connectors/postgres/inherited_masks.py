"""Masks that name no captured table, and tables that inherit from one with masks: by PARTITION OF or by INHERITS."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from cdc.errors import ConfigError
from cdc.mask_rules import Masks
from cdc.settings import Settings
from cdc.sql import load
from cdc.topic import TableName
from connectors.postgres.connections import Connection

_SQL = load("connectors.postgres", "inheritance.sql")


def parents_of(conn: Connection, oids: Iterable[int]) -> Mapping[int, list[TableName]]:
    """Of each of these relations that has one, every table from which it inherits, on any level."""
    found: dict[int, list[TableName]] = defaultdict(list)
    for oid, schema, name in conn.execute(_SQL["parents"].encode(), {"oids": list(oids)}).fetchall():
        found[oid].append(TableName(schema, name))
    return found


def parts_of_masked(conn: Connection, masks: Masks) -> Mapping[str, list[int]]:
    """Of each table with masks, the oids of what inherits from it, on any level. Asks nothing where none has masks."""
    found: dict[str, list[int]] = defaultdict(list)
    if masks:
        for table, oid in conn.execute(_SQL["parts"].encode(), {"tables": sorted(masks.tables)}).fetchall():
            found[table].append(oid)
    return found


def require_inherited(conn: Connection, table: TableName, oid: int, masks: Masks) -> None:
    """ConfigError for a table that inherits from one with masks, and lacks one of them."""
    if masks:
        for parent in parents_of(conn, [oid]).get(oid, ()):
            require_masks_of(table, f"inherits from {parent}", masks.of(parent), masks)


def require_masks_of(table: TableName, kinship: str, masked: Collection[str], masks: Masks) -> None:
    """ConfigError unless the settings mask each of these columns of the table. ``kinship``: what it is to the table
    that masks them."""
    plain = sorted(set(masked) - masks.of(table).keys())
    if plain:
        raise ConfigError(
            f"{table} {kinship}, which masks {', '.join(plain)}, and has no mask for it of its own",
            hint=f'set it under [tables."{table}"] columns, or leave the table out: [source] exclude. A column that '
            "has another name since cannot be told from others: rename it back first",
        )


def require_masked_tables(
    settings: Settings, captured: Collection[str], missing: Callable[[ConfigError], None] | None
) -> None:
    """ConfigError where masks are set for a table that is not captured, or ``missing`` called with it: its name is
    likely to be meant for another one, which would be written as it is."""
    for name in sorted(settings.tables.keys() - captured):
        error = ConfigError(
            f'[tables."{name}"] is no captured table',
            hint="name it as [source] tables does, a partitioned table by its own name and not by its partitions'",
        )
        if missing is None:
            raise error
        missing(error)
