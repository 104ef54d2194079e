"""Text and bytes as Postgres treats them, where the order and the case of letters are those of the collation C.

Every function takes values that are not null.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from cdc.views.syntax import NotComputable

_UPPER = str.maketrans({chr(c): chr(c + 32) for c in range(ord("A"), ord("Z") + 1)})
_LOWER = str.maketrans({chr(c): chr(c - 32) for c in range(ord("a"), ord("z") + 1)})


def lower(text: str) -> str:
    """ASCII letters alone, as the collation C has no others."""
    return text.translate(_UPPER)


def upper(text: str) -> str:
    """ASCII letters alone."""
    return text.translate(_LOWER)


def initcap(text: str) -> str:
    """The first letter of each word of ASCII letters and digits."""
    return re.sub(r"[A-Za-z0-9]+", lambda m: upper(m[0][0]) + lower(m[0][1:]), text)


def substring(text: str, start: int, count: int | None = None) -> str:
    """From a character that is counted from 1, and may lie before the text. Raises NotComputable for a negative count.

    >>> substring("abcdef", -1, 4), substring("abcdef", 5)
    ('ab', 'ef')
    """
    if count is None:
        return text[max(start, 1) - 1 :]
    if count < 0:
        raise NotComputable("negative substring length not allowed")
    return text[max(start, 1) - 1 : max(start + count - 1, 0)]


def left(text: str, count: int) -> str:
    """The first characters, or all but so many of the last."""
    return text[:count] if count >= 0 else text[: max(len(text) + count, 0)]


def right(text: str, count: int) -> str:
    """The last characters, or all but so many of the first."""
    return text[-count:] if count else ""


def replaced(text: str, old: str, new: str) -> str:
    """Each occurrence. Of nothing there is none."""
    return text.replace(old, new) if old else text


def split_part(text: str, by: str, number: int) -> str:
    """A field, counted from 1, or from the end by a negative number. Raises NotComputable for the number 0."""
    if number == 0:
        raise NotComputable("field position must not be zero")
    fields = text.split(by) if by else [text]
    index = number - 1 if number > 0 else number
    return fields[index] if -len(fields) <= index < len(fields) and text else ""


def padded_left(text: str, length: int, fill: str = " ") -> str:
    """To so many characters. Longer text is cut."""
    length = max(length, 0)
    lacking = length - len(text)
    if lacking <= 0 or not fill:
        return text[:length]
    return (fill * (lacking // len(fill) + 1))[:lacking] + text


def padded_right(text: str, length: int, fill: str = " ") -> str:
    """To so many characters. Longer text is cut."""
    length = max(length, 0)
    lacking = length - len(text)
    if lacking <= 0 or not fill:
        return text[:length]
    return text + (fill * (lacking // len(fill) + 1))[:lacking]


def trimmed(text: str, characters: str = " ") -> str:
    """On both sides."""
    return text.strip(characters) if characters else text


def trimmed_left(text: str, characters: str = " ") -> str:
    """On the left."""
    return text.lstrip(characters) if characters else text


def trimmed_right(text: str, characters: str = " ") -> str:
    """On the right."""
    return text.rstrip(characters) if characters else text


def repeated(text: str, count: int) -> str:
    """The text ``count`` times. Raises NotComputable for a result of more than 256 Mi characters."""
    if len(text) * max(count, 0) > 256 * 1024 * 1024:
        raise NotComputable("requested length too large")
    return text * max(count, 0)


def reversed_text(text: str) -> str:
    """From the end."""
    return text[::-1]


def place_in(text: str, part: str) -> int:
    """Where a part begins, from 1. 0 for nowhere."""
    return text.find(part) + 1


def md5(text: str) -> str:
    """In hex digits."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def hex_text(value: bytes) -> str:
    """As ``bytea`` is printed."""
    return "\\x" + value.hex()


@lru_cache(maxsize=512)
def _like(pattern: str, escape: str, fold: bool) -> re.Pattern[str]:
    parts: list[str] = []
    rest = iter(pattern)
    for character in rest:
        if escape and character == escape:
            following = next(rest, None)
            if following is None:
                raise NotComputable("LIKE pattern must not end with escape character")
            parts.append(re.escape(following))
        elif character == "%":
            # A run of them is one: each would try every place once more.
            if parts[-1:] != [".*"]:
                parts.append(".*")
        else:
            parts.append("." if character == "_" else re.escape(character))
    # Each part between two % takes the first place that fits and is never tried again: linear, as (?>…) says.
    return re.compile(_atomic(parts), re.DOTALL | (re.IGNORECASE | re.ASCII if fold else 0))


def _atomic(parts: list[str]) -> str:
    """``a%b%c`` as ``a(?>.*?b).*c``: the last part has to stand at the end, each before it goes at its first place."""
    pieces = "\0".join(parts).split(".*")
    if len(pieces) == 1:
        return pieces[0].replace("\0", "")
    first, *middle, last = (piece.replace("\0", "") for piece in pieces)
    return first + "".join(f"(?>.*?{piece})" for piece in middle) + ".*" + last


def like(text: str, pattern: str, escape: str = "\\") -> bool:
    """``like``

    >>> like("order-17", "o%-1_"), like("a%", r"a\\%")
    (True, True)
    """
    try:
        return _like(pattern, escape, False).fullmatch(text) is not None
    except NotComputable:
        return _stepwise(text, pattern, escape) is True


def _stepwise(text: str, pattern: str, escape: str) -> bool | None:  # noqa: C901, PLR0911
    """``like`` for a pattern that ends with its escape: an error only where the text reaches it. None: no text is left.

    As MatchText() in src/backend/utils/adt/like_match.c walks.
    """
    t = p = 0
    while t < len(text) and p < len(pattern):
        if pattern[p] == "%":
            while p < len(pattern) and pattern[p] in "%_":
                if pattern[p] == "_":
                    if t >= len(text):
                        return None
                    t += 1
                p += 1
            if p == len(pattern):
                return True
            first = _first(pattern[p:], escape)
            for begin in range(t, len(text)):
                if text[begin] == first and (found := _stepwise(text[begin:], pattern[p:], escape)) is not False:
                    return found
            return None
        if pattern[p] == escape:
            p += 1
            _first(pattern[p - 1 :], escape)
            if pattern[p] != text[t]:
                return False
        elif pattern[p] != "_" and pattern[p] != text[t]:
            return False
        t, p = t + 1, p + 1
    if t < len(text):
        return False
    return True if not pattern[p:].strip("%") else None


def _first(pattern: str, escape: str) -> str:
    if pattern == escape:
        raise NotComputable("LIKE pattern must not end with escape character")
    return pattern[1] if pattern[0] == escape else pattern[0]


def ilike(text: str, pattern: str, escape: str = "\\") -> bool:
    """``ilike`` under the collation C: ASCII letters alone are folded."""
    return like(lower(text), lower(pattern), escape)


def unpadded(text: str) -> str:
    """A ``bpchar`` as it compares: without its blanks at the end."""
    return text.rstrip(" ")
