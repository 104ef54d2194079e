"""The errors of a view's state: one that cannot be used now, and one whose place is wrong by itself."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from cdc.errors import CdcError, ConfigError, Exit, Retry
from cdc.foreign import quoted

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
