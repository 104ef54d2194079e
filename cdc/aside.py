"""Tables that are set aside: what the state topic says of a table that capture cannot follow for now. Pure.

A table whose changes cannot be carried waits alone. Its records are kept within a bound. Past it the table is set
aside, with an :class:`AsideState` that the brokers hold before any progress passes the oldest of these records. From
then on its changes are dropped. When the cause is gone the table is followed again and read again, with a sweep. So its
final state is kept, and the versions in between are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from cdc.errors import ConfigError
from cdc.json_bytes import dumped
from cdc.position import CHUNK_SEQ, Position
from cdc.state import Document, ReadingState, find_all
from cdc.topic import TableName

COMMIT_ALIGNMENT = 7


class Cause(StrEnum):
    """Why a table is set aside. Everything else stops capture."""

    LOCKED = "locked"
    """A lock on it, or a commit that does not become visible, outlasted the records that are kept."""
    CHANGED = "changed"
    """Its key or its shape is another one than the log can carry on with."""
    NOT_FOLLOWED = "not_followed"
    """It is not in the publication, or not under its name."""
    NOT_READABLE = "not_readable"
    """The role may not read it."""


class TableState(StrEnum):
    """How a captured table is followed."""

    FOLLOWING = "following"
    WAITING = "waiting"
    """Its records are kept until its rows can be read."""
    ASIDE = "aside"
    """Its changes are dropped. It has to be read again when the cause is gone."""
    READING = "reading"
    """Its changes flow, and it is being read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideState(Document):
    """A table that is not followed as the others are. There is no document of one that is. Written by capture alone.

    ``state``: never ``following``. ``detail``: the cause as a sentence. ``since_lsn``: the commit of its oldest change
    that is missing, or waits. ``since_ms``: since 1970. ``xid``: a transaction that has to be visible before its rows
    are read, 0 for none. ``from_lsn``: its changes from there on are in the log again, 0 while they are not.
    ``new_key``: an operator took its new key for good.
    """

    WHAT: ClassVar[str] = "aside"
    table: str
    epoch: int
    state: TableState
    cause: Cause
    detail: str
    since_lsn: int
    since_ms: int
    xid: int = 0
    from_lsn: int = 0
    new_key: bool = False

    def key(self) -> bytes:
        return aside_key(self.table)

    @property
    def due(self) -> bool:
        """Whether the log lacks changes of it, so that it has to be read again."""
        return self.state is not TableState.WAITING

    def read_again(self, state: ReadingState) -> bool:
        """Whether a reading of the whole table has brought what the log lacks: one that begins behind it."""
        if state.id != f"snapshot:{self.table}" or state.state != "done" or state.epoch != self.epoch:
            return False
        floor_lsn = int(state.floor[8:24] or "0", 16)
        return self.state is TableState.READING and floor_lsn >= self.from_lsn & ~COMMIT_ALIGNMENT

    def sentence(self) -> str:
        """The sentence that `cdc status` and the log show about it.

        >>> state = AsideState(table="public.t", epoch=1, state=TableState.ASIDE, cause=Cause.NOT_READABLE,
        ...     detail="the role may not read public.t", since_lsn=0, since_ms=0)
        >>> state.sentence()
        'public.t is set aside, and lacks changes until it is read again: the role may not read public.t'
        """
        match self.state:
            case TableState.WAITING:
                return f"{self.table} waits, and all others flow: {self.detail}"
            case TableState.READING:
                return f"{self.table} was set aside, and is being read again"
            case _:
                return f"{self.table} is set aside, and lacks changes until it is read again: {self.detail}"


class CannotFollow(ConfigError):
    """Tables whose changes cannot be carried, though all others' can. Stops capture where a table may not be set aside:
    one whose every version is wanted."""

    def __init__(
        self, message: str, *, hint: str = "", cause: Cause = Cause.CHANGED, tables: Iterable[TableName] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.cause = cause
        self.tables = tuple(tables)


def aside_key(table: str) -> bytes:
    """The key of a table's document in the state topic."""
    return dumped({"what": AsideState.WHAT, "table": table})


def left_out(documents: Mapping[bytes, bytes], epoch: int) -> dict[str, Position]:
    """Table -> the position up to which a start leaves its changes out, from the state topic's records.

    Changes that were dropped while a table was set aside come again where another table has kept progress back. Its
    rows have been read since, or are to be: an older change behind them would be what compaction keeps.
    """
    found: dict[str, Position] = {}
    for state in find_all(documents, ReadingState):
        if (state.id, state.state, state.epoch) == (f"snapshot:{state.table}", "done", epoch) and state.floor:
            found[state.table] = Position.parse(state.floor)
    for one in find_all(documents, AsideState):
        if one.epoch == epoch and one.state is TableState.READING:
            until = Position(epoch, (one.from_lsn - 1) & ~COMMIT_ALIGNMENT, CHUNK_SEQ)
            found[one.table] = max(until, found.get(one.table, until))
    return found


def asides_of(documents: Mapping[bytes, bytes]) -> dict[str, AsideState]:
    """Table -> its document, from the state topic's records, of those that are not followed as the others are."""
    rereads = {
        state.table: state for state in find_all(documents, ReadingState) if state.id == f"snapshot:{state.table}"
    }
    found = {one.table: one for one in find_all(documents, AsideState)}
    return {
        table: one for table, one in sorted(found.items()) if not (table in rereads and one.read_again(rereads[table]))
    }


def lacking(documents: Mapping[bytes, bytes]) -> dict[str, str]:
    """Tables of which the log lacks changes, each with the sentence about it, from the state topic's records."""
    return {table: one.sentence() for table, one in asides_of(documents).items() if one.due}
