"""Tables that are set aside: what the state topic says of a table that capture cannot follow for now. Pure.

A table whose changes cannot be carried waits alone. Its records are kept within a bound. Past it the table is set
aside, with an :class:`AsideState` that the brokers hold before any progress passes the oldest of these records. From
then on its changes are dropped. When the cause is gone the table is followed again and read again, with a sweep. So its
final state is kept, and the versions in between are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

from cdc.process.errors import ConfigError
from cdc.record.documents import dumped
from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.server_facts import PublicationFacts
from cdc.record.state import Document, FormState, ReadingState, SlotState, SnapshotTableState, TopicsState, find_all
from cdc.record.topic_names import TableName

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


# The captured tables that are not followed any more: pure.
#
# A table that is out of the publication, was renamed, made anew under its name, or dropped: the stream says nothing of
# it, and its topic looks as if nothing happened to it. The same is true of rows in a table that came to inherit from
# it.

OPERATIONS = frozenset(("insert", "update", "delete", "truncate"))
FOLLOW_AGAIN = "rename it back, or publish it again: cdc init"


class Unfollowed(NamedTuple):
    """``why``: a sentence. ``fix``: what ends it. ``lacking``: the table is there, and its changes are being lost."""

    why: str
    fix: str = FOLLOW_AGAIN
    lacking: bool = True


def not_followed(
    tables: Iterable[str],
    oids: Mapping[str, int],
    relations: Mapping[int, TableName],
    publication: PublicationFacts | None,
    children: Mapping[int, Sequence[TableName]],
) -> dict[str, Unfollowed]:
    """Captured table -> why it is not followed.

    ``oids``: the relation that was captured under each name, as far as known. ``relations``: those of the catalog that
    have one of these names or oids. ``children``: of them, tables that inherit from each and are not captured.
    """
    if publication is None:
        return {}
    sent = {str(table) for table in publication.tables}
    here = {str(table): oid for oid, table in relations.items()}
    found = {}
    for table in tables:
        known = oids.get(table)
        if table not in here and known is not None:
            found[table] = _gone(table, relations.get(known))
        elif table in here and table not in sent:
            anew = known is not None and known != here[table]
            was = "was made anew, and " if anew else ""
            why = f"{table} {was}is not in the publication {publication.publication}: it is not followed"
            found[table] = Unfollowed(why)
        elif table in here and publication.operations < OPERATIONS:
            missing = ", ".join(sorted(OPERATIONS - publication.operations))
            why = f"{table} is not followed: the publication {publication.publication} leaves out {missing}"
            found[table] = Unfollowed(why)
        elif table in here and children.get(here[table]):
            found[table] = Unfollowed(children_sentence(table, children[here[table]]), NAME_CHILDREN, lacking=False)
    return found


def _gone(table: str, now: TableName | None) -> Unfollowed:
    if now is not None:
        return Unfollowed(f"{table} was renamed to {now}, and is not followed under that name")
    return Unfollowed(
        f"{table} is gone from the source: its topic and its rows in the stores stay",
        f'take it out of [source] tables, or add it to exclude: "{table}"; then start cdc run again',
        lacking=False,
    )


NAME_CHILDREN = "name them in [source] tables, as tables of their own, or in [source] exclude; then cdc init"


def children_sentence(table: TableName | str, children: Iterable[TableName]) -> str:
    """That rows of a table are in others that inherit from it and that the settings do not mention."""
    return f"{table} has rows in tables that inherit from it and are not captured: {', '.join(map(str, children))}"


def captured_oids(documents: Mapping[bytes, bytes]) -> dict[str, int]:
    """Table -> the relation that it was when the watch last saw it, else when the first snapshot read it.
    ``documents``: the state topic's records."""
    plans = {plan.table: plan.oid for plan in find_all(documents, SnapshotTableState)}
    return plans | {form.table: form.oid for form in find_all(documents, FormState)}


def stopped_following(
    documents: Mapping[bytes, bytes],
    takes: Callable[[str], bool],
    relations: Callable[[Sequence[str], Sequence[int]], Mapping[int, TableName]],
    publication: Callable[[], PublicationFacts | None],
    children: Callable[[Sequence[int]], Mapping[int, Sequence[TableName]]] = lambda oids: {},
) -> dict[str, Unfollowed]:
    """:func:`not_followed` of what the state topic says. Empty before the first snapshot: then nothing is followed yet.

    ``takes``: whether the settings name a table. ``relations``: those that have one of these names or oids.
    ``children``: tables that inherit from one of these relations and that the settings do not mention.
    """
    topics, oids = TopicsState.find(documents), captured_oids(documents)
    if topics is None or SlotState.find(documents) is None:
        return {}
    wanted = [table for table in topics.tables if takes(table)]
    found = relations(wanted, [oids[table] for table in wanted if table in oids])
    return not_followed(wanted, oids, found, publication(), children(list(found)))
