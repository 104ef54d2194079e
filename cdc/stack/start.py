"""A stack started while a person looks on, downloads as bars and parts as lines, and the settings file that fits it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from cdc.jvm.jars import JarSet, resolve
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.stack.local import Connections, LocalStack


def fetch(sets: Iterable[JarSet], console: Console) -> None:
    """Fetch jar sets that are missing, a bar each. Silent when all are there."""
    with _bars(console) as bars:
        resolve(sets, progress=bars)


def start_watched(
    stack: LocalStack,
    parts: Iterable[str],
    console: Console,
    *,
    ports: Mapping[str, int] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Connections:
    """Start the stack, tied to this process, and return when all parts answer. Each is named as it does.

    No server is left behind after any failure, Ctrl-C included.
    """
    began = clock.monotonic()
    named: set[str] = set()

    def tell(states: Mapping[str, str]) -> None:
        for name, state in states.items():
            if state == "ready" and name not in named:
                named.add(name)
                console.print(f"{name:<11} ready after {clock.monotonic() - began:.1f} s", highlight=False)

    try:
        with _bars(console) as bars:
            stack.start(parts, ports=ports, progress=bars)
        return stack.wait(watch=tell)
    except BaseException:
        stack.abandon()
        raise


class _Bars:
    """A bar for each set that is fetched. Made when its first bytes arrive."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    @property
    def shown(self) -> bool:
        return bool(self._tasks)

    def __call__(self, name: str, done_bytes: int, total_bytes: int) -> None:
        self._progress.start()
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(f"jars: {name}", total=total_bytes)
        self._progress.update(self._tasks[name], completed=done_bytes)


@contextmanager
def _bars(console: Console) -> Iterator[_Bars]:
    columns = (TextColumn("{task.description:<18}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    progress = Progress(*columns, console=console)
    bars = _Bars(progress)
    try:
        yield bars
    finally:
        if bars.shown:
            progress.stop()


NAME = "shop"
_ALL: Mapping[str, Sequence[str]] = {}
_SINKS = {"redis": ("cache", "redis"), "opensearch": ("search", "opensearch")}


def make_database(dsn: str, name: str = NAME) -> str:
    """Make the database if it is not there. Returns the connection string to it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        if connection.execute("select from pg_database where datname = %s", [name]).fetchone() is None:
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
