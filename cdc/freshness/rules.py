"""Read your own write: wait until a store shows an LSN.

The token is ``pg_current_wal_insert_lsn()``, taken after the commit: ``pg_current_wal_lsn()`` lies behind one's
own commit under synchronous_commit=off. A :class:`cdc.record.tokens.Token` names the server as well, and is
judged by the store's watermark alone. A bare LSN is taken as one of the pipeline's present epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import DifferenceFound
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from cdc.record.tokens import Standing, Token, sentence, standing

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.2
NUDGE_AFTER_S = 1.0


class ReadsWatermarks(Protocol):
    """The part of ``sinks.contract.port.Watermarks`` that is used here."""

    def read(self) -> Watermark | None:
        """The store's watermark. None for an empty store. SinkError when it does not answer."""


TokenEpoch = Callable[[int], int | None]
"""Finds the epoch of a token, for a store whose watermark is in the epoch that it gets. None where any counts."""


def wait_until_shown(
    sink: str,
    watermarks: ReadsWatermarks,
    lsn: int,
    *,
    epoch: TokenEpoch | int | None = None,
    timeout_s: float = 30.0,
    nudge: Callable[[], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Watermark:
    """Return the store's watermark once it shows every change committed below ``lsn``.

    ``epoch``: of the token, or what finds it. A watermark of another one does not count: LSNs start over with an
    epoch. ``nudge`` is called once when a second has passed: a quiet server writes nothing that would carry the log
    past a token at its very end. Raises DifferenceFound when ``timeout_s`` has passed, and SinkError when the
    store cannot be asked.
    """

    def late(watermark: Watermark | None) -> DifferenceFound:
        stands = f"stands at {Lsn(watermark.lsn)}" if watermark is not None else "has no watermark yet"
        return DifferenceFound(
            f"{sink} {stands}; {Lsn(lsn)} was not reached in {timeout_s:g} s",
            hint="cdc status shows where it is held up; cdc run and cdc sink have to be running",
        )

    def shown(mark: Watermark) -> bool:
        return shows(mark, lsn, epoch(mark.epoch) if callable(epoch) else epoch)

    return _wait(watermarks, shown, late, timeout_s=timeout_s, nudge=nudge, clock=clock)


def wait_until_token_shown(
    sink: str,
    watermarks: ReadsWatermarks,
    token: Token,
    *,
    timeout_s: float = 30.0,
    nudge: Callable[[], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Watermark:
    """The same for a token that names its server. A watermark of another lineage does not count, whatever its LSN.

    Raises as :func:`wait_until_shown`, and at once for a commit that a promotion left behind.
    """

    def late(watermark: Watermark | None) -> DifferenceFound:
        return not_shown(sink, token, watermark, timeout_s)

    def shown(mark: Watermark) -> bool:
        found = standing(token, mark)
        if found is Standing.LOST:
            raise not_shown(sink, token, mark, 0.0)
        return found is Standing.SHOWN

    return _wait(watermarks, shown, late, timeout_s=timeout_s, nudge=nudge, clock=clock)


def not_shown(sink: str, token: Token, watermark: Watermark | None, waited_s: float) -> DifferenceFound:
    """The error for a store that does not show a token."""
    waited = f"; waited {waited_s:g} s" if waited_s else ""
    return DifferenceFound(f"{sentence(sink, token, watermark)}{waited}", hint=_HINTS[standing(token, watermark)])


_RUNNING = "cdc status shows where it is held up; cdc run and cdc sink have to be running"
_HINTS = {
    Standing.SHOWN: "",
    Standing.BEHIND: _RUNNING,
    Standing.EMPTY: _RUNNING,
    Standing.UNNAMED: "cdc run and cdc sink name it from their first record on; Debezium's topics have no server, so "
    "use cdc wait with the LSN alone",
    Standing.PROMOTION: "cdc run has to go on with the promoted server first",
    Standing.LOST: "look in Postgres whether the commit is there, and write again what is not",
    Standing.STRANGE: "read from Postgres, and take a new token on the server that the pipeline follows",
}


def wait_until_spoken_for(
    sink: str, watermarks: ReadsWatermarks, topic: str, *, timeout_s: float = 30.0, clock: Clock = SYSTEM_CLOCK
) -> Watermark:
    """Return the store's watermark once its LSN is that of a topic's table or view as well.

    Raises DifferenceFound when ``timeout_s`` has passed, and SinkError when the store cannot be asked.
    """

    def late(watermark: Watermark | None) -> DifferenceFound:
        hold = watermark.held.get(topic) if watermark is not None else None
        said = hold.sentence(sink) if hold is not None else f"{sink} does not read the topic {topic} yet"
        return DifferenceFound(f"{said}; waited {timeout_s:g} s", hint="cdc status shows where it is held up")

    def spoken_for(mark: Watermark) -> bool:
        return speaks_for(mark, topic)

    return _wait(watermarks, spoken_for, late, timeout_s=timeout_s, nudge=None, clock=clock)


def _wait(
    watermarks: ReadsWatermarks,
    shown: Callable[[Watermark], bool],
    late: Callable[[Watermark | None], DifferenceFound],
    *,
    timeout_s: float,
    nudge: Callable[[], None] | None,
    clock: Clock,
) -> Watermark:
    started, pause_s = clock.monotonic(), FIRST_PAUSE_S
    while True:
        watermark = watermarks.read()
        if watermark is not None and shown(watermark):
            return watermark
        waited_s = clock.monotonic() - started
        if waited_s >= timeout_s:
            raise late(watermark)
        if nudge is not None and waited_s >= NUDGE_AFTER_S:
            nudge()
            nudge = None
        clock.sleep(min(pause_s, timeout_s - waited_s))
        pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)


def require_whole(sink: str, watermark: Watermark) -> None:
    """Return where a store shows every table up to its LSN.

    Raises DifferenceFound when a table is set aside: the log lacks changes of it, so the store shows less.
    """
    if watermark.aside:
        words = list(watermark.aside.values())
        more = f", and {len(words) - 1} more" if len(words) > 1 else ""
        raise DifferenceFound(
            f"{sink} shows all tables up to {Lsn(watermark.lsn)} but these: {words[0]}{more}",
            hint="cdc status names each table that is set aside, and why",
        )


def speaks_for(watermark: Watermark, topic: str) -> bool:
    """Whether the LSN of a watermark is that of a topic's table or view as well."""
    return topic in watermark.topic_ids and topic not in watermark.held


def shows(watermark: Watermark, lsn: int, epoch: int | None) -> bool:
    """Whether a store at this watermark shows all below ``lsn`` of an epoch. None: of the store's own."""
    return (epoch is None or watermark.epoch == epoch) and watermark.lsn >= lsn
