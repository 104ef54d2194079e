"""What the history of a table in a warehouse can answer: the table below a position, and which position a time is.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cdc.process.errors import UsageError
from cdc.record.position import SNAPSHOT_SEQ, Lsn, Position

_COMMIT = 24
"""So many digits of a position are its epoch and its commit's LSN."""


class HistoryMarks(NamedTuple):
    """What is about a table as a whole in its history. Positions as texts.

    ``first``: of its first row, None where it has none. ``behind``: of the first one at or behind the asked position.
    ``gaps``: changes below their LSNs may be missing. ``readings``: from where on a whole reading of the table counts,
    the first snapshot among them.
    """

    table: str
    first: str | None
    behind: str | None = None
    gaps: Sequence[str] = ()
    readings: Sequence[str] = ()


def require_answer(marks: HistoryMarks, cut: Position) -> None:
    """UsageError where a history cannot say what its table was below ``cut``."""
    asked, limit = Lsn(cut.commit_lsn), cut.text()
    table = marks.table
    if marks.first is None or limit < marks.first:
        begins = "has no row yet" if marks.first is None else f"begins at {_lsn(marks.first)}"
        raise UsageError(
            f"{table} cannot be read as of {asked}: its history {begins}",
            hint="ask for a later LSN, or for the table alone as it is now",
        )
    # A gap speaks of what lies below its LSN, whatever of that commit stands beside it.
    gaps = [gap[:_COMMIT] for gap in marks.gaps]
    missing = [gap for gap in gaps if gap <= limit[:_COMMIT]]
    within = any(limit[:_COMMIT] <= gap and (marks.behind is None or gap <= marks.behind) for gap in gaps)
    readings = [one for one in marks.readings if one <= limit]
    read = max(readings, default="")[:_COMMIT]
    if within or (missing and read < max(missing)):
        raise UsageError(
            f"{table} cannot be read as of {asked}: its history has a gap there, and changes are missing",
            hint=f"cdc snapshot {table} reads the table whole: each LSN from then on can be asked for",
        )
    if not missing and not readings and marks.readings:
        raise UsageError(
            f"{table} cannot be read as of {asked}: it was captured later, and whole at {_lsn(min(marks.readings))}",
            hint="ask for an LSN from there on",
        )


def require_shown(table: str, cut: Position, shown: Position) -> None:
    """UsageError where the store does not show all below ``cut`` yet."""
    if cut > shown:
        raise UsageError(
            f"{table} cannot be read as of {Lsn(cut.commit_lsn)}: the store shows the source up to "
            f"{Lsn(shown.commit_lsn)} only",
            hint="cdc wait waits for it; cdc status says how far it is",
        )


def cut_of(first_later: str | None, asked: str, shown: Position) -> Position:
    """The position that a time is: of the first commit with a later time, whichever it is of those that are asked for.

    Commit times are not in the order of commits. So a commit counts as late as the latest before it: then a later time
    is never an earlier position. UsageError where no commit is later: one may be on its way. ``asked``: for messages.
    """
    if first_later is None:
        raise UsageError(
            f"the tables cannot be read as of {asked}: the store has no later commit of them yet",
            hint="an earlier one may be on its way. Ask by LSN: the newest is the one that the store shows",
        )
    found = Position.parse(first_later)
    if found.epoch != shown.epoch:
        raise UsageError(
            f"the tables cannot be read as of {asked}: that was before the slot was made anew, in epoch {found.epoch}",
            hint="ask for a time since then",
        )
    return Position(found.epoch, found.commit_lsn, SNAPSHOT_SEQ)


def require_known(table: str, since: str | None, gaps: Sequence[str], cut: Position, asked: str) -> None:
    """UsageError where the table at a time cannot be told from the table below ``cut``, which is of a later commit.

    ``since``: the position of the newest row from that time or before, None without one. ``gaps``: all up to ``cut``.
    ``asked``: for messages.
    """
    if since is None:
        raise UsageError(
            f"{table} cannot be read as of {asked}: its history begins later",
            hint="ask for a later time, or for the table alone as it is now",
        )
    if any(since[:_COMMIT] < gap[:_COMMIT] <= cut.text()[:_COMMIT] for gap in gaps):
        raise UsageError(
            f"{table} cannot be read as of {asked}: its history has a gap between that time and the next commit",
            hint="ask for a time before the gap, or after the reading behind it",
        )


def _lsn(position: str) -> Lsn:
    return Lsn(Position.parse(position).commit_lsn)
