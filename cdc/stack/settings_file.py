"""A settings file that fits a running stack, and the database that it names."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from cdc.process.sql_files import load
from cdc.stack.local import Connections

NAME = "shop"
_ALL: Mapping[str, Sequence[str]] = {}
_SINKS = {"redis": ("cache", "redis"), "opensearch": ("search", "opensearch")}


def make_database(dsn: str, name: str = NAME) -> str:
    """Make the database if it is not there. Returns the connection string to it."""
    queries = load("cdc.stack")
    with psycopg.connect(dsn, autocommit=True) as connection:
        if connection.execute(queries["database_exists"], [name]).fetchone() is None:
            connection.execute(psycopg.sql.SQL("create database {}").format(psycopg.sql.Identifier(name)))
    return make_conninfo(dsn, dbname=name)


def settings_text(connections: Connections, folder: Path, tables: Mapping[str, Sequence[str]] = _ALL) -> str:
    """``cdc.toml`` for the parts that run. One that lacks Postgres or Kafka has their usual ports.

    ``tables``: of sinks that take others than all tables.
    """
    postgres = connections.get("postgres", {"dsn": "host=127.0.0.1 port=5432 user=postgres"})
    kafka = connections.get("kafka", {"bootstrap_servers": "127.0.0.1:9092"})
    lines = [
        "# Written anew by each `cdc stack up`; copy it before you change it.",
        f"name = {_quote(NAME)}",
        "[source]",
        f"dsn = {_quote(make_conninfo(postgres['dsn'], dbname=NAME))}",
        'tables = ["public.*"]',
        "[log]",
        f"bootstrap_servers = {_quote(kafka['bootstrap_servers'])}",
    ]
    for part, (sink, kind) in _SINKS.items():
        if part in connections:
            lines += [f"[sinks.{sink}]", f"kind = {_quote(kind)}", f"url = {_quote(connections[part]['url'])}"]
            lines += _taken(sink, tables)
    lines += ["[sinks.warehouse]", 'kind = "delta"', f"path = {_quote(connections['warehouse']['path'])}"]
    lines += _taken("warehouse", tables)
    lines += ["[spark]", f"checkpoint = {_quote(str(folder / 'checkpoints'))}"]
    if "connect" in connections:
        lines += ["[debezium]", f"url = {_quote(connections['connect']['url'])}"]
    return "\n".join(lines) + "\n"


def _taken(sink: str, tables: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"tables = {json.dumps(list(tables[sink]))}"] if sink in tables else []


def write_settings(connections: Connections, folder: Path, tables: Mapping[str, Sequence[str]] = _ALL) -> Path:
    """Write ``cdc.toml`` into the stack's folder, readable by its owner alone. ``tables``: as in the text's."""
    path = folder / "cdc.toml"
    draft = folder / "cdc.toml.part"
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        file.write(settings_text(connections, folder, tables))
    draft.replace(path)
    return path


def _quote(text: str) -> str:
    """A TOML basic string: JSON's is one."""
    return json.dumps(text, ensure_ascii=False)
