"""The source's side of a verification: its reader, and the captured tables in their two shapes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing

from cdc.capture.table_masks import masks_of
from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import ConfigError
from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName, schema_topic
from cdc.settings.model import Settings
from cdc.verification.cut_port import VerifiedTable
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.server.catalog_shapes import captured_schema, resolve_tables
from connectors.postgres.server.connections import connect
from connectors.postgres.server.cut_reader import SourceCut
from connectors.postgres.server.table_selection import Pattern

_APPLICATION = "cdc verify"
_LEFT_OUT = "its mask leaves it out, so whether a store still has it from before is not known"


def open_cut(settings: Settings) -> SourceCut:
    """The source's reader, on two sessions of its own."""
    return SourceCut(
        lambda autocommit: connect(settings.source, application_name=_APPLICATION, autocommit=autocommit),
        settings.publication,
        SYSTEM_CLOCK,
        masks=masks_of(settings),
    )


def verified_tables(
    settings: Settings,
    topics: TopicsState,
    source: SourceCut,
    *,
    missing: Callable[[ConfigError], None] | None = None,
    unkept: dict[str, str] | None = None,
) -> Mapping[TableName, VerifiedTable]:
    """The captured tables by name, each in its shape now and in the one the log knows.

    ConfigError when an entry of the settings meets no table. With ``missing`` it is added to that list, and all others
    are found. The same holds of ``unkept``, and of a table whose masks cannot be kept: its name gets the
    sentence about it.
    """
    schemas = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name)))
    tables: dict[TableName, VerifiedTable] = {}
    with closing(connect(settings.source, application_name=_APPLICATION, autocommit=True)) as connection:
        for table in resolve_tables(connection, settings, missing):
            if str(table.table) not in topics.tables:
                continue
            try:
                shape = captured_schema(connection, settings, table.oid, topic=table.topic, encoding="readable")
            except ConfigError as refusal:
                if unkept is None:
                    raise
                unkept[str(table.table)] = refusal.message
                continue
            tables[table.table] = VerifiedTable(
                shape=shape,
                stored=schemas.latest(table.table) or shape,
                rows=source.estimate(table.oid),
                left_out={one.name: _LEFT_OUT for one in shape.dropped},
                partitioned=table.partitioned,
            )
    return tables


def masked_otherwise(tables: Mapping[TableName, VerifiedTable]) -> dict[str, str]:
    """Tables that capture masks otherwise than these settings and this key do, each with the sentence about it: their
    rows would all differ, and a repair would write others beside those of capture."""
    found = {}
    for table, one in tables.items():
        here = {name: rule for name, rule in one.shape.noted_masks.items() if name in one.stored.numbers}
        there = one.stored.noted_masks
        columns = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
        if columns:
            found[str(table)] = f"capture has other masks, or another key, for {', '.join(columns)} than these settings"
    return found


def gone_tables(settings: Settings, topics: TopicsState, found: Collection[TableName]) -> Mapping[str, str]:
    """Captured tables that the settings list by name, and that the source has no more, with the sentence about it."""
    here = {str(table) for table in found}
    listed = [pattern for pattern in map(Pattern.parse, settings.source.tables) if not pattern.wild]
    gone = (table for table in topics.tables if table not in here and any(one.names(table) for one in listed))
    return {table: f"{table} is not in the source any more" for table in sorted(gone)}
