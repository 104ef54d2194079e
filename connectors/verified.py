"""The source's side of a verification: its reader, and the captured tables in their two shapes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from cdc.clock import SYSTEM_CLOCK
from cdc.cuts import VerifiedTable
from cdc.settings import Settings
from cdc.state import TopicsState
from cdc.topic import TableName, schema_topic
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.catalog_shapes import resolve_tables, table_schema
from connectors.postgres.connections import connect
from connectors.postgres.cut import SourceCut

_APPLICATION = "cdc verify"


def open_cut(settings: Settings) -> SourceCut:
    """The source's reader, on two sessions of its own."""
    return SourceCut(
        lambda autocommit: connect(settings.source, application_name=_APPLICATION, autocommit=autocommit),
        settings.publication,
        SYSTEM_CLOCK,
    )


def verified_tables(settings: Settings, topics: TopicsState, source: SourceCut) -> Mapping[TableName, VerifiedTable]:
    """The captured tables by name, each in its shape now and in the one the log knows."""
    schemas = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name)))
    tables: dict[TableName, VerifiedTable] = {}
    with closing(connect(settings.source, application_name=_APPLICATION, autocommit=True)) as connection:
        for table in resolve_tables(connection, settings):
            if str(table.table) not in topics.tables:
                continue
            shape = table_schema(
                connection, table.oid, topic=table.topic, encoding="readable", publication=settings.publication
            )
            tables[table.table] = VerifiedTable(
                shape=shape,
                stored=schemas.latest(table.table) or shape,
                rows=source.estimate(table.oid),
                partitioned=table.partitioned,
            )
    return tables
