"""pgsync's own examples, imported: the plan takes each text, and its documents are Postgres's."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from cdc.process.errors import Exit
from cdc.views.syntax import ViewRefused
from connectors.views.pgsync_schema import ForeignKey, ImportRefused, SourceTable, imported
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.integration.views.class_lists import FOLDER, schemas, tables_of
from tests.programs import RunCdc
from tests.views_against import Beside, shapes_of

SCHEMAS: dict[str, dict[str, Any]] = orjson.loads((FOLDER / "pgsync_schemas.json").read_bytes())
PARTS = {part.name: part for part in tables_of("pgsync")}


MOVED = {
    "airline": "create schema bookings; alter table bookings set schema bookings;"
    "alter table tickets set schema bookings; alter table boarding_passes set schema bookings;"
    "alter table ticket_flights set schema bookings",
    "geo": "alter table book add polygon polygon",
    "schemas": "create schema parent; alter table parent set schema parent",
    "through_schemas": "create schema parent; alter table parent set schema parent;"
    "create schema child_to_parent; alter table child.child_to_parent set schema child_to_parent",
}
"""Where an example has its tables otherwise than the list of views."""
REFUSED = {
    "geo": "a view cannot carry a column of type point",
    "book_view": "book_view is a view of Postgres",
}


def _keys(tables: dict[str, SourceTable]) -> list[ForeignKey]:
    """Foreign keys by the names of columns: a table's name and its column's, or a key's name that is no plain id."""
    found = []
    for table in tables.values():
        for target in tables.values():
            for key in target.columns:
                names = {f"{target.name}_{key}", *([key] if [key] == target.key and key != "id" else [])}
                named = [c for c in table.columns if c in names and not (table == target and c == key)]
                found += [ForeignKey(table.full, [column], target.full, [key]) for column in named]
            if len(target.key) > 1 and {*target.key} <= {*table.columns} and table.name < target.name:
                found.append(ForeignKey(table.full, target.key, target.full, target.key))
    return found


def _tables(conn: psycopg.Connection) -> dict[str, SourceTable]:
    shapes = [shape for schema in schemas(conn) for shape in shapes_of(conn, schema).values()]
    return {
        str(shape.table): SourceTable(
            shape.table.schema,
            shape.table.table,
            {column.name: column.kind for column in shape.columns},
            [column.name for column in shape.key],
        )
        for shape in shapes
    }


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_example_is_imported_and_kept(database: str, name: str) -> None:
    part = PARTS[next(title for title in PARTS if name in (title, *PARTS[title].views))]
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"{part.statements};{MOVED.get(name, '')}".encode())
        tables, every = _tables(conn), schemas(conn)
    if name in REFUSED:
        with pytest.raises((ImportRefused, ViewRefused), match=REFUSED[name]):
            Beside(database, imported(SCHEMAS[name], tables, _keys(tables)).sql, every)
        return
    view = Beside(database, imported(SCHEMAS[name], tables, _keys(tables)).sql, every)
    with closing(view):
        view.step()
        assert view.published
        assert not view.differences(), view.plan.sql


SHOP = {
    "database": "shop", "index": "Order-Search", "routing": "customer_id", "plugins": ["Slug"], "setting": {"a": 1},
    "nodes": {
        "table": "orders", "columns": ["status", "meta->tags->0"],
        "transform": {"rename": {"status": "state"}, "move": {"column": "a"}, "mapping": {"state": {"type": "keyword"}},
                      "concat": {"columns": ["state", "x"], "destination": "both", "delimiter": "-"}},
        "children": [
            {"table": "customers", "label": "customer", "columns": ["name"],
             "transform": {"replace": {"name": {"n": "N"}}},
             "relationship": {"variant": "scalar", "type": "one_to_one"}},
            {"table": "lines", "relationship": {"variant": "object", "type": "one_to_many"}},
            {"table": "tag", "label": "tags", "columns": ["word"],
             "relationship": {"variant": "scalar", "type": "one_to_many", "through_tables": ["order_tag"]}},
        ],
    },
}  # fmt: skip


