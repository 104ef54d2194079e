"""How an error is shown: one sentence, one hint, an exit code; never a traceback, never a secret."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from cdc.errors import CdcError, Exit
from cdc.settings import Secret, Settings


def report(failure: BaseException, console: Console, settings: Settings | None) -> int:
    """Print ``failure`` and return its exit code.

    Our own errors are a sentence and a hint. Anything else is a bug: the traceback goes to a file that only
    its owner may read, the sentence names it.
    """
    hidden = sorted(set(secrets_of(settings)), key=len, reverse=True) if settings is not None else []
    if isinstance(failure, CdcError):
        _print(console, "error", redact(failure.message, hidden))
        if failure.hint:
            _print(console, "hint", redact(failure.hint, hidden))
        return failure.exit
    words = redact("".join(traceback.format_exception(failure)), hidden)
    try:
        where = f"the traceback is in {_keep(words)}"
    except OSError as problem:
        where = f"and its traceback could not be kept: {problem.strerror}"
    _print(console, "error", f"{type(failure).__name__} where none was expected; {where}")
    _print(console, "hint", "this is a bug in headrace: please report it with that file")
    return Exit.BUG


def redact(text: str, hidden: list[str]) -> str:
    """``text`` with every secret in it as ``***``."""
    for secret in hidden:
        text = text.replace(secret, "***")
    return text


def secrets_of(settings: Settings) -> Iterator[str]:
    """Every secret the settings can reach, passwords inside connection strings too."""
    yield from _secrets(settings)


def _secrets(value: Any) -> Iterator[str]:
    match value:
        case Secret():
            try:
                revealed = value.reveal()
            except CdcError:
                return
            if revealed:
                yield revealed
        case BaseModel():
            for name in type(value).model_fields:
                yield from _secrets(getattr(value, name))
        case dict():
            for member in value.values():
                yield from _secrets(member)
        case str():
            yield from _password_within(value)


def _password_within(text: str) -> Iterator[str]:
    """A password that stands in a URL or a libpq string, against the manual's advice."""
    if "://" in text:
        try:
            found = urlsplit(text).password
        except ValueError:
            # No URL, and yet it may hold a password: up to the last @ is more than enough.
            found = text.partition("://")[2].rpartition("@")[0].partition(":")[2]
        if found:
            yield from {found, unquote(found)}
    for part in text.split():
        if part.startswith("password=") and len(part) > len("password="):
            yield part.removeprefix("password=").strip("'")


def _print(console: Console, label: str, words: str) -> None:
    style = "bold red" if label == "error" else "cyan"
    line = Text.assemble((f"{label}: ", style), " ".join(words.split()))
    console.print(line, soft_wrap=True, highlight=False)


def _keep(words: str) -> str:
    handle, path = tempfile.mkstemp(prefix="cdc-bug-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(words)
    return path
