"""Figures of ``cdc status`` as people read them: pure."""

from __future__ import annotations

import math

_DAY_S = 86_400


def size(count: int | None) -> str:
    """Bytes for people.

    >>> size(0), size(300), size(20_000), size(3_000_000), size(None)
    ('0 B', '300 B', '19.5 kB', '2.9 MB', '?')
    """
    if count is None:
        return "?"
    for unit, one in (("GB", 1024**3), ("MB", 1024**2), ("kB", 1024)):
        if count >= one:
            return f"{count / one:.1f} {unit}"
    return f"{count} B"


def age(seconds: float | None) -> str:
    """Seconds for people.

    >>> age(0.04), age(12.34), age(600), age(90_000), age(None)
    ('0.0 s', '12.3 s', '10 min', '25 h', '?')
    >>> age(1_000_000), age(1e17)
    ('12 days', '> 999 days')
    """
    if seconds is None:
        return "?"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 3 * _DAY_S:
        return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
    return f"{seconds / _DAY_S:.0f} days" if seconds < 999 * _DAY_S else "> 999 days"


def aged(seconds: float | None, at_least: bool) -> str:
    """The same of an age that may be more.

    >>> aged(110.0, False), aged(110.0, True)
    ('110.0 s', '> 110.0 s')
    """
    return f"> {age(seconds)}" if at_least and seconds is not None else age(seconds)


def share_text(share: float) -> str:
    """How much is done, for people. Anything less than all is less than 100 %.

    >>> share_text(0.414), share_text(0.9996), share_text(1.0)
    ('41%', '99%', '100%')
    """
    return f"{math.floor(share * 100 + 1e-9)}%"


def rate(count_bytes: float) -> str:
    """Bytes a second, for people."""
    return f"{size(round(count_bytes))}/s"


def count(number: int) -> str:
    """A number, for people.

    >>> count(25167)
    '25,167'
    """
    return f"{number:,}"


def seconds_text(seconds: float) -> str:
    """Seconds with their hundredths, for people."""
    return f"{seconds:.2f} s"
