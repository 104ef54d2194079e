"""Whether the source has a row of a key: for ``cdc forget``. It reads, and writes nothing to the log."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from cdc.clock import SYSTEM_CLOCK
from cdc.cuts import VerifiedTable
from cdc.errors import ConfigError
from cdc.forget.typed_key import TypedKey
from cdc.masks import masks_of
from cdc.schema import TableSchema
from cdc.settings import Settings
from cdc.topic import TableName
from connectors.postgres.catalog_shapes import captured_schema, resolve_tables
from connectors.postgres.connections import Connection, connect
from connectors.postgres.cut import SourceCut

_APPLICATION = "cdc forget"
_NO_PUBLICATION = ""
"""A row that the publication's filter leaves out is in the source all the same."""


def source_has(settings: Settings, shape: TableSchema, key: TypedKey) -> bool:
    """Whether the table has the row now. ``shape``: the newest that the log knows.

    A key whose type has several texts for one value is looked for in the whole table, and so is a masked one.
    SourceError when the source does not answer. ConfigError where it has no such table, or these settings mask its key
    otherwise than capture did: the row would never be found (H336).
    """

    def session(autocommit: bool) -> Connection:
        return connect(settings.source, application_name=_APPLICATION, autocommit=autocommit)

    with closing(SourceCut(session, _NO_PUBLICATION, SYSTEM_CLOCK, masks=masks_of(settings))) as source:
        table = _table(settings, shape)
        if key.exact:
            return bool(source.rows_of(table, [key.text]))
        return any(key.matches(one) for keys, _ in source.rows(table) for one in keys)


def tables_now(settings: Settings) -> frozenset[TableName]:
    """The tables that the settings take and the source has. SourceError when it does not answer."""
    with closing(connect(settings.source, application_name=_APPLICATION, autocommit=True)) as connection:
        return frozenset(found.table for found in resolve_tables(connection, settings, lambda _: None))


def _table(settings: Settings, shape: TableSchema) -> VerifiedTable:
    with closing(connect(settings.source, application_name=_APPLICATION, autocommit=True)) as connection:
        for found in resolve_tables(connection, settings, lambda _: None):
            if found.table == shape.table:
                now = captured_schema(connection, settings, found.oid, topic=found.topic, encoding=shape.encoding)
                if now.key_masks != shape.key_masks:
                    raise ConfigError(
                        f"capture masks the key of {now.table} otherwise than these settings: "
                        "whether the row is gone there cannot be asked",
                        hint="run the command under capture's settings and key of masks; cdc run begins a new mask",
                    )
                return VerifiedTable(
                    shape=replace(now, columns=now.key), stored=shape, rows=0, partitioned=found.partitioned
                )
    raise ConfigError(
        f"the source has no captured table {shape.table}: whether the row is gone there cannot be asked",
        hint="cdc diff says what differs; cdc drop --topics takes a pipeline's topics away",
    )
