"""The histories that streams are joined with: which store has each, and how Spark reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException

from cdc.process.errors import ConfigError, SinkError
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings
from cdc.settings.sink_settings import histories_in
from connectors.postgres.server.table_selection import takes
from sinks.contract.kinds import SparkParts, SparkReads
from sinks.contract.sink_spec import attribute
from sinks.contract.stores import hidden_spec_of, kind_of, sink_settings
from sinks.warehouse.warehouse_columns import arrow_type, warehouse_columns
from spark.frames.history_watermarks import KeptHistory
from spark.streams.past_join import PastTable, result_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.frames.ports import FrameLog
    from spark.streams.stream_text import StreamSpec
    from spark.streams.typed_events import Events


def past_parts(settings: Settings) -> list[SparkParts]:
    """What Spark needs to read the histories that streams are joined with."""
    if not any(one.as_of for stream in settings.streams.values() for one in stream.events.values()):
        return []
    kinds = {kind.name: kind for kind in (kind_of(name, settings) for name in settings.sinks)}
    return [kind.reads.parts for kind in kinds.values() if kind.reads is not None]


def joined_result(
    session: SparkSession, settings: Settings, log: FrameLog, spec: StreamSpec
) -> tuple[DataFrame, dict[str, PastTable]]:
    """What a text gives, over streams without rows, and the histories that its inputs are joined with. ConfigError and
    SinkError as :func:`past_tables`, ConfigError as :func:`spark.streams.past_join.result_of`."""
    pasts = past_tables(session, settings, log, spec)
    return result_of(session, spec, pasts), pasts


def past_tables(session: SparkSession, settings: Settings, log: FrameLog, spec: StreamSpec) -> dict[str, PastTable]:
    """The histories of a stream's inputs. ConfigError where the settings name no store for one, or a table that is not
    captured or has no key, SinkError while the store does not have it."""
    return {one.name: _past(session, settings, log, spec, one) for one in spec.events if one.as_of}


def _past(session: SparkSession, settings: Settings, log: FrameLog, spec: StreamSpec, given: Events) -> PastTable:
    schema, _, name = given.as_of.partition(".")
    shapes = log.versions(TableName(schema, name))
    if not shapes:
        raise ConfigError(
            f"[streams.{spec.name}.events.{given.name}] as_of: the pipeline has no table {given.as_of}",
            hint="name a captured table as schema.table; cdc init makes a new one known",
        )
    where = f"[streams.{spec.name}.events.{given.name}]"
    require_one_text(f"{where} as_of {given.as_of}", shapes[-1])
    sink, reads = _store_of(settings, where, given.as_of)
    history = KeptHistory(sink=sink, spec=hidden_spec_of(sink, settings), shape=shapes[-1])
    place = attribute(reads.place, history.spec.kind)(history.spec, history.kept)
    try:
        frame = session.read.format(reads.source).load(place)
    except PySparkException:
        raise SinkError(
            f"the store of {sink} has no {history.kept.table} that Spark can read",
            hint=f"cdc sink {sink} makes it; for an object store [spark.conf] needs what Spark reads it with",
        ) from None
    names = {column.source.name: column.name for column in warehouse_columns(history.kept)}
    key = tuple(names[column.name] for column in history.kept.key)
    return PastTable(table=given.as_of, frame=frame, key=key, waits_for=history.option())


_SEVERAL_TEXTS = {"numeric": "numeric(20,4)", "bpchar": "varchar(20)", "citext": "text", "interval": "int8"}
"""Kinds of which equal values may be written otherwise, as 1.5 and 1.50, and what is written in one way."""


def require_one_text(where: str, shape: TableSchema) -> None:
    """ConfigError for a table's key that an event may hold in other words. ``where``: the setting, for the message."""
    for column in shape.key:
        # A numeric that is a number in the warehouse, too, is compared as one.
        if column.kind in _SEVERAL_TEXTS and not pa.types.is_decimal(arrow_type(column)):
            raise ConfigError(
                f"{where}: its key has the column {column.name} of {column.type}, of which equal values are not always "
                "the same text, so events would miss rows",
                hint=f"let the key be of a type that is written in one way, as {_SEVERAL_TEXTS[column.kind]}",
            )


def _store_of(settings: Settings, where: str, table: str) -> tuple[str, SparkReads]:
    keeping = [name for name in settings.sinks if takes(table, histories_in(sink_settings(name, settings)), ())]
    fit = [(name, reads) for name in keeping if (reads := kind_of(name, settings).reads) is not None]
    if len(fit) == 1:
        return fit[0]
    if fit:
        names = ", ".join(name for name, _ in fit)
        said, hint = f"several sinks keep the history of {table}: {names}", "let one of them keep it"
    elif keeping:
        said, hint = f"{keeping[0]} is no Delta warehouse, and no other is joined", "keep the history in one of Delta"
    else:
        said, hint = (
            f"no sink keeps the history of {table}",
            f'[sinks.NAME] history = ["{table}"], of a Delta warehouse',
        )
    raise ConfigError(f"{where} as_of: {said}", hint=hint)