def test_the_command_writes_texts_that_views_take(database: str, tmp_path: Path, run_cdc: RunCdc) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        for statement in (
            "create table customers (id int primary key, name text)",
            "create table orders (id int primary key, customer_id int references customers, status text, meta jsonb)",
            "create table lines (no text, order_id int references orders, primary key (no, order_id))",
            "create table tag (id int primary key, word text)",
            "create table order_tag (order_id int references orders, tag_id int references tag)",
            "alter table order_tag add primary key (order_id, tag_id)",
            "insert into customers values (1, 'nan')",
            """insert into orders values (7, 1, 'open', '{"tags": ["red"]}')""",
            "insert into lines values ('b', 7), ('a', 7)",
            "insert into tag values (1, 'old'), (2, 'new')",
            "insert into order_tag values (7, 2), (7, 1)",
        ):
            conn.execute(statement.encode())
    schema = tmp_path / "schema.json"
    schema.write_bytes(orjson.dumps([SHOP]))
    document = {
        "name": "s",
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": "127.0.0.1:1"},
    }
    pipeline = Pipeline(tmp_path, run_cdc, document)
    done = pipeline.cdc("view", "import", str(schema), "--into", str(tmp_path / "views"))
    assert done.returncode == 0, done.stderr
    written = tmp_path / "views" / "order_search.sql"
    assert done.stdout == f'[views.order_search]\nsql = "{written}"\n\n'
    for word in (
        "id is added",
        "move is left out",
        "concat leaves",
        "routing by customer_id",
        "plugins Slug",
        "settings",
    ):
        assert word in done.stderr
    with closing(Beside(database, written.read_text())) as view:
        view.step()
        assert not view.differences()
        (row,) = view.published.values()
    assert orjson.loads(str(row)) == {
        "id": 7, "state": "open", "meta_tags_0": '"red"', "both": "open-x", "customer": "NaN",
        "lines": '[{"no" : "a", "order_id" : 7}, {"no" : "b", "order_id" : 7}]', "tags": '["old", "new"]',
    }  # fmt: skip
    assert pipeline.good("view", "import", str(schema)) == f"-- view: order_search\n{written.read_text()}\n"
    again = pipeline.cdc("view", "import", str(schema), "--into", str(tmp_path / "views"))
    assert_refused(again, Exit.CONFIG, "is there already")


def _with(**relation: object) -> dict[str, Any]:
    child = {"table": "lines", "columns": ["no"], "relationship": relation}
    return {"index": "v", "nodes": {"table": "orders", "columns": ["id"], "children": [child]}}


TABLES = {
    "public.orders": SourceTable("public", "orders", {"id": "int4"}, ["id"]),
    "public.lines": SourceTable("public", "lines", {"no": "int4", "order_id": "int4", "former": "int4"}, ["no"]),
    "public.bare": SourceTable("public", "bare", {"no": "int4"}, []),
}
MANY = {"variant": "object", "type": "one_to_many"}


@pytest.mark.parametrize(
    ("document", "columns", "words"),
    [
        ({"index": "v"}, ["order_id"], "the schema of v has no nodes"),
        ({"index": "v", "nodes": {"table": "nowhere"}}, ["order_id"], "the source has no table public.nowhere"),
        ({"index": "v", "nodes": {"table": "orders", "columns": ["x"]}}, ["order_id"], "public.orders has no column x"),
        (_with(**MANY), [], "no foreign key ties public.lines and public.orders"),
        (_with(**MANY), ["order_id", "former"], "2 foreign keys tie public.lines and public.orders"),
        (_with(), ["order_id"], "the node lines has no relationship"),
        (_with(**MANY, through_tables=["a", "b"]), ["order_id"], "public.lines has 2 through tables"),
        (
            {"index": "v", "nodes": {"table": "orders", "transform": {"turn": {}}}},
            ["order_id"],
            "a transform turn is not known",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(document: dict[str, Any], columns: list[str], words: str) -> None:
    keys = [ForeignKey("public.lines", [column], "public.orders", ["id"]) for column in columns]
    with pytest.raises(ImportRefused, match=words):
        imported(document, TABLES, keys)
