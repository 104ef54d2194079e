"""The settings and the rights that ``cdc config new`` proposes: of any tables, exactly those that can be captured."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from cdc.operate.settings_proposal import (
    MANY_TABLES,
    FoundDatabase,
    FoundTable,
    Proposal,
    entry,
    pipeline_name,
    rights_text,
    settings_text,
)
from cdc.record.schema import Identity
from cdc.record.topic_names import TableName
from connectors.postgres.server.table_selection import Pattern, takes
from sinks.contract.kinds import parse_settings

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
SCHEMAS = st.sampled_from(["public", "a.b", "sales*"]) | NAMES


def found(table: TableName, problem: str = "", rows: int | None = 3) -> FoundTable:
    return FoundTable(
        table=table, key=() if problem else ("id",), identity=Identity.DEFAULT, rows=rows, leaves=(table,),
        problems=(problem,) if problem else (),
    )  # fmt: skip


def proposal(*tables: FoundTable, **changes: object) -> Proposal:
    database = FoundDatabase(database="shop", dsn="host=127.0.0.1 dbname=shop user=cdc", tables=tables)
    return Proposal(name="shop", role="cdc", found=database, bootstrap_servers="127.0.0.1:9092", **changes)  # type: ignore[arg-type]


@given(st.dictionaries(st.builds(TableName, SCHEMAS, NAMES), st.booleans()))
def test_the_file_takes_the_tables_that_can_be_captured(tables: dict[TableName, bool]) -> None:
    """Whatever the tables are called. A pattern takes no table that cannot be captured."""
    made = proposal(*(found(table, "" if fit else "it has\nno key") for table, fit in tables.items()))
    document = tomllib.loads(settings_text(made))
    assert document == made.document()
    source = document["source"]
    taken = {one.table for one in made.taken}
    assert taken == {one.table for one in made.found.tables if not one.left_out}
    patterns = [Pattern.parse(text) for text in source["tables"]]
    barred = [Pattern.parse(text) for text in source.get("exclude", [])]
    met = {
        table
        for table in tables
        if any(one.takes(table) for one in patterns) and not any(one.takes(table) for one in barred)
    }
    assert met == taken
    assert rights_text(made).count("grant select on table ") == len(taken)


def test_a_schema_of_many_tables_is_taken_by_a_pattern() -> None:
    many = [found(TableName("public", f"t{number}")) for number in range(MANY_TABLES + 1)]
    migrations = found(TableName("public", "alembic_version"))
    made = proposal(*many, migrations, found(TableName("sales", "orders")))
    source = made.document()["source"]
    assert source["tables"] == ["public.*", "sales.orders"]
    assert source["exclude"] == ["public.alembic_version"]
    assert takes("public.new", source["tables"], source["exclude"])
    few = proposal(*many[:MANY_TABLES], migrations)
    assert few.document()["source"]["tables"] == sorted(entry(one.table) for one in many[:MANY_TABLES])
    assert "exclude" not in few.document()["source"]


def test_the_proposed_file_is_good_with_every_store() -> None:
    sinks = {
        "cache": {"kind": "redis", "url": "redis://127.0.0.1:6379/0"},
        "search": {"kind": "opensearch", "url": "http://127.0.0.1:9200"},
        "warehouse": {"kind": "delta", "path": "warehouse"},
    }
    made = proposal(found(TableName("public", "orders"), rows=None), sinks=sinks)
    settings = parse_settings(tomllib.loads(settings_text(made)))
    assert (settings.name, list(settings.sinks)) == ("shop", list(sinks))
    assert "never analyzed" in settings_text(made)


def test_rights_name_partitions_and_no_more_than_is_taken() -> None:
    leaf = TableName("archive", 'odd"leaf')
    tree = FoundTable(table=TableName("public", "events"), key=("id",), identity=Identity.DEFAULT, leaves=(leaf,))
    text = rights_text(proposal(tree, found(TableName("secret", "log"), "it has no key")), generated_columns=True)
    assert 'grant select on table "archive"."odd""leaf" to "cdc";' in text
    assert 'grant usage on schema "archive" to "cdc";' in text
    assert "secret" not in text
    assert 'create publication "cdc_shop" with (publish = ' in text
    assert """array[\n    '"public"."events"'\n  ]""" in text
    assert "publish_generated_columns = stored" in text
    assert "create publication" not in rights_text(proposal())


def test_no_name_of_a_table_ends_the_quotes_of_the_rights() -> None:
    text = rights_text(proposal(found(TableName("public", "a$publication$b$_publication$'"))))
    assert text.count("$__publication$") == 2
    assert """'"public"."a$publication$b$_publication$''"'""" in text


@given(st.text(max_size=80))
def test_any_database_gives_a_name_for_its_pipeline(database: str) -> None:
    document = {**proposal(found(TableName("public", "t"))).document(), "name": pipeline_name(database)}
    assert parse_settings(document).slot == f"cdc_{pipeline_name(database)}"
