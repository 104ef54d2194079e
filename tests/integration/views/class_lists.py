"""The lists of everyday views: pgsync's examples, queries of web shops, TPC-H, the demo's shop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from cdc.views.syntax import ViewRefused
from tests.views_against import Beside

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "tests" / "fixtures" / "views_class"
TITLES = {
    "pgsync": "pgsync's examples",
    "shop": "Ten queries of web shops, and the demo's shop",
    "tpch": "The queries of TPC-H",
}
"""The lists by the names of their files, with the manual's titles."""


@dataclass(slots=True)
class Tables:
    """Statements that make tables and rows, and the views over them by name."""

    name: str
    statements: str = ""
    views: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """What the plan said of a view of a list. ``refusal``: the whole sentence and its hint, empty where it is kept."""

    name: str
    refusal: str


def tables_of(name: str) -> Iterator[Tables]:
    """The parts of a list: ``-- tables:`` begins one, ``-- view:`` a view of it, ``-- file:`` includes a file."""
    for part in re.split(r"^-- tables: ", (FOLDER / f"{name}.sql").read_text(), flags=re.MULTILINE)[1:]:
        title, _, rest = part.partition("\n")
        statements, *views = re.split(r"^-- view: ", rest, flags=re.MULTILINE)
        included = re.sub(r"^-- file: (.*)$", lambda found: _schema_of(ROOT / found[1]), statements, flags=re.MULTILINE)
        named = {view.partition("\n")[0]: _text_of(view.partition("\n")[2].strip()) for view in views}
        yield Tables(title, included, named)


def _text_of(text: str) -> str:
    """A view's text, or the block that ``-- block: FILE NAME`` names instead."""
    named = re.fullmatch(r"-- block: (\S+) (\w+)", text)
    return text if named is None else load_block(ROOT / named[1], named[2])


def load_block(path: Path, name: str) -> str:
    """A named block of a file of SQL."""
    return path.read_text().partition(f"-- name: {name}\n")[2].partition("\n-- name: ")[0].strip()


def _schema_of(path: Path) -> str:
    """The statements of a file's block named ``schema``."""
    return load_block(path, "schema")


def schemas(conn: psycopg.Connection) -> tuple[str, ...]:
    """The schemas of a database that are a user's."""
    found = conn.execute(
        "select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'"
    ).fetchall()
    return tuple(name for (name,) in found)


def judged(conn: psycopg.Connection, dsn: str, name: str) -> list[Judged]:
    """Ask the plan about each view of a list.

    Postgres accepts each text. A kept view's documents are Postgres's after every statement of ``_disturbed``.
    AssertionError otherwise. The database is the caller's own. Its schemas are dropped.
    """
    found: list[Judged] = []
    for tables in tables_of(name):
        for schema in schemas(conn):
            conn.execute(f'drop schema "{schema}" cascade'.encode())
        conn.execute("create schema public")
        conn.execute(tables.statements.encode())
        views: list[Beside] = []
        try:
            for title, sql in tables.views.items():
                conn.execute(f"explain {sql}".encode())
                try:
                    views.append(Beside(dsn, sql, schemas(conn)))
                    found.append(Judged(title, ""))
                except ViewRefused as refused:
                    found.append(Judged(title, f"{refused.message}. {refused.hint}".removesuffix(". ")))
            _followed(conn, views)
        finally:
            for view in views:
                view.close()
    return found


def _followed(conn: psycopg.Connection, views: list[Beside]) -> None:
    _same(views)
    for statement in _disturbed(conn):
        conn.execute(statement.encode())
        _same(views)


def _same(views: list[Beside]) -> None:
    for view in views:
        view.step()
        assert not view.differences(), view.plan.sql


def _disturbed(conn: psycopg.Connection) -> Iterator[str]:
    """For each table: its columns that are no key exchanged between rows, then some rows deleted."""
    found = conn.execute(
        """
        select a.attrelid::regclass::text, array_agg(quote_ident(a.attname) order by a.attnum)
        from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
        where c.relkind = 'r' and a.attnum > 0 and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
          and not exists (select from pg_index i
                          where i.indrelid = c.oid and i.indisunique and a.attnum = any (i.indkey))
        group by 1 order by 1
        """
    ).fetchall()
    for table, columns in found:
        following = ", ".join(f"lead({column}) over (order by ctid) as {column}" for column in columns)
        own = ", ".join(f"{column} = f.{column}" for column in columns)
        rows = f"select ctid as at, {following} from {table}"
        yield f"update {table} t set {own} from ({rows}) f where f.at = t.ctid and f.{columns[0]} is not null"
        yield f"delete from {table} where ctid in (select ctid from {table} order by ctid limit 2)"
