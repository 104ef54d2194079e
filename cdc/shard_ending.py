"""The end of what a shard of capture has on the server, when it gives tables up or ends: over a port.

Its state names a slot, and a server that is not always the one that is asked: the source was upgraded, or restored
elsewhere. Then a slot and a publication of the shard's names may be another pipeline's (H462). So each goes only where
nobody else can be meant.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from cdc.checks.facts import PublicationFacts, ServerFacts, SlotFacts
from cdc.checks.ownership import Owner, owner_of
from cdc.state import SlotIntent, SlotState


class ShardSource(Protocol):
    """The server that the settings name, without the shard's own settings. SourceError when it does not answer."""

    def server(self) -> ServerFacts:
        """The server and the database."""

    def slot(self, name: str) -> SlotFacts | None:
        """A slot of the server, of any database."""

    def publication(self, name: str) -> PublicationFacts | None:
        """A publication of the database."""

    def drop_slot(self, name: str) -> None:
        """ActiveError when something reads it."""

    def drop_publication(self, name: str) -> None:
        """ConfigError when it is not ours to drop."""

    def give_up(self, publication: str, tables: Collection[str]) -> None:
        """Take tables out, where it is there and has them. ConfigError when it is not ours to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedShard:
    """A shard by its notes. ``meant_slot``, ``meant_publication``: its names by the settings, before it has a slot.
    ``intent``: of a snapshot that was killed before it noted its slot."""

    meant_slot: str
    meant_publication: str
    slot: SlotState | None = None
    intent: SlotIntent | None = None

    @property
    def slot_name(self) -> str:
        """The name under which its slot would stand."""
        noted = self.slot or self.intent
        return noted.slot if noted is not None else self.meant_slot

    @property
    def publication_name(self) -> str:
        """The name under which its publication would stand."""
        return self.slot.publication if self.slot is not None else self.meant_publication


def leave_publication(source: ShardSource, shard: NotedShard, tables: Collection[str]) -> None:
    """Take tables out of the shard's publication. Nothing where a slot of its name is another's: so is that, then.

    One that the notes do not name on this server goes with the last of them. That it sends these, and these alone, is
    what says whose it is: once it is empty, nobody can tell it from another's (H500). ``cdc init`` makes it anew.
    """
    here = source.server()
    if _is_anothers(shard, source.slot(shard.slot_name), here):
        return
    published = source.publication(shard.publication_name)
    sent = {str(table) for table in published.tables} if published is not None else set()
    if sent and sent <= set(tables) and not _noted_on(here, shard):
        source.drop_publication(shard.publication_name)
        return
    source.give_up(shard.publication_name, tables)


def end_shard(source: ShardSource, shard: NotedShard) -> None:
    """Drop slot and publication of a shard that has given up all its tables, where they are there and its own.

    Its slot where the notes prove it. Its publication where they name this server. On another server, or before any is
    named, one that is still there is not known to be its own: see :func:`leave_publication`.
    """
    here, found = source.server(), source.slot(shard.slot_name)
    if _is_anothers(shard, found, here):
        return
    if found is not None:
        source.drop_slot(found.slot)
    if _noted_on(here, shard) and source.publication(shard.publication_name) is not None:
        source.drop_publication(shard.publication_name)


def _noted_on(here: ServerFacts, shard: NotedShard) -> bool:
    return shard.slot is not None and same_place(shard.slot, here)


def _is_anothers(shard: NotedShard, found: SlotFacts | None, here: ServerFacts) -> bool:
    """Whether a slot of the shard's name is there that it did not make."""
    if found is None:
        return False
    if shard.slot is not None:
        return owner_of(found, here, shard.slot) is not Owner.OURS
    return not left_by(shard.intent, found, here)


def same_place(made: SlotState | SlotIntent, here: ServerFacts) -> bool:
    """Whether a slot was noted on this server, in this database."""
    return (made.system_identifier, made.database) == (here.system_identifier, here.database)


def left_by(intent: SlotIntent | None, found: SlotFacts, here: ServerFacts) -> bool:
    """Whether a snapshot that was killed before it noted its slot left this one."""
    if intent is None or not same_place(intent, here) or found.database != here.database:
        return False
    return (intent.slot, intent.consistent_point) == (found.slot, found.confirmed_flush_lsn)
