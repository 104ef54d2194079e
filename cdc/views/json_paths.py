"""The path behind ``#>`` and ``#>>``, as Postgres reads the text of an array."""

from __future__ import annotations

from functools import lru_cache

from cdc.views.refused import NotComputable

_BLANK = " \t\n\r\v\f"


@lru_cache(maxsize=1024)
def path_of(text: str) -> tuple[str | None, ...]:
    """The steps of a path. None for NULL, which leads nowhere. NotComputable where Postgres reads no array.

    >>> path_of('{a, 0,"b,c",null}')
    ('a', '0', 'b,c', None)
    """
    stripped = text.strip(_BLANK)
    if len(stripped) < 2 or stripped[0] != "{" or stripped[-1] != "}":
        raise NotComputable("malformed array literal")
    inner = stripped[1:-1]
    if not inner.strip(_BLANK):
        return ()
    steps: list[str | None] = []
    at = 0
    while at <= len(inner):
        step, at = _step(inner, at)
        steps.append(step)
        if at < len(inner) and inner[at] != ",":
            raise NotComputable("malformed array literal")
        at += 1
    return tuple(steps)


def _step(inner: str, at: int) -> tuple[str | None, int]:
    """The element that begins here, and where its comma or the end is."""
    while at < len(inner) and inner[at] in _BLANK:
        at += 1
    in_quotes = inner[at : at + 1] == '"'
    at += in_quotes
    found: list[str] = []
    kept = 0  # Blanks at an unquoted element's end are none of it, unless a backslash is before them.
    escaped = False
    while at < len(inner) and not (inner[at] == '"' if in_quotes else inner[at] in ',{}"'):
        if inner[at] == "\\":
            at, escaped = at + 1, True
            found += inner[at : at + 1]
            kept = len(found)
        else:
            found.append(inner[at])
            kept = kept if inner[at] in _BLANK else len(found)
        at += 1
    if not in_quotes:
        word = "".join(found[:kept])
        if not word:
            raise NotComputable("malformed array literal")
        return (None if word.lower() == "null" and not escaped else word), at
    at += 1
    while at < len(inner) and inner[at] in _BLANK:
        at += 1
    if at > len(inner):
        raise NotComputable("malformed array literal")
    return "".join(found), at
