"""A SELECT's text by Postgres's own grammar: libpg_query through the binding ``postgast`` (BSD-2)."""

from __future__ import annotations

from typing import Any

from cdc.process.errors import ConfigError

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


_LONGEST = 200
"""Letters of a reason that are shown. Postgres's own words quote a text whose quote has no end up to its last line."""


class ViewRefused(ConfigError):
    """A view's SELECT lies outside of what can be kept true. ``word`` and ``place`` name what is in the way.

    ``place``: ``(line, column)`` in the text, both from 1, or None where the text has no single place for it. A
    reason is one line, whatever it quotes.
    """

    def __init__(self, reason: str, *, word: str = "", place: tuple[int, int] | None = None, hint: str = "") -> None:
        self.reason = reason = _in_one_line(reason)
        self.word = word
        self.place = place
        where = f"line {place[0]}, column {place[1]}: " if place is not None else ""
        said = f"{_in_one_line(word)!r}: " if word else ""
        super().__init__(f"{where}{said}{reason}", hint=hint)


def _in_one_line(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


class NotComputable(ValueError):
    """Postgres itself would end the query with an error on this value (a division by zero, an overflow).

    The document is parked by its key. ``str()`` of it is a sentence without values of a row.
    """


def place_of(sql: str, location: int) -> tuple[int, int] | None:
    """Line and column, from 1, of a byte offset in the text. None for an unknown one.

    >>> place_of("select a,\\n  é, b", 16)
    (2, 6)
    """
    if location < 0:
        return None
    before = sql.encode()[:location].decode(errors="replace")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def word_at(sql: str, location: int) -> str:
    """The word that begins at a byte offset, or the sign that stands there.

    >>> word_at("select now() from t", 7)
    'now'
    """
    rest = sql.encode()[max(location, 0) :].decode(errors="replace")
    end = next((i for i, c in enumerate(rest) if not (c.isalnum() or c in '_."')), len(rest))
    return rest[: end or 1]
