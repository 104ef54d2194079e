"""How far a view's state is, and the plan that it is opened under. Pure."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

import orjson

from cdc.process.errors import CdcError, ConfigError, Exit, Retry
from cdc.process.untrusted_text import quoted
from cdc.record.documents import FORMAT, read_members, reading, record_of
from cdc.record.position import Position
from cdc.record.progress import Offsets
from cdc.views.known_views import padded_lengths, plan_digest, state_identity
from cdc.views.log_cut import BEFORE_ALL, Fence
from cdc.views.view_plan import ViewPlan

_FORMAT = 1
_ABOUT = "the state of a view, which may be deleted,"
_FENCES = ("fence", "published", "sweep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How far a state is. ``offsets``: what it has read. ``fence``: everything below is in.

    ``built``: it has held every row once. ``sweep``: the floor of the mark that is due when all roots of the first
    build are published. ``ends``: of the view's topic, behind what was published last. ``published``: the greatest
    fence that was ever published at. ``level_ms``: when it was last level with the log's end, in ms since 1970.
    ``marks``: sweep marks seen, as ``table floor partition``. ``proven``: the cleaner took nothing before it was read.
    ``swept``: the epoch of each table's last sweep. ``later``: sweeps of a later fence, as ``table floor epoch lsn``.
    ``cleared``: the greatest floor of each table. ``letters``: the next offset of the dead letters. ``held``: tables
    of which the log lacks rows, each with a sentence. ``topic_id``: Kafka's, of the view's topic, empty in a state
    that did not note it. ``asked``: the id of the newest wish for documents once more that was taken up, empty before
    any. ``identity``: as :func:`cdc.views.known_views.state_identity` has it.
    ``awaited``: tables whose rows the log has as they were, each with a sentence: documents go out, and no LSN is
    claimed. ``lengths``: as :func:`cdc.views.known_views.padded_lengths` has them.
    ``met``: the newest position of what others have published, or this state under another plan. Empty where there is
    none.
    """

    plan: str
    generation: int
    fence: Fence = BEFORE_ALL
    offsets: Offsets = field(default_factory=dict)
    built: bool = False
    sweep: Fence | None = None
    ends: Mapping[int, int] = field(default_factory=dict)
    published: Fence = BEFORE_ALL
    level_ms: int = 0
    marks: tuple[str, ...] = ()
    proven: bool = False
    swept: Mapping[str, int] = field(default_factory=dict)
    later: tuple[str, ...] = ()
    cleared: Mapping[str, str] = field(default_factory=dict)
    letters: int = 0
    held: Mapping[str, str] = field(default_factory=dict)
    topic_id: str = ""
    asked: str = ""
    identity: str = ""
    awaited: Mapping[str, str] = field(default_factory=dict)
    lengths: str = ""
    met: str = ""

    def numbered_above(self, fence: Fence) -> Position:
        """As :meth:`cdc.views.log_cut.Fence.above` has it."""
        return fence.above(Position.parse(self.met) if self.met else None)

    def due_sweep(self, claim: Fence, topic_claim: Fence) -> Fence | None:
        """The floor of a mark that may go out now. None where there is none, and where it waits.

        A mark takes from the stores what stands there from before the build, and so the former documents of keys that
        are parked. Where the topic claims an LSN below which these are not published, the stores would show less than
        they claim. Documents that have no root any more are deleted by their keys meanwhile.

        ``claim``: up to where everything is published. ``topic_claim``: BEFORE_ALL before the first one.
        """
        return None if claim < topic_claim else self.sweep

    def to_json(self) -> str:
        """:meth:`from_json` reads it back."""
        sweep = None if self.sweep is None else list(self.sweep)
        said = {FORMAT: _FORMAT, "fence": list(self.fence), "published": list(self.published), "sweep": sweep}
        # Not asdict, which copies every offset: a state is written at each turn.
        members = {one.name: getattr(self, one.name) for one in fields(self)} | said
        return orjson.dumps(members, option=orjson.OPT_NON_STR_KEYS).decode()

    def anew(self) -> Reached:
        """Of a state that is thrown away, and built by the same plan."""
        return Bound(self.plan, self.identity, self.lengths).begun(self.generation)

    @classmethod
    def from_json(cls, text: bytes | str) -> Reached:
        """Read :meth:`to_json` back. FormatError and DamagedError as every stored document."""
        members = read_members(text, _ABOUT, _FORMAT)
        with reading(_ABOUT):
            fences = {name: _fence(members[name]) for name in _FENCES if members.get(name) is not None}
        return record_of(cls, members | fences, _ABOUT)


