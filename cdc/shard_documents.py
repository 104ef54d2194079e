"""The documents of several shards of capture, as those of one pipeline. Pure.

Each shard has a state topic of its own. A reader of the whole pipeline, as a store or ``cdc status``, gets what holds
for all of them: every table, the snapshot as far as the last shard is, the least epoch and the least LSN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import orjson

from cdc.epochs import EpochsState
from cdc.errors import ConfigError
from cdc.state import Document, SlotIntent, SlotState, SnapshotState, TopicsState, what_of
from cdc.wal_witness import WalWitness

Documents = Mapping[bytes, bytes]
"""The records of a state topic."""

_HEADS = (TopicsState.WHAT, SlotState.WHAT, SlotIntent.WHAT, SnapshotState.WHAT, EpochsState.WHAT, WalWitness.WHAT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsState(Document):
    """The shards that a pipeline's capture was divided into, in the state topic of the pipeline itself. Without shards
    there is none. ``cdc init`` writes it before it makes anything of a shard."""

    WHAT: ClassVar[str] = "shards"
    shards: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MovedTable:
    """A table that one shard writes and that the settings give to another. "" is the capture without shards."""

    table: str
    writer: str
    wanted: str

    def sentence(self) -> str:
        """Where it is, and where it should be.

        >>> MovedTable("public.t", "", "sales").sentence()
        'public.t is written by the capture without shards, and the settings give it to the shard sales'
        """
        writer = f"the shard {self.writer}" if self.writer else "the capture without shards"
        return f"{self.table} is written by {writer}, and the settings give it to the shard {self.wanted}"


def moved_tables(by_shard: Mapping[str, Documents], meant: Mapping[str, str]) -> list[MovedTable]:
    """The tables that are to change their shard. ``by_shard``: the documents of each. ``meant``: table -> its shard by
    the settings, where they give it one."""
    return [
        MovedTable(table, shard, meant[table])
        for shard, documents in by_shard.items()
        for table in tables_of(documents)
        if table in meant and meant[table] != shard
    ]


def require_unmoved(moved: Iterable[MovedTable], shard: str) -> None:
    """ConfigError where a shard has a part in a table that changes its shard (H402): two streams count the changes of a
    transaction differently, and are never at one place."""
    for one in moved:
        if shard in (one.writer, one.wanted):
            taker = f"cdc init --new-epoch --shard {one.wanted}"
            raise ConfigError(
                one.sentence(),
                hint=f"{taker} takes it over and has it read again; or write [capture.shards] as it was",
            )


def require_undivided(documents: Documents, name: str) -> None:
    """ConfigError where the pipeline's capture was divided into shards, and the settings have none (H404)."""
    found = ShardsState.find(documents)
    if found is not None and found.shards:
        raise ConfigError(
            f"the capture of {name} is divided into the shards {', '.join(found.shards)}, and the settings have none",
            hint="write [capture.shards] as it was; or cdc drop --topics ends the pipeline as it was",
        )


def tables_of(documents: Documents) -> dict[str, str]:
    """Table -> topic, of those that a shard writes."""
    topics = TopicsState.find(documents)
    return dict(topics.tables) if topics is not None else {}


def merged(by_shard: Mapping[str, Documents]) -> dict[bytes, bytes]:
    """The documents of all shards as those of one pipeline. The heads are there once each shard has its own.

    A document of a table is that of the shard which writes the table.
    """
    found: dict[bytes, bytes] = {}
    for owned in (False, True):
        for documents in by_shard.values():
            tables = tables_of(documents)
            found |= {
                key: value
                for key, value in documents.items()
                if what_of(key) not in _HEADS and (_table_of(key, value) in tables) is owned
            }
    each = list(by_shard.values())
    heads = (_topics(each), _slot(each), _snapshot(each), _epochs(each))
    return found | {head.key(): head.to_json() for head in heads if head is not None}


def _table_of(key: bytes, value: bytes) -> str:
    for text in (key, value):
        members = orjson.loads(text)
        if isinstance(members, dict) and isinstance(members.get("table"), str):
            return str(members["table"])
    return ""


def _topics(each: list[Documents]) -> TopicsState | None:
    known = [TopicsState.find(one) for one in each]
    there = [one for one in known if one is not None]
    if not there or len(there) < len(known):
        return None
    topics = {topic: facts for one in there for topic, facts in one.topics.items()}
    tables = {table: topic for one in there for table, topic in one.tables.items()}
    return replace(there[0], topics=topics, tables=tables)


def _slot(each: list[Documents]) -> SlotState | None:
    known = [SlotState.find(one) for one in each]
    there = [one for one in known if one is not None]
    if not there or len(there) < len(known):
        return None
    least = min(there, key=lambda one: one.epoch)
    return replace(least, consistent_point=min(one.consistent_point for one in there))


def _snapshot(each: list[Documents]) -> SnapshotState | None:
    """Complete once each is."""
    known = [SnapshotState.find(one) for one in each]
    there = [one for one in known if one is not None]
    if not there:
        return None
    whole = len(there) == len(known) and all(one.state == "complete" for one in there)
    return SnapshotState(
        epoch=min(one.epoch for one in there),
        state="complete" if whole else "running",
        consistent_point=min(one.consistent_point for one in there),
        last_cut_lsn=max(one.last_cut_lsn for one in there),
        tables=[table for one in there for table in one.tables],
        rows=sum(one.rows for one in there),
        size_bytes=sum(one.size_bytes for one in there),
    )


def _epochs(each: list[Documents]) -> EpochsState | None:
    """The least epoch that all have reached. The starts of each topic are those of its shard."""
    known = [EpochsState.find(one) or EpochsState() for one in each]
    if all(one == EpochsState() for one in known):
        return None
    latest = min(one.latest for one in known)
    ids = {
        str(epoch): "+".join(identity for one in known if (identity := one.identity(epoch)))
        for epoch in range(2, latest + 1)
    }
    return EpochsState(
        latest=latest,
        starts={topic: parts for one in known for topic, parts in one.starts.items()},
        topic_ids={topic: identity for one in known for topic, identity in one.topic_ids.items()},
        ids={epoch: identity for epoch, identity in ids.items() if identity},
    )
