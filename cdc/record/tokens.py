"""A token: the place in the source's WAL that a reader waits for, with the server that it is a place of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from cdc.process.errors import UsageError
from cdc.process.untrusted_text import quoted
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from cdc.record.source_lineage import LsnRelation

_TEXT = re.compile(r"([0-9]{1,20})/([0-9]{1,10}):([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})")
_MOST_SYSTEM, _MOST_TIMELINE = 2**64, 2**32


@dataclass(frozen=True, slots=True)
class Token:
    """Everything that was committed before the token was taken lies below ``lsn``.

    ``system``: the server's system identifier in decimal digits. ``timeline``: the one that it wrote to. ``lsn``: its
    insert LSN. A token is text in a cookie, a header or a session: ``str(token)`` and :meth:`parse`. Two tokens are
    equal when all three members are. They have no order, because LSNs of two servers have none.
    """

    system: str
    timeline: int
    lsn: Lsn

    @classmethod
    def parse(cls, text: str) -> Token:
        """Read the text form back. UsageError for any other text.

        >>> str(Token.parse("7301444403801980345/1:0/16B3D48"))
        '7301444403801980345/1:0/16B3D48'
        """
        found = _TEXT.fullmatch(text)
        if found is None or int(found[1]) >= _MOST_SYSTEM or not 0 < int(found[2]) < _MOST_TIMELINE:
            raise UsageError(
                f"{quoted(text)} is not a token",
                hint="take it from cdc.read.token(connection); it looks like 7301444403801980345/1:0/16B3D48",
            )
        return cls(str(int(found[1])), int(found[2]), Lsn.parse(found[3]))

    def __str__(self) -> str:
        return f"{self.system}/{self.timeline}:{self.lsn}"


class TokenRelation(Enum):
    """How a store's watermark relates to a token."""

    SHOWN = "shown"
    """The store shows everything below the token."""
    BEHIND = "behind"
    """The store shows the token's server, and is not there yet."""
    EMPTY = "empty"
    """The store has no watermark."""
    UNNAMED = "unnamed"
    """The watermark does not name its server, as those of version 0.1 and of Debezium's topics do not."""
    PROMOTION = "promotion"
    """The token's timeline is newer than the watermark's: capture has not gone on with the promoted server yet."""
    LOST = "lost"
    """The token lies on WAL that a promotion left behind. Its commit may lie below and have survived, but the store
    never shows the token."""
    STRANGE = "strange"
    """The store shows another server, or a timeline whose history was not noted."""


_OF_KINSHIP = {
    LsnRelation.LOST: TokenRelation.LOST,
    LsnRelation.LATER: TokenRelation.PROMOTION,
    LsnRelation.UNKNOWN: TokenRelation.STRANGE,
    LsnRelation.STRANGE: TokenRelation.STRANGE,
}


def standing(token: Token, watermark: Watermark | None) -> TokenRelation:
    """How a watermark relates to a token. Another lineage is never shown, whatever its LSN.

    >>> standing(Token("7", 1, Lsn(9)), Watermark(epoch=1, lsn=9)).value
    'unnamed'
    """
    if watermark is None:
        return TokenRelation.EMPTY
    if watermark.lineage is None:
        return TokenRelation.UNNAMED
    kinship = watermark.lineage.kinship(token.system, token.timeline, token.lsn)
    if kinship is not LsnRelation.SAME:
        return _OF_KINSHIP[kinship]
    return TokenRelation.SHOWN if watermark.lsn >= token.lsn else TokenRelation.BEHIND


def sentence(sink: str, token: Token, watermark: Watermark | None) -> str:
    """One clause on why a store does not show a token."""
    shown = Lsn(watermark.lsn) if watermark is not None else Lsn(0)
    lineage = watermark.lineage if watermark is not None else None
    match standing(token, watermark):
        case TokenRelation.EMPTY:
            return f"{sink} has no watermark yet"
        case TokenRelation.UNNAMED:
            return f"the watermark of {sink} does not name the server that its LSN belongs to"
        case TokenRelation.LOST:
            return f"a promotion left {token} behind: its commit may be lost, and {sink} never shows it"
        case TokenRelation.STRANGE | TokenRelation.PROMOTION:
            return f"{sink} shows server {lineage}, and the token is of {token.system}/{token.timeline}"
        case _:
            return f"{sink} stands at {shown}, and the token at {token.lsn}"
