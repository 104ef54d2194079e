"""The documents of several shards of capture, as those of one pipeline. Pure.

Each shard has a state topic of its own. A reader of the whole pipeline, as a store or ``cdc status``, gets what holds
for all of them: every table, the snapshot as far as the last shard is, the least epoch and the least LSN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import orjson

from cdc.epochs import EpochsState, KeyedAnewState
from cdc.errors import ConfigError
from cdc.json_bytes import dumped
from cdc.state import Document, SlotIntent, SlotState, SnapshotState, TopicsState, find_all, what_of
from cdc.wal_witness import WalWitness

Documents = Mapping[bytes, bytes]
"""The records of a state topic."""

_HEADS = (
    TopicsState.WHAT,
    SlotState.WHAT,
    SlotIntent.WHAT,
    SnapshotState.WHAT,
    EpochsState.WHAT,
    KeyedAnewState.WHAT,
    WalWitness.WHAT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState(Document):
    """A shard that a pipeline's capture was divided into, in the state topic of the pipeline itself.

    ``cdc init`` writes it before it makes anything of the shard. A record of its own: two that are made at once would
    put back a whole list of them that the other has added to (as H235).
    """

    WHAT: ClassVar[str] = "shard"
    shard: str

    def key(self) -> bytes:
        return dumped({"what": self.WHAT, "shard": self.shard})


def noted_shards(documents: Documents) -> list[str]:
    """The shards that the state topic of a pipeline names, in the order of their names."""
    return sorted(one.shard for one in find_all(documents, ShardState))


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


def missing_shards(by_shard: Mapping[str, Documents], named: Collection[str]) -> dict[str, list[str]]:
    """The noted shards that the settings do not name, each with the tables that it writes. ``by_shard``: with the
    documents of the pipeline itself under "". One of which nothing was made is none."""
    return {
        shard: sorted(tables_of(by_shard.get(shard, {})))
        for shard in noted_shards(by_shard.get("", {}))
        if shard not in named and _is_made(by_shard.get(shard, {}))
    }


def _is_made(documents: Documents) -> bool:
    return any(kind.find(documents) is not None for kind in (TopicsState, SlotState, SlotIntent))


def require_named(name: str, by_shard: Mapping[str, Documents], named: Collection[str]) -> None:
    """ConfigError where a shard was made and the settings do not name it, as one that was renamed: its capture may run,
    and the settings give its tables to nobody, or to another one as well (H405)."""
    for shard, tables in missing_shards(by_shard, named).items():
        what = f"it writes {', '.join(tables[:3])}" if tables else "its slot is there yet"
        raise ConfigError(
            f"the capture of {name} has a shard {shard}, which [capture.shards] does not name: {what}",
            hint="write it as it was; or cdc init --new-epoch --shard, of each shard that is to have its tables, takes "
            "them over and ends it",
        )


def documents_of(documents: Documents, tables: Collection[str]) -> list[bytes]:
    """The keys of what was noted of some tables, the heads left out."""
    return sorted(k for k, value in documents.items() if what_of(k) not in _HEADS and _table_of(k, value) in tables)


def require_undivided(documents: Documents, name: str) -> None:
    """ConfigError where the pipeline's capture was divided into shards, and the settings have none (H404)."""
    found = noted_shards(documents)
    if found:
        raise ConfigError(
            f"the capture of {name} is divided into the shards {', '.join(found)}, and the settings have none",
            hint="write [capture.shards] as it was. With that, cdc drop ends the pipeline",
        )


def tables_of(documents: Documents) -> dict[str, str]:
    """Table -> topic, of those that a shard writes."""
    topics = TopicsState.find(documents)
    return dict(topics.tables) if topics is not None else {}


def shards_of_tables(by_shard: Mapping[str, Documents]) -> dict[str, str]:
    """Table -> the shard that writes it.

    While a table changes its shard, both have it for a moment. It is then that of the newer epoch: the one that takes
    it has begun an epoch above all of the former one.
    """
    older_first = sorted(by_shard, key=lambda shard: (EpochsState.find(by_shard[shard]) or EpochsState()).latest)
    return {table: shard for shard in older_first for table in tables_of(by_shard[shard])}


def writers_of(by_shard: Mapping[str, Documents]) -> dict[str, str]:
    """Topic -> the shard that writes it. See :func:`shards_of_tables`."""
    return {tables_of(by_shard[shard])[table]: shard for table, shard in shards_of_tables(by_shard).items()}


def merged(by_shard: Mapping[str, Documents]) -> dict[bytes, bytes]:
    """The documents of all shards as those of one pipeline. The heads are there once each shard has its own.

    A document of a table is that of the shard which writes the table. No epoch has an identity here: each shard's
    number and order would make another one of it.
    """
    found: dict[bytes, bytes] = {}
    owners = shards_of_tables(by_shard)
    for owned in (False, True):
        for shard, documents in by_shard.items():
            found |= {
                key: value
                for key, value in documents.items()
                if what_of(key) not in _HEADS and (owners.get(_table_of(key, value)) == shard) is owned
            }
    each = list(by_shard.values())
    heads = (_topics(by_shard), _slot(each), _snapshot(each), _epochs(by_shard))
    return found | {head.key(): head.to_json() for head in heads if head is not None}


def _table_of(key: bytes, value: bytes) -> str:
    for text in (key, value):
        members = orjson.loads(text)
        if isinstance(members, dict) and isinstance(members.get("table"), str):
            return str(members["table"])
    return ""


def _topics(by_shard: Mapping[str, Documents]) -> TopicsState | None:
    known = [TopicsState.find(one) for one in by_shard.values()]
    there = [one for one in known if one is not None]
    if not there or len(there) < len(known):
        return None
    topics = {topic: facts for one in there for topic, facts in one.topics.items()}
    owners = shards_of_tables(by_shard)
    tables = {table: tables_of(by_shard[shard])[table] for table, shard in owners.items()}
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


def _epochs(by_shard: Mapping[str, Documents]) -> EpochsState | None:
    """The least epoch that all have reached. The starts of each topic are those of its shard, and so are the topics
    with rows under a former key: those of one shard's latest epoch are of the latest here."""
    known = {shard: EpochsState.find(one) or EpochsState() for shard, one in by_shard.items()}
    if all(one == EpochsState() for one in known.values()):
        return None
    latest = min(one.latest for one in known.values())
    owners = writers_of(by_shard)

    def own(shard: str, topic: str) -> bool:
        return owners.get(topic, shard) == shard

    return EpochsState(
        latest=latest,
        starts={t: parts for shard, one in known.items() for t, parts in one.starts.items() if own(shard, t)},
        topic_ids={
            t: identity for shard, one in known.items() for t, identity in one.topic_ids.items() if own(shard, t)
        },
        keys={topic: latest for shard, one in known.items() for topic in one.rekeyed() if own(shard, topic)},
    )
