"""Fills of a cache: rows that readers had from Postgres, kept beside the sink's rows until it has caught up. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Self

import orjson

from cdc.process.errors import UsageError
from cdc.process.untrusted_text import quoted
from cdc.record.documents import dumped
from cdc.record.progress import Watermark
from cdc.record.tokens import Standing, Token, standing
from sinks.cache.cached_types import row_of_json

KEEP = (files("sinks.cache") / "fill.lua").read_text(encoding="utf-8")
"""The script that writes a fill: one key, and the arguments of :meth:`Fill.arguments`."""
FIELDS = ("token", "row")
_NOT_PASSED = {Standing.EMPTY, Standing.UNNAMED, Standing.BEHIND, Standing.PROMOTION}
_HINT = "convert them as the stores have them: see Plain values in sinks/README.md"


@dataclass(frozen=True, slots=True)
class Fill:
    """A row as JSON, with the token that was taken before it was read. None for a row that is not there."""

    row: bytes | None
    token: Token

    @classmethod
    def of(cls, found: object) -> Self:
        """Take a row and a token, as a program has read them from Postgres. UsageError for anything else, and for a row
        whose values are not plain."""
        row, token = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        if not isinstance(token, Token):
            raise UsageError("a fill is a ReadRow: a row and a token", hint="return ReadRow(row, token) from read")
        if row is not None and not isinstance(row, Mapping):
            raise UsageError(
                f"a row that fills the cache is a mapping of columns to values, and not a {type(row).__name__}",
                hint="have the driver make such rows: psycopg.connect(…, row_factory=psycopg.rows.dict_row)",
            )
        return cls(_plain_text(row) if row is not None else None, token)

    @classmethod
    def kept(cls, fields: object) -> Self | None:
        """A fill as the cache has it: the fields of ``FIELDS``. None where it has none, or something else."""
        if not isinstance(fields, Sequence) or None in fields:
            return None
        token, row = fields
        try:
            return cls(row, Token.parse(token.decode())) if isinstance(row_of_json(row), dict) else None
        except (ValueError, UsageError):
            return None

    def document(self) -> Mapping[str, Any] | None:
        """The row as the stores have it."""
        return row_of_json(self.row) if self.row is not None else None

    def serves(self, watermark: Watermark | None, since: Token | None) -> bool:
        """Whether the row may be read. Not where the store shows all that is as old as the row: it may have shown a
        newer one since, and have evicted it. ``since``: not a row that was read before this token
        either."""
        # At the same LSN it may have been read before the commit was visible.
        seen = since is None or (
            (self.token.system, self.token.timeline) == (since.system, since.timeline) and self.token.lsn > since.lsn
        )
        return seen and standing(self.token, watermark) in _NOT_PASSED

    def arguments(self, keep_s: float) -> Sequence[str | bytes | int]:
        """Those of the script."""
        # The text sorts as the numbers do, under every collation of the server.
        read = f"{self.token.timeline:010d}{self.token.lsn:020d}"
        return self.token.system, read, str(self.token), self.row or b"", max(1, int(keep_s * 1000))


def _plain_text(row: Mapping[str, Any]) -> bytes:
    if any(map(_endless, row.values())):
        raise UsageError(
            "a row that fills the cache has plain values, and a float that is no number is none", hint=_HINT
        )
    try:
        # Moments have other texts in the stores than in Python.
        return dumped(dict(row), option=orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError as error:
        raise UsageError(f"a row that fills the cache has plain values: {quoted(error)}", hint=_HINT) from None


def _endless(value: object) -> bool:
    """JSON has no NaN and no infinity: they would turn into null."""
    match value:
        case float():
            return not math.isfinite(value)
        case Mapping():
            return any(map(_endless, value.values()))
        case str() | bytes():
            return False
        case Iterable():
            return any(map(_endless, value))
        case _:
            return False
