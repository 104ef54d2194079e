"""A settings file that fits a running stack, and the database that it names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from cdc.sql import load
from cdc.stack.local import Connections

NAME = "shop"
_SINKS = {"redis": ("cache", "redis"), "opensearch": ("search", "opensearch")}


def make_database(dsn: str, name: str = NAME) -> str:
    """Make the database if it is not there. Returns the connection string to it."""
    queries = load("cdc.stack")
    with psycopg.connect(dsn, autocommit=True) as connection:
        if connection.execute(queries["database_exists"], [name]).fetchone() is None:
            connection.execute(psycopg.sql.SQL("create database {}").format(psycopg.sql.Identifier(name)))
    return make_conninfo(dsn, dbname=name)


def settings_text(connections: Connections, folder: Path) -> str:
    """``cdc.toml`` for the parts that run. One that lacks Postgres or Kafka has their usual ports."""
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
    lines += ["[sinks.warehouse]", 'kind = "delta"', f"path = {_quote(connections['warehouse']['path'])}"]
    lines += ["[spark]", f"checkpoint = {_quote(str(folder / 'checkpoints'))}"]
    if "connect" in connections:
        lines += ["[debezium]", f"url = {_quote(connections['connect']['url'])}"]
    return "\n".join(lines) + "\n"


def write_settings(connections: Connections, folder: Path) -> Path:
    """Write ``cdc.toml`` into the stack's folder, readable by its owner alone."""
    path = folder / "cdc.toml"
    draft = folder / "cdc.toml.part"
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        file.write(settings_text(connections, folder))
    draft.replace(path)
    return path


def _quote(text: str) -> str:
    """A TOML basic string: JSON's is one."""
    return json.dumps(text, ensure_ascii=False)
