"""A SELECT's text by Postgres's own grammar: libpg_query through the binding ``postgast`` (BSD-2)."""

from __future__ import annotations

from typing import Any

from cdc.errors import ConfigError
from cdc.views.refused import ViewRefused, place_of, word_at

try:
    import postgast
    from google.protobuf.message import DecodeError
except ImportError:  # the extra ``views``
    postgast = None

_INSTALL = "pip install 'headrace[views]'"
Node = Any
"""A node of libpg_query's tree: a protobuf message of ``pg_query.proto``."""


def select_of(sql: str) -> Node:
    """The one SELECT of a text. Raises :class:`ViewRefused` where the text is no SELECT, or not one."""
    if postgast is None:
        raise ConfigError("a view's text needs Postgres's grammar, which is not installed", hint=_INSTALL)
    if "\0" in sql:
        # libpg_query would read the text up to there, and no more.
        place = place_of(sql, len(sql.partition("\0")[0].encode()))
        raise ViewRefused("a NUL stands in the text", place=place, hint="save the file as text in UTF-8")
    try:
        statements = postgast.parse(sql).stmts
    except postgast.PgQueryError as failure:
        place = place_of(sql, failure.cursorpos - 1)
        raise ViewRefused(failure.message, place=place, hint="Postgres itself would not read this text") from None
    except DecodeError:
        raise nested_too_deeply() from None
    if len(statements) != 1:
        raise ViewRefused("a view is one SELECT", hint="keep one statement in the file")
    kind, statement = unwrapped(statements[0].stmt)
    if kind != "select_stmt":
        raise ViewRefused("a view is a SELECT", place=(1, 1))
    return statement


def nested_too_deeply() -> ViewRefused:
    """The error about a text whose parts stand in each other more often than they can be followed."""
    hint = "a FROM holds up to 20 tables; further ones stand in subqueries, or in a view of their own"
    return ViewRefused("the view is nested too deeply", hint=hint)


def unwrapped(node: Node) -> tuple[str, Node]:
    """A node's kind and the node within."""
    kind = node.WhichOneof("node")
    return kind, getattr(node, kind)


def texts(nodes: Node) -> list[str]:
    """The strings of a list of nodes, such as the parts of a name."""
    return [node.string.sval for node in nodes]


class ViewText:
    """A view's text, which refusals quote."""

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def refused(self, reason: str, location: int = -1, *, word: str | None = None, hint: str = "") -> ViewRefused:
        """The error about a place of the text, which the byte names where it begins."""
        if word is None:
            word = word_at(self.sql, location) if location >= 0 else ""
        return ViewRefused(reason, word=word, place=place_of(self.sql, location), hint=hint)
