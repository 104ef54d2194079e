"""Names that a shell completes: stores, tables and views of the settings file.

A shell asks at each press of a key. The file is read as TOML alone, so that no client of a server is loaded, and every
fault is silent: an error would be printed into the line that is being typed.
"""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

Complete = Callable[[typer.Context, str], list[str]]
_WORDS = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")
"""Where shells put the line that is being typed."""


def sinks(context: typer.Context, incomplete: str) -> list[str]:
    """The stores of the settings that begin so. Never raises."""
    return _named(context, incomplete, lambda document: _section(document, "sinks"))


def tables(context: typer.Context, incomplete: str) -> list[str]:
    """The tables that the settings name in full and that begin so. Never raises."""
    return _named(context, incomplete, tables_of)


def views(context: typer.Context, incomplete: str) -> list[str]:
    """The views of the settings that begin so. Never raises."""
    return _named(context, incomplete, lambda document: _section(document, "views"))


def compared(context: typer.Context, incomplete: str) -> list[str]:
    """The stores, tables and views, as ``cdc verify`` takes them. Never raises."""

    def names(document: Mapping[str, Any]) -> Iterator[str]:
        yield from _section(document, "sinks")
        yield from tables_of(document)
        yield from (f"view.{name}" for name in _section(document, "views"))

    return _named(context, incomplete, names)


def tables_of(document: Mapping[str, Any]) -> list[str]:
    """The tables that the settings name in full. A pattern stands for tables that the database alone knows.

    >>> tables_of({"source": {"tables": ["public.b", "public.a", "shop.*"], "exclude": ["public.b"]}})
    ['public.a']
    """
    source = document.get("source", {})
    left = set(source.get("exclude", ()))
    return [name for name in sorted(source.get("tables", ())) if "*" not in name and name not in left]


def _section(document: Mapping[str, Any], name: str) -> list[str]:
    return list(document.get(name, {}))


def _named(context: typer.Context, incomplete: str, names: Callable[[Mapping[str, Any]], Iterable[str]]) -> list[str]:
    try:
        document = tomllib.loads(_settings_file(context).read_text(encoding="utf-8"))
        # A name that was typed before is not offered again.
        taken = {word for value in context.params.values() if isinstance(value, list | tuple) for word in value}
        return [name for name in names(document) if name.startswith(incomplete) and name not in taken]
    except Exception:  # whatever is wrong with the file: the command that is being typed will say it
        return []


def _settings_file(context: typer.Context) -> Path:
    """The file that the line names, before or behind its command, else the usual one."""
    said = next((os.environ[name] for name in _WORDS if name in os.environ), "")
    words = shlex.split(said)
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in ("-c", "--config") and following:
            return Path(following).expanduser()
        if word.startswith("--config="):
            return Path(word.removeprefix("--config=")).expanduser()
    found = context.find_root().params.get("config") or os.environ.get("CDC_CONFIG") or "cdc.toml"
    return Path(found)
