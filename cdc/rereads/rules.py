"""The requests that may be made, and how they are written: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc.condition import Condition, NoCondition, columns, parse
from cdc.errors import ConfigError, UsageError
from cdc.schema import TableSchema
from cdc.state import (
    CommandState,
    FormState,
    ReadingState,
    RequestState,
    SnapshotState,
    TopicsState,
    find_all,
    requests_of,
)
from cdc.topic import TableName


def captured_table(documents: Mapping[bytes, bytes], name: str) -> TableName:
    """The captured table of this name, with or without its schema. ``documents``: the state topic's records.

    UsageError when there is not exactly one, or while the first snapshot is not complete.
    """
    head, topics = SnapshotState.find(documents), TopicsState.find(documents)
    if topics is None or head is None or head.state != "complete":
        raise UsageError("the first snapshot takes every table", hint="cdc snapshot, without a table")
    known = {table: TableName(*table.split(".", 1)) for table in topics.tables}
    if name in known:
        return known[name]
    # A schema's name may have a dot in it, and so may a table's: only the whole text is sure.
    found = [table for text, table in known.items() if text.endswith(f".{name}")]
    for form in find_all(documents, FormState) if not found else ():
        leaves = {f"{schema}.{leaf}" for _, schema, leaf, _ in form.leaves} - {form.table}
        if any(name in (leaf, leaf.partition(".")[2]) for leaf in leaves):
            hint = f"cdc snapshot {form.table} reads all of it"
            raise UsageError(f"{name} is a partition of {form.table}", hint=hint)
    if len(found) != 1:
        raise UsageError(
            f"{name} is {'no captured table' if not found else 'more than one captured table'}",
            hint=f"the tables are {', '.join(sorted(known)[:20])}; one that is new needs cdc init first",
        )
    return found[0]


def condition_on(text: str, schema: TableSchema) -> Condition:
    """The condition that a text is on a table. ConfigError when it is none, or names a column that is not captured,
    or is masked."""
    try:
        found = parse(text)
    except NoCondition as why:
        raise ConfigError(
            f"that is no condition on {schema.table}: {why}",
            hint="columns, literals, comparisons, in, between, like, is null, joined by and, or, not: "
            'see "Conditions" in snapshot/README.md',
        ) from None
    unknown = sorted(columns(found) - {column.name for column in schema.columns})
    if unknown:
        raise ConfigError(
            f"{schema.table} has no captured column {unknown[0]}",
            hint=f"its columns are {', '.join(column.name for column in schema.columns[:20])}",
        )
    masked = sorted(columns(found) & {column.name for column in schema.columns if column.mask is not None})
    if masked:
        raise ConfigError(
            f"{masked[0]} of {schema.table} is masked, and a condition on it would be noted in the log as it is",
            hint=f"name other columns, or read the whole table: cdc snapshot {schema.table}",
        )
    return found


def key_texts(keys: Sequence[Sequence[str]], schema: TableSchema) -> tuple[tuple[str, ...], ...]:
    """Keys as they were asked for. ConfigError when one has another number of columns than the table's key, or that key
    is masked."""
    if schema.masked_key:
        raise ConfigError(
            f"the key of {schema.table} is masked, so no row can be asked for by it",
            hint=f"ask for rows by a condition on other columns, or for all: cdc snapshot {schema.table}",
        )
    for key in keys:
        if len(key) != len(schema.key):
            raise ConfigError(
                f"the key of {schema.table} has {len(schema.key)} columns, one of --keys has {len(key)}",
                hint=f"write {':'.join(column.name for column in schema.key)}, as the stores do",
            )
    return tuple(tuple(key) for key in keys)


def first_requests(documents: Mapping[bytes, bytes], serial: int) -> list[RequestState]:
    """A request for the first rows of each table that was neither read nor asked for.

    ConfigError before ``cdc init``, UsageError when the first snapshot has begun already.
    """
    head, topics = SnapshotState.find(documents), TopicsState.find(documents)
    if topics is None:
        raise ConfigError("the pipeline has no topics yet", hint="cdc init makes them")
    if head is not None and (head.state != "complete" or head.rows):
        raise UsageError(
            "the first snapshot has begun with its rows, so windows cannot take its place",
            hint="cdc snapshot goes on with it",
        )
    known = {one.table for one in find_all(documents, ReadingState) if one.first and one.state == "done"}
    known |= {one.table for one in requests_of(documents) if one.first}
    return [
        RequestState(
            id=f"snapshot:{table}",
            table=table,
            after_lsn=0,
            reason=f"{table} has its first rows to come",
            serial=serial,
            first=True,
        )
        for table in topics.tables
        if table not in known
    ]


def commands_for(documents: Mapping[bytes, bytes], tables: Sequence[str], state: str) -> list[tuple[str, CommandState]]:
    """Table and command of each request on these tables, of all without any."""
    names = {str(captured_table(documents, name)) for name in tables}
    found = [one for one in requests_of(documents) if not names or one.table in names]
    return [(one.table, CommandState(id=one.id, serial=one.serial, state=state)) for one in found]


def given_up(documents: Mapping[bytes, bytes], tables: Sequence[str]) -> list[ReadingState]:
    """The readings on these tables, on all without any, that failed and of which no request is left."""
    names = {str(captured_table(documents, name)) for name in tables}
    asked = {one.id for one in requests_of(documents)}
    states = find_all(documents, ReadingState)
    return [
        one for one in states if one.state == "failed" and one.id not in asked and (not names or one.table in names)
    ]


def progress_of(documents: Mapping[bytes, bytes], requests: Sequence[RequestState]) -> list[ReadingState | None]:
    """How far each request is, None where nobody has taken it up."""
    states = {one.id: one for one in find_all(documents, ReadingState)}
    # One asked for again meanwhile, by a catalog watch, goes under a newer serial.
    return [
        found if (found := states.get(one.id)) is not None and found.serial >= one.serial else None for one in requests
    ]
