"""The transactions that a read of the source sees, and those that it has to see before its rows may stand above the
stream's changes.

A commit reaches the stream before it becomes visible, with a stalled synchronous standby hours before.
A row read in between is the old one, and would be written above the change that made it old.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Visibility:
    """The transactions that a snapshot sees: ``xmin:xmax:xip,...`` as ``pg_current_snapshot()`` prints it, in 64-bit
    xids.

    >>> seen = Visibility.parse("10:20:12,15")
    >>> [seen.sees(xid) for xid in (9, 10, 12, 15, 19, 20)]
    [True, True, False, False, True, False]
    """

    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Visibility:
        """Read ``xmin:xmax:xip,...``. ValueError where the text has another form."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(int(xid) for xid in running.split(",") if xid))

    def sees(self, xid: int) -> bool:
        """Whether the snapshot shows what this transaction (64 bit) did, if it committed."""
        return xid < self.xmax and xid not in self.running


class Gate(Protocol):
    """Decides whether a read sees enough. ``streamed`` and ``awaited`` are called by one thread."""

    def streamed(self, xids: Iterable[int]) -> None:
        """These transactions have been streamed just now."""

    def awaited(self) -> frozenset[int]:
        """The transactions that a read has to see before it may stand above everything streamed so far, as far as they
        are not known to be visible."""

    def saw(self, seen: Visibility) -> None:
        """A snapshot was taken that sees so much. Every later one sees it too. Any thread."""

    def passes(self, awaited: Collection[int], seen: Visibility) -> bool:
        """Whether a read with this snapshot sees all of them. Any thread."""


class VisibilityGate:
    """The gate. Transactions that an earlier session streamed are not known by name, and may be invisible still.
    Implements :class:`Gate`.

    ``start``: a snapshot of this session's beginning, taken when a transaction younger than all that had been
    streamed before had ended (:func:`connectors.postgres.server.slot.barrier`): each of those that was not visible is
    in its list of running ones. Without the barrier it need not be: its xmax is the newest *ended* transaction's
    successor, and a commit that waits for its standby has not ended.
    """

    def __init__(self, start: Visibility) -> None:
        self._awaited = set(start.running)
        self._seen: Visibility | None = None

    def streamed(self, xids: Iterable[int]) -> None:
        self._awaited.update(xids)
        self._prune()

    def awaited(self) -> frozenset[int]:
        self._prune()
        return frozenset(self._awaited)

    def saw(self, seen: Visibility) -> None:
        self._seen = seen

    def passes(self, awaited: Collection[int], seen: Visibility) -> bool:
        return all(seen.sees(xid) for xid in awaited)

    def _prune(self) -> None:
        seen, self._seen = self._seen, None
        if seen is not None:
            self._awaited = {xid for xid in self._awaited if not seen.sees(xid)}
