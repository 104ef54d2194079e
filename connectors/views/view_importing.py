"""``cdc view import``: a schema of pgsync, read beside the source's catalog, as files of views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from cdc.process.errors import ConfigError
from cdc.process.sql_files import load
from cdc.process.untrusted_text import quoted
from cdc.settings.model import Settings
from cdc.views.pgsync_schema import ForeignKey, ImportedView, SourceTable, imported
from connectors.postgres.server.connections import Connection, connect


def imported_views(settings: Settings, path: Path) -> list[ImportedView]:
    """Each document of a pgsync schema as a view. The source's catalog says columns and keys.

    ConfigError where the file is no such schema. ImportRefused for one that cannot be written as a view. SourceError
    where Postgres does not answer.
    """
    documents = list(_documents(path))
    with closing(connect(settings.source, application_name="cdc view import", autocommit=True)) as conn:
        tables, keys = _tables(conn), _foreign_keys(conn)
        reserved = {str(word) for (word,) in _rows(conn, "reserved")}
    return [imported(document, tables, keys, reserved) for document in documents]


def write_text(path: Path, sql: str) -> None:
    """Write a view's text. ConfigError where the file is there already, cannot be written, or has a name that no
    settings can have."""
    try:
        str(path).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(sql)
    except FileExistsError:
        raise ConfigError(f"{path} is there already", hint="name another folder, or remove the file") from None
    except (OSError, ValueError) as failure:
        raise ConfigError(f"{path} cannot be written: {quoted(failure)}", hint="name a folder of yours") from None


def _documents(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as failure:
        raise ConfigError(f"{path} cannot be read: {quoted(failure)}", hint="name pgsync's schema.json") from None
    for document in found if isinstance(found, list) else [found]:
        if not isinstance(document, dict):
            raise ConfigError(f"{path} is no schema of pgsync", hint="it is a list of documents with nodes")
        yield document


def _tables(conn: Connection) -> dict[str, SourceTable]:
    columns: dict[tuple[str, str], dict[str, str]] = {}
    keys: dict[tuple[str, str], dict[int, str]] = {}
    for schema, table, column, kind, place in _rows(conn, "columns"):
        columns.setdefault((schema, table), {})[column] = kind
        if place >= 0:
            keys.setdefault((schema, table), {})[place] = column
    found = (
        SourceTable(schema, table, named, [column for _, column in sorted(keys.get((schema, table), {}).items())])
        for (schema, table), named in columns.items()
    )
    return {table.full: table for table in found}


def _foreign_keys(conn: Connection) -> list[ForeignKey]:
    return [ForeignKey(*row) for row in _rows(conn, "foreign_keys")]


def _rows(conn: Connection, name: str) -> list[tuple[Any, ...]]:
    return conn.execute(load("connectors.postgres.server", "import.sql")[name].encode()).fetchall()
