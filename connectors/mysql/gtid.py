"""Sets of global transaction ids, of both kinds of server: whether one holds another. Pure.

MariaDB names the last transaction of each domain (``0-1-41,1-2-7``: domain, server, number). Numbers rise within a
domain whichever server writes, so the number alone decides, as it does for the server's own ``MASTER_GTID_WAIT``.

MySQL names every transaction, in intervals per server and tag (``uuid:1-5:7,uuid:tag:1-3``). A set holds another only
with each of its numbers: transactions may be missing between.
"""

from __future__ import annotations

from collections.abc import Sequence

Interval = tuple[int, int]
"""First and last number, both of them in it."""


def mariadb_covers(passed: str, wanted: str) -> bool:
    """Whether every transaction up to ``wanted`` lies at or below ``passed``. ValueError for what is no GTID position.

    >>> mariadb_covers("0-1-41,1-2-7", "0-1-41"), mariadb_covers("0-2-42", "0-1-41"), mariadb_covers("0-1-40", "0-1-41")
    (True, True, False)
    >>> mariadb_covers("0-1-41", "1-1-1"), mariadb_covers("", "")
    (False, True)
    """
    reached = _domains(passed)
    return all(reached.get(domain, -1) >= number for domain, number in _domains(wanted).items())


def mysql_covers(passed: str, wanted: str) -> bool:
    """Whether every transaction of ``wanted`` is one of ``passed``. ValueError for what is no GTID set.

    >>> mysql_covers("a:1-5:7-9", "a:2-3:8"), mysql_covers("a:1-5:7-9", "a:5-7"), mysql_covers("a:1-9", "a:tag:1")
    (True, False, False)
    """
    reached = _intervals(passed)
    return all(
        any(first <= low and high <= last for first, last in reached.get(origin, ()))
        for origin, spans in _intervals(wanted).items()
        for low, high in spans
    )


def names_transaction(text: str, *, mariadb: bool) -> bool:
    """Whether a text names a transaction at all: a set that names none is covered by every other. False for no set.

    >>> names_transaction("0-1-41", mariadb=True), names_transaction("a:1-5", mariadb=False)
    (True, True)
    >>> names_transaction(" , ", mariadb=True), names_transaction("a:5-1", mariadb=False)
    (False, False)
    >>> names_transaction("0/16B3D48", mariadb=True), names_transaction("0-1-41", mariadb=False)
    (False, False)
    """
    try:
        return any(_domains(text).values() if mariadb else _intervals(text).values())
    except ValueError:
        return False


def _domains(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in _parts(text):
        domain, server, number = part.split("-")
        if not (domain.isdecimal() and server.isdecimal() and number.isdecimal()):
            raise ValueError(f"not a GTID: {part}")
        key = str(int(domain))
        found[key] = max(int(number), found.get(key, -1))
    return found


def _intervals(text: str) -> dict[str, list[Interval]]:
    """Of each server and tag, in order, those that touch joined."""
    spans: dict[str, list[Interval]] = {}
    for part in _parts(text):
        server, *rest = (word.strip().lower() for word in part.split(":"))
        if not server or not rest:
            raise ValueError(f"not a GTID set: {part}")
        origin = server
        for word in rest:
            if word and not word[0].isdecimal():
                origin = f"{server}:{word}"
            else:
                spans.setdefault(origin, []).append(_interval(word))
    return {origin: _joined(found) for origin, found in spans.items()}


def _interval(word: str) -> Interval:
    low, dash, high = word.partition("-")
    first = int(low)
    return first, int(high) if dash else first


def _joined(spans: Sequence[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        elif first <= last:
            joined.append((first, last))
    return joined


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
