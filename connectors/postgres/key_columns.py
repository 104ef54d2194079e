"""The columns of keys: each has to be among those that the publication sends, never null, and of one text per value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from psycopg.rows import dict_row

from cdc.sql import load, quote_identifier
from cdc.topic import TableName
from connectors.postgres.connections import Connection
from connectors.postgres.problems import TableProblem, sql_name

GENERATED_SINCE = 180000
"""The first server whose publications can carry stored generated columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsent:
    """A column that the publication leaves out. ``listed``: the publication has a list of the table's columns."""

    oid: int
    name: str
    generated: bool
    listed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyColumn:
    """A row of the catalog query ``key``. ``unvalidated``: the column's NOT NULL that rows may not keep yet. ``alike``:
    a type in it of which Postgres prints different values alike."""

    oid: int
    name: str
    deferrable: bool
    unvalidated: str | None
    alike: str | None = None


def key_faults(
    table: TableName, key: Iterable[KeyColumn], unsent: Iterable[Unsent], publication: str, version: int
) -> Iterator[TableProblem]:
    """Why a key does not identify one row in the stream: a part of it is missing, may be null, or is ambiguous.

    ``publication``: also one that is still to be made. ``version``: its server's, as a number.
    """
    left_out = {column.name: column for column in unsent}
    for column in key:
        if column.name in left_out:
            yield _left_out_of_key(table, left_out[column.name], publication, version)
        if column.unvalidated is not None:
            validate = f"alter table {sql_name(table)} validate constraint {quote_identifier(column.unvalidated)};"
            yield TableProblem(
                message=f"{column.name}, a part of the key of {table}, may be null: its NOT NULL is not validated",
                hint=f"{validate}   (rows without a value need one first)",
            )
        if column.alike is not None:
            yield TableProblem(
                message=f"{column.name}, a part of the key of {table}, holds a {column.alike}: "
                "Postgres prints different values of that alike",
                hint=f'give it another type, or leave the table out: [source] exclude = ["{table}"]',
            )


def _left_out_of_key(table: TableName, column: Unsent, publication: str, version: int) -> TableProblem:
    name, altered = sql_name(table), f"alter publication {quote_identifier(publication)}"
    if column.generated and version < GENERATED_SINCE:
        return TableProblem(
            message=f"the key of {table} has the generated column {column.name}, "
            "which PostgreSQL before 18 does not put into the stream",
            hint=f"choose a unique index without it (alter table {name} replica identity using index ...;), "
            f'or leave the table out: [source] exclude = ["{table}"]',
        )
    hint = f"{altered} set (publish_generated_columns = stored);"
    if column.listed:
        hint = (
            f"begin; {altered} drop table only {name}; {altered} add table only {name}; commit;   "
            f"(or add it with a list that has {column.name})"
        )
    return TableProblem(
        message=f"the publication {publication} leaves out {column.name}, a part of the key of {table}", hint=hint
    )


def read_unsent(conn: Connection, oids: Iterable[int], publication: str | None) -> Mapping[int, list[Unsent]]:
    """The columns that the publication leaves out, by table. A table without any has an empty list."""
    found: dict[int, list[Unsent]] = defaultdict(list)
    with conn.cursor(row_factory=dict_row) as cursor:
        query = load(__package__)["unsent"].encode()
        for row in cursor.execute(query, {"oids": list(oids), "publication": publication}):
            found[row["oid"]].append(Unsent(**row))
    return found


def read_keys(conn: Connection, oids: Iterable[int]) -> Mapping[int, list[KeyColumn]]:
    """The columns of the key, in its order, by table. A table without a key has an empty list."""
    found: dict[int, list[KeyColumn]] = defaultdict(list)
    with conn.cursor(row_factory=dict_row) as cursor:
        for row in cursor.execute(load(__package__)["key"].encode(), {"oids": list(oids)}):
            found[row["oid"]].append(KeyColumn(**row))
    return found
