"""Refusals of a view: one sentence with the word, its place in the text and the way out."""

from __future__ import annotations

from cdc.errors import ConfigError

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