class Bound(NamedTuple):
    """The plan that a state is opened under: its digest, the identity of what a state of it holds, and the lengths of
    what that holds without blanks."""

    plan: str
    identity: str
    lengths: str

    @classmethod
    def to(cls, plan: ViewPlan) -> Bound:
        """As a plan has both."""
        return cls(plan_digest(plan), state_identity(plan), padded_lengths(plan))

    def begun(self, generation: int) -> Reached:
        """Of a state that has nothing yet."""
        return Reached(generation=generation, **self._asdict())

    def other_than(self, reached: Reached) -> bool:
        """Whether a state was made when a table's column was of another type, of which its values are: its documents
        are to be computed anew."""
        return (reached.plan, reached.lengths) != (self.plan, self.lengths)

    def require(self, reached: Reached, generation: int, place: str) -> None:
        """ConfigError unless a state was made for this plan and generation. ``place``: of the state."""
        if reached.identity != self.identity or reached.generation != generation:
            raise ConfigError(
                f"the state in {place} was made by another text of the view, or over other columns of its tables",
                hint="cdc view rebuild builds the view as it is now",
            )


def _fence(value: object) -> Fence:
    match value:
        case [int(epoch), int(lsn)]:
            return Fence(epoch, lsn)
        case _:
            raise ValueError("a fence is an epoch and an LSN")


_WRONG = frozenset({errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})
_NO_DATABASE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
ELSEWHERE = "[views.NAME] state names another folder"
"""The way out where the place is wrong."""
_UNTOLD = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})
"""SQLite does not say which error of the system they were."""


class StateAway(CdcError):
    """The state of a view cannot be used now. Nothing of the turn was published, or it comes again."""

    exit = Exit.UNAVAILABLE
    retry = Retry.LATER


class StateTaken(StateAway):
    """Somebody else has the state for now, and brings it on: that is waited for."""


class StateForbidden(ConfigError):
    """We may not write where a view's state is to be. The empty folder of a mount that is away looks the same."""


class StateDamaged(ConfigError):
    """The file in a view's place is no state of it, or is none any more. Trying again does not mend it."""


def opening_fault(path: Path | str, failure: Exception) -> CdcError:
    """The error for a state that cannot be opened. StateAway where it may be there again later: that is all but what
    is wrong with the place itself.

    >>> type(opening_fault("a", OSError(errno.EIO, "Input/output error"))).__name__
    'StateAway'
    >>> type(opening_fault("a", OSError(errno.ENOTDIR, "Not a directory"))).__name__
    'ConfigError'
    """
    said = f"the state of the view cannot be kept in {path}: {quoted(failure)}"
    told = _told_by_system(path, failure)
    number = told.errno if isinstance(told, OSError) else None
    if is_damaged(told) or getattr(told, "sqlite_errorcode", 0) == sqlite3.SQLITE_ERROR:
        # Or it has tables of somebody else's.
        return StateDamaged(said, hint=f"{ELSEWHERE}. cdc view rebuild throws a damaged state away")
    if number in _FORBIDDEN:
        return StateForbidden(said, hint=ELSEWHERE)
    if number in _WRONG and not _leads_nowhere(told):
        return ConfigError(said, hint=ELSEWHERE)
    tried = "it is tried again: see that its disk is there, can be written and has room"
    return StateAway(said, hint=f"{tried}. cdc view rebuild throws a damaged state away")


def is_damaged(failure: Exception) -> bool:
    """Whether SQLite says that a file is no database, or none any more."""
    return getattr(failure, "sqlite_errorcode", 0) & 0xFF in _NO_DATABASE


def is_there(path: Path) -> bool:
    """Whether a state is at a path. Raises as :func:`opening_fault` where that cannot be seen."""
    try:
        return path.exists()
    except OSError as failure:
        raise opening_fault(path, failure) from None


def _told_by_system(path: Path | str, failure: Exception) -> Exception:
    """The system's own error, where SQLite keeps it to itself."""
    if getattr(failure, "sqlite_errorcode", 0) & 0xFF in _UNTOLD:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o644))
        except OSError as told:
            return told
    return failure


def _leads_nowhere(failure: Exception) -> bool:
    """Whether a link is in the way whose target is away: a folder cannot be made there, as it exists."""
    name = failure.filename if isinstance(failure, OSError) else None
    if not isinstance(name, str):
        return False
    with suppress(OSError):
        return os.path.islink(name) and not os.path.exists(name)
    return True
