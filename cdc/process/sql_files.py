"""SQL, and scripts in Lua, kept in files of their own as named blocks, and the one way to quote an identifier."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def load(package: str, file: str = "queries.sql") -> dict[str, str]:
    """The named blocks of ``package``'s file: ``-- name: x`` starts block ``x``. KeyError names a missing one."""
    text = (files(package) / file).read_text(encoding="utf-8")
    parts = _NAME.split(text)
    return {name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def quote_identifier(name: str) -> str:
    """Any name, safe as one identifier. Raises ValueError for a NUL, which Postgres cannot hold."""
    if "\0" in name or not name:
        raise ValueError("an identifier is never empty and holds no NUL")
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Text as a string literal under standard_conforming_strings=on. Raises ValueError for a NUL, which Postgres cannot
    hold."""
    if "\0" in text:
        raise ValueError("a literal holds no NUL")
    return "'" + text.replace("'", "''") + "'"
