"""Names that a shell completes: stores, tables and views of the settings file.

A shell asks at each press of a key, in any folder. The file is read as TOML alone, so that no client of a server is
loaded, and every fault is silent: an error would be printed into the line that is being typed. The folder may be of
somebody else: zsh evaluates what it is offered, and so a name that a shell could take for more than a word is not.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

Complete = Callable[[typer.Context, str], list[str]]
_WORDS = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")
"""Where shells put the line that is being typed."""
_WORD = re.compile(r"\w[\w.@%+-]*")
"""A name that each shell takes as it is, and no command for an option."""
_MOST_BYTES = 1024 * 1024
"""Of a settings file: a longer one is none."""


def sinks(context: typer.Context, incomplete: str) -> list[str]:
    """The stores of the settings that begin so. Never raises."""
    return _named(context, incomplete, lambda document: _section(document, "sinks"))


def tables(context: typer.Context, incomplete: str) -> list[str]:
    """The tables that the settings name in full and that begin so. Never raises."""
    return _named(context, incomplete, tables_of)


def streams(context: typer.Context, incomplete: str) -> list[str]:
    """The streams of the settings that begin so. Never raises."""
    return _named(context, incomplete, lambda document: _section(document, "streams"))


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
    named = source.get("tables", ())
    return [name for name in sorted(named) if "*" not in name and name not in left] if isinstance(named, list) else []


def _section(document: Mapping[str, Any], name: str) -> list[str]:
    found = document.get(name)
    return list(found) if isinstance(found, dict) else []


def _named(context: typer.Context, incomplete: str, names: Callable[[Mapping[str, Any]], Iterable[str]]) -> list[str]:
    try:
        document = tomllib.loads(_read(_settings_file(context)))
        # A name that was typed before is not offered again.
        taken = {word for value in context.params.values() if isinstance(value, list | tuple) for word in value}
        found = (name for name in names(document) if _WORD.fullmatch(name) and name not in taken)
        return [name for name in found if name.startswith(incomplete)]
    except Exception:  # whatever is wrong with the file: the command that is being typed will say it
        return []


def _read(file: Path) -> str:
    """OSError or ValueError for what is no file of settings: a pipe that nobody writes into would never end."""
    if not file.is_file():
        raise FileNotFoundError(file)
    with file.open("rb") as opened:
        content = opened.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(file)
    return content.decode()


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
