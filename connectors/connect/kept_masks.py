"""Whether Debezium keeps the masks of columns: asked of the source before a deploy, and of the connector that runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import closing

from cdc.condition import NoCondition, columns, parse
from cdc.errors import ConfigError
from cdc.foreign import quoted
from cdc.found import Unknown, look
from cdc.masks import rules_of
from cdc.settings import Settings
from connectors.connect.published import Known
from connectors.debezium.captured_tables import named_tables
from connectors.debezium.client import ConnectClient, MissingConnector
from connectors.debezium.connector_config import connector_name, debezium_settings
from connectors.debezium.mask_options import remasked_columns
from connectors.postgres.catalog_shapes import captured_schema, resolve_tables
from connectors.postgres.connections import connect
from connectors.postgres.problems import unlike_debezium


def require_kept(settings: Settings) -> None:
    """ConfigError where Debezium would not keep a mask, whoever makes the publication: of a table or a column that is
    not there, of a type that it passes over, or beside a partition that is named as a table.

    Nothing is asked without masks. SourceError where Postgres cannot be asked.
    """
    masked = rules_of(settings).tables
    if not masked or debezium_settings(settings).database != "postgres":
        return
    with closing(connect(settings.source, application_name="cdc connect")) as session:
        tables = resolve_tables(session, settings)
        shapes = [
            captured_schema(session, settings, table.oid, topic=table.topic)
            for table in tables
            if str(table.table) in masked
        ]
    _refuse_partitions(settings, [str(table.table) for table in tables])
    for problem in (problem for shape in shapes for problem in unlike_debezium(shape)):
        raise ConfigError(problem.message, hint=problem.hint)


def _refuse_partitions(settings: Settings, captured: Iterable[str]) -> None:
    """A table that is named and is no captured one is a partition of one that is."""
    partitions = sorted({*named_tables(settings)} - {*captured})
    if partitions:
        raise ConfigError(
            f"{partitions[0]} is a partition of a captured table, and named beside it. Debezium's snapshot writes its "
            "rows to a topic of its own, past the masks of that table",
            hint=f"take {partitions[0]} out of [source] tables: its rows are read under the table's own name",
        )


def remasked_tables(settings: Settings, known: Known, tables: Iterable[object] = ()) -> tuple[str, ...]:
    """The captured tables that the connector in force masks otherwise than the settings do: their topics have the rows
    as they were masked before. None where nothing runs. ``tables``: captured ones that patterns meet."""
    if known.running is None or debezium_settings(settings).database != "postgres":
        return ()
    return tuple(remasked_columns(settings, known.running, map(str, tables)))


def cautions_of(settings: Settings, remasked: Iterable[str]) -> tuple[str, ...]:
    """A sentence where views may be over tables whose masks change: their plans know the masks of before."""
    named = ", ".join(remasked)
    if not named or not settings.views:
        return ()
    return (f"{named}: a view that runs goes on under the masks of before; end cdc view run, and start it again",)


def masked_otherwise_there(settings: Settings, tables: Iterable[object]) -> dict[str, str]:
    """Tables that the connector in force masks otherwise than the settings do, each with the sentence about it. None
    where no connector is. Where Kafka Connect does not answer, those that have masks here."""
    names = [str(table) for table in tables]
    client = ConnectClient(debezium_settings(settings))
    running = look(lambda: client.running_config(connector_name(settings)))
    if isinstance(running, Unknown) and isinstance(running.because, MissingConnector):
        return {}
    if isinstance(running, Unknown):
        masked = rules_of(settings).tables.keys() & {*names}
        return {table: f"it has masks, and those of the connector are not known: {running}" for table in sorted(masked)}
    return {
        table: f"the connector has other masks for {', '.join(columns)} than these settings"
        for table, columns in remasked_columns(settings, running, names).items()
        if table in names
    }


def require_unmasked(settings: Settings, tables: Iterable[str], where: str | None) -> None:
    """ConfigError for a condition that names a masked column of a table, or that is not understood: the topic of
    signals keeps its text, and so the plain value. Any is good for a table without masks."""
    masks = rules_of(settings)
    for table in tables:
        if where is not None and masks.of(table):
            _require_others(table, where, masks.of(table).keys())


def _require_others(table: str, where: str, masked: Collection[str]) -> None:
    whole = f"name other columns, or read the whole table: cdc connect signal snapshot {table}"
    try:
        named = sorted(columns(parse(where)) & {*masked})
    except NoCondition as why:
        raise ConfigError(
            f"{table} has masks, and --where is not understood, so that it may show a masked value: {quoted(str(why))}",
            hint=f'write it as "Conditions" in snapshot/README.md says; or {whole}',
        ) from None
    if named:
        raise ConfigError(
            f"{named[0]} of {table} is masked, and a condition on it would stand in the topic of signals as it is",
            hint=whole,
        )
