"""The outbox table as the catalog has it, and who may write logical messages."""

from __future__ import annotations

from dataclasses import replace

from cdc.process.errors import ConfigError
from cdc.process.sql_files import load
from cdc.record.server_facts import OutboxFacts
from cdc.record.topic_names import TableName
from cdc.settings.event_settings import OutboxSettings
from cdc.settings.model import Settings
from connectors.postgres.server.catalog_shapes import CapturedTable, survey
from connectors.postgres.server.connections import Connection
from connectors.postgres.server.table_problems import TableProblem

_SQL = load("connectors.postgres.server", "outbox.sql")


def outbox_table(conn: Connection, settings: Settings) -> CapturedTable | None:
    """The outbox table, with what stands in the way of its being published. None where the settings name none.

    ConfigError where it is not there, with the SQL that makes it.
    """
    outbox = settings.outbox
    if outbox is None or outbox.table is None:
        return None
    alone = settings.source.model_copy(update={"tables": (outbox.table,), "exclude": ()})

    def missing(_: ConfigError) -> None:
        raise ConfigError(f"the outbox table {outbox.table} does not exist", hint=f"make it: {made_by(outbox)}")

    (found, *_) = survey(conn, settings.model_copy(update={"source": alone, "tables": {}, "views": {}}), missing).tables
    if found.partitioned:
        plain = TableProblem(
            message=f"the outbox table {outbox.table} is partitioned",
            hint="make it a plain table: a row may be deleted in the transaction that inserts it, and stays small",
        )
        return replace(found, problems=(plain,))
    if found.key:
        return replace(found, problems=(*found.problems, *_unlike(conn, found, outbox)))
    keyless = TableProblem(
        message=f"the outbox table {outbox.table} has no primary key, so a delete of its rows would fail once it is "
        "published",
        hint=f"alter table {outbox.table} add primary key ({outbox.id});",
    )
    return replace(found, problems=(keyless,))


def _unlike(conn: Connection, found: CapturedTable, outbox: OutboxSettings) -> list[TableProblem]:
    types: dict[str, str] = dict(conn.execute(_SQL["columns"].encode(), {"oid": found.oid}).fetchall())
    named = {outbox.id, outbox.aggregatetype, outbox.aggregateid, outbox.type, outbox.payload, *outbox.headers.values()}
    problems = [
        TableProblem(
            message=f"the outbox table {found.table} has no column {name}",
            hint=f"add it, or say under [outbox] which column it is; a table as it is meant: {made_by(outbox)}",
        )
        for name in sorted(named - types.keys())
    ]
    if types.get(outbox.payload) == "bytea":
        problems.append(
            TableProblem(
                message=f"{found.table}.{outbox.payload} is bytea, and the payload of an event is JSON",
                hint=f"alter table {found.table} alter {outbox.payload} type jsonb using ...;",
            )
        )
    return problems


def read_outbox(conn: Connection, settings: Settings) -> OutboxFacts | None:
    """What the checks look at. None without an outbox."""
    if settings.outbox is None:
        return None
    (functions,) = conn.execute(_SQL["open_functions"].encode()).fetchone() or ((),)
    everyone = tuple(functions)
    try:
        found = outbox_table(conn, settings)
    except ConfigError as error:
        return OutboxFacts(table=None, problems=((error.message, error.hint or ""),), open_functions=everyone)
    problems = tuple((one.message, one.hint) for one in found.problems) if found is not None else ()
    table = found.table if found is not None else None
    return OutboxFacts(table=table, problems=problems, open_functions=everyone)


def outbox_name(settings: Settings) -> TableName | None:
    """The outbox table's name, None without one."""
    table = settings.outbox.table if settings.outbox is not None else None
    return TableName(*table.rsplit(".", 1)) if table is not None else None


def made_by(outbox: OutboxSettings) -> str:
    """The SQL that makes an outbox table."""
    texts = dict.fromkeys([outbox.aggregatetype, outbox.aggregateid, outbox.type, *sorted(outbox.headers.values())])
    columns = [
        f"{outbox.id} uuid primary key default gen_random_uuid()",
        *(f"{name} text not null" for name in texts if name not in (outbox.id, outbox.payload)),
        f"{outbox.payload} jsonb",
    ]
    return f"create table {outbox.table} ({', '.join(columns)});"
