"""Why a table cannot be captured as it is, its key's columns among it, and the SQL that helps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import dict_row

from cdc.process.sql_files import load, quote_identifier
from cdc.record.schema import Identity, TableSchema
from cdc.record.tables_aside import NAME_CHILDREN, children_sentence
from cdc.record.topic_names import VIEW_SCHEMA, TableName, collisions
from cdc.wire.envelope import may_be_unavailable
from cdc.wire.types import OTHER
from connectors.postgres.server.connections import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProblem:
    """One sentence, and the SQL or setting that ends it."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafRelation:
    """A table that holds rows of a captured one. Letters as in pg_class."""

    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    identity: str
    has_identity_key: bool

    @property
    def table(self) -> TableName:
        """Its name with its schema."""
        return TableName(self.schema, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRelation:
    """A row of the catalog query ``relations``. Letters as in pg_class. ``unique_index_name``: of an index that could
    become the replica identity, ``unique_index_nullable``: if these columns of it were NOT NULL."""

    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    identity: str
    has_columns: bool
    ancestors: list[int]
    primary_key: list[str]
    primary_key_deferrable: bool
    identity_index: list[str]
    unique_index_name: str | None
    unique_index_nullable: list[str]

    @property
    def table(self) -> TableName:
        """Its name with its schema."""
        return TableName(self.schema, self.name)

    @property
    def key(self) -> list[str]:
        """The identity index's columns if there is one, else the primary key's. Never any other index (D10)."""
        return self.identity_index if self.identity == "i" else self.primary_key

    @property
    def deferrable_key(self) -> bool:
        """Whether rows are identified by a primary key that is deferrable."""
        return self.identity != "i" and self.primary_key_deferrable

    def as_leaf(self) -> LeafRelation:
        """The relation as the table that has its own rows."""
        return LeafRelation(
            oid=self.oid,
            schema=self.schema,
            name=self.name,
            kind=self.kind,
            persistence=self.persistence,
            identity=self.identity,
            has_identity_key=bool(self.key) and not self.deferrable_key,
        )


def sql_name(table: TableName) -> str:
    """The table as SQL writes it.

    >>> sql_name(TableName("public", "Mixed Case"))
    '"public"."Mixed Case"'
    """
    return f"{quote_identifier(table.schema)}.{quote_identifier(table.table)}"


def problems_of(
    relation: CatalogRelation, leaves: Sequence[LeafRelation], access: Iterable[Any], unsent: Collection[str] = ()
) -> list[TableProblem]:
    """Everything in the way of capturing ``relation``. ``access``: rows of the catalog query of that name. ``unsent``:
    columns that nobody has to read."""
    refused = list(_no_stream(relation, leaves))
    if refused:
        return refused
    names = {leaf.oid: leaf.table for leaf in (relation.as_leaf(), *leaves)}
    return [
        *_key_problems(relation),
        *_leaf_problems(relation, leaves),
        *_access_problems(names, access, unsent),
    ]


def topic_problems(name: str, topics: Sequence[tuple[TableName, str]]) -> dict[TableName, list[TableProblem]]:
    """Topics that two tables would share, that are reserved, or that Kafka refuses, by table."""
    users: dict[str, list[TableName]] = defaultdict(list)
    for table, topic in topics:
        users[topic].append(table)
    found: dict[TableName, list[TableProblem]] = defaultdict(list)
    for topic, tables in users.items():
        for sentence in collisions(name, [(table, topic) for table in tables]):
            hint = f'give one another topic: [source] topics = {{ "{tables[-1]}" = "..." }}'
            for table in tables:
                found[table].append(TableProblem(message=sentence, hint=hint))
    return found


def unlike_views(table: TableName, schema: str = VIEW_SCHEMA) -> list[TableProblem]:
    """Why a table cannot be captured beside views, or beside the tables of another schema of ours: a store could not
    distinguish it from one of them."""
    if table.schema != schema:
        return []
    message = f"{table} would be taken for a {schema}: stores know {schema}s as tables of a schema called {schema}"
    hint = f'rename its schema (alter schema {schema} rename to ...;), or add "{table}" to [source] exclude'
    return [TableProblem(message=message, hint=hint)]


def unlike_history(shape: TableSchema) -> Iterator[TableProblem]:
    """Columns whose values an update may leave out: a change that is kept for ever cannot be filled in later."""
    lacking = [column.name for column in shape.columns if may_be_unavailable(column)]
    if lacking and shape.identity != Identity.FULL:
        yield TableProblem(
            message=f"{shape.table} has a history, and an update may leave out long values of {', '.join(lacking)}",
            hint=f"alter table {shape.table} replica identity full; or take it out of [history] tables",
        )


def unlike_debezium(shape: TableSchema) -> Iterator[TableProblem]:
    """Keys that Debezium writes alike though they differ."""
    for column in shape.key:
        if column.kind == OTHER:
            yield TableProblem(
                message=f"the key column {column.name} of {shape.table} is a {column.type}, and Debezium leaves it out "
                "or writes different values alike",
                hint=f'let Headrace capture it, or leave the table out: [source] exclude = ["{shape.table}"]',
            )


@dataclass(frozen=True, slots=True)
class Home:
    """Where else a table's rows are. ``spread``: what an extension made of it, empty for an ordinary table.
    ``children``: the tables that inherit from it and are no partitions. A query of the table gives their rows too."""

    spread: str = ""
    children: tuple[TableName, ...] = ()


def elsewhere(table: TableName, homes: Iterable[Home], unnamed: Sequence[TableName]) -> Iterator[TableProblem]:
    """Why the stream of a table would lack rows that a query of it gives. ``homes``: its own and its partitions'.
    ``unnamed``: the children that the settings do not mention."""
    spread = next((home.spread for home in homes if home.spread), "")
    if spread:
        message = f"{table} is {spread}: their changes do not come under its name"
        yield TableProblem(message=message, hint=f'leave it out: [source] exclude = ["{table}"]')
    elif unnamed:
        yield TableProblem(message=children_sentence(table, unnamed), hint=NAME_CHILDREN)


_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


def _no_stream(relation: CatalogRelation, leaves: Sequence[LeafRelation]) -> Iterator[TableProblem]:
    """The kinds of tables that logical decoding never delivers."""
    table, name = relation.table, sql_name(relation.table)
    exclude = f'take it out of [source] tables, or add it to exclude: "{table}"'
    if relation.kind in _KINDS:
        yield TableProblem(message=f"{table} is {_KINDS[relation.kind]}: it has no changes of its own", hint=exclude)
    if relation.persistence == "u":
        message = f"{table} is unlogged: its changes are not in the log"
        yield TableProblem(message=message, hint=f"alter table {name} set logged;")
    if not relation.has_columns:
        yield TableProblem(message=f"{table} has no columns", hint=exclude)
    for leaf in leaves:
        part = f"{leaf.table}, a partition of {table},"
        if leaf.kind == "f":
            yield TableProblem(message=f"{part} is a foreign table: it has no changes of its own", hint=exclude)
        elif leaf.persistence == "u":
            message = f"{part} is unlogged: its changes are not in the log"
            yield TableProblem(message=message, hint=f"alter table {sql_name(leaf.table)} set logged;")


def _key_problems(relation: CatalogRelation) -> Iterator[TableProblem]:
    table, name = relation.table, sql_name(relation.table)
    if relation.identity == "n":
        message = f"{table} has REPLICA IDENTITY NOTHING: once published, its updates and deletes fail"
        yield TableProblem(message=message, hint=f"alter table {name} replica identity {_identity_for(relation)};")
    elif relation.identity == "i" and not relation.identity_index:
        message = f"the index that was the replica identity of {table} is gone"
        yield TableProblem(message=message, hint=f"alter table {name} replica identity {_identity_for(relation)};")
    if not relation.key and relation.identity != "i":
        yield TableProblem(message=f"{table} has no key, and a compacted topic needs one", hint=_key_hint(relation))
    elif relation.deferrable_key and relation.identity != "f":
        message = f"the primary key of {table} is deferrable, which Postgres does not take as a replica identity"
        yield TableProblem(message=message, hint=f"alter table {name} replica identity full;")


def _identity_for(relation: CatalogRelation) -> str:
    if relation.primary_key:
        return "full" if relation.primary_key_deferrable else "default"
    if relation.unique_index_name and not relation.unique_index_nullable:
        return f"using index {quote_identifier(relation.unique_index_name)}"
    return "full"


def _key_hint(relation: CatalogRelation) -> str:
    name = sql_name(relation.table)
    if relation.unique_index_name:
        steps = [f"alter column {quote_identifier(column)} set not null" for column in relation.unique_index_nullable]
        first = f"alter table {name} {', '.join(steps)}; " if steps else ""
        return f"{first}alter table {name} replica identity using index {quote_identifier(relation.unique_index_name)};"
    return (
        f"alter table {name} add column id bigint generated always as identity primary key;   (or another key; or "
        f'leave it out: [source] exclude = ["{relation.table}"])'
    )


def _leaf_problems(relation: CatalogRelation, leaves: Sequence[LeafRelation]) -> Iterator[TableProblem]:
    """Old rows are written by the partition's identity but announced under the root's: they must agree."""
    wanted = {"f": "full", "i": "using index ..."}.get(relation.identity, "default")
    for leaf in leaves:
        if leaf.identity == relation.identity and (leaf.identity != "d" or leaf.has_identity_key):
            continue
        message = (
            f"the partition {leaf.table} has another replica identity than {relation.table}, "
            "so what its updates and deletes send is not what they announce"
        )
        yield TableProblem(message=message, hint=f"alter table {sql_name(leaf.table)} replica identity {wanted};")


def _access_problems(
    names: dict[int, TableName], access: Iterable[Any], unsent: Collection[str]
) -> Iterator[TableProblem]:
    for row in access:
        unreadable = [column for column in row.unreadable if column not in unsent]
        table = names[row.oid]
        role = quote_identifier(row.role)
        if not row.usage:
            hint = f"grant usage on schema {quote_identifier(table.schema)} to {role};"
            yield TableProblem(message=f"{row.role} may not use the schema of {table}", hint=hint)
        if unreadable and row.partly:
            columns = ", ".join(quote_identifier(column) for column in unreadable)
            hint = (
                f"grant select ({columns}) on {sql_name(table)} to {role};   or leave them out of the publication, "
                "by a column list"
            )
            yield TableProblem(message=f"{row.role} may not read {', '.join(unreadable)} of {table}", hint=hint)
        elif unreadable:
            hint = f"grant select on {sql_name(table)} to {role};"
            yield TableProblem(message=f"{row.role} may not read {table}", hint=hint)
        if row.hidden:
            message = f"row security hides rows of {table} from {row.role}: the snapshot would miss them"
            yield TableProblem(message=message, hint=f"alter role {role} bypassrls;")


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
