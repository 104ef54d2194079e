"""A table's way from one shard of capture to another, over its ports. It may be killed at any step and run again.

A table changes its shard with a new epoch of the one that takes it: all that this one writes lies above what the
former one wrote, and its snapshot reads the table anew. The order of the steps: the locks of all shards that have a
part in it, the epoch, the table among those of the shard that takes it, and only then out of the former one. So a table
is in one shard at each moment, and in both for a while: then it is that of the newer epoch
(:func:`cdc.shard_documents.shards_of_tables`), and captures of both refuse to start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from cdc.crash import crash_point, declare
from cdc.epochs import EpochsState
from cdc.errors import ActiveError
from cdc.ports import CompactedTopic
from cdc.progress import Offsets
from cdc.shard_documents import Documents, MovedTable, ShardState, documents_of, missing_shards, tables_of
from cdc.state import SlotIntent, SlotState, TopicsState

declare("shard_epoch_noted", "table_taken", "publication_left", "table_given_up", "shard_ended")


class TakeoverPorts(Protocol):
    """Everything that a takeover uses. LogError and SourceError where a server does not answer."""

    def lock(self, shard: str) -> None:
        """Hold the lock of a shard's writer until the command ends. ActiveError while its capture or snapshot runs."""

    def states(self) -> Mapping[str, Documents]:
        """By shard that the settings or the notes know, its documents. Empty for one that has no topics yet."""

    def state(self, shard: str) -> CompactedTopic:
        """A shard's state topic, made where it is not there. "" is that of the pipeline."""

    def made(self, shard: str) -> TopicsState:
        """The own topics of a shard, made where they are not there, without a table."""

    def ends(self, partitions: Mapping[str, int]) -> Offsets:
        """Where topics end now."""

    def begin(self, above: EpochsState | None) -> int:
        """End the present epoch of the shard that takes tables, and note the next one. See
        :func:`connectors.epoch.begin_epoch`."""

    def leave(self, shard: str, documents: Documents, tables: Collection[str]) -> None:
        """Take tables out of the publication of a shard, of these documents. See
        :func:`cdc.shard_ending.leave_publication`."""

    def end(self, shard: str, documents: Documents) -> None:
        """Drop slot and publication of a shard that is no more, of these documents. See
        :func:`cdc.shard_ending.end_shard`."""


def take_over(
    ports: TakeoverPorts, shard: str, moved: Sequence[MovedTable], named: Collection[str], identity: str
) -> int:
    """Begin the next epoch of a shard, with the tables that the settings have given to it. Returns its number.

    ``moved``: those that others write so far, as the notes had them before the locks. ``named``: the shards of the
    settings: one that is not among them, and has no table left, ends. ``identity``: of an epoch that is noted here.
    Killed in between, it is run again. ActiveError while a capture of one of the shards runs, or where the notes have
    changed before the locks were held.
    """
    for one in sorted({shard, *(table.writer for table in moved)}):
        ports.lock(one)
    # Again, now that nobody else writes any of them.
    states = ports.states()
    if any(table.table not in tables_of(states.get(table.writer, {})) for table in moved):
        raise ActiveError("the tables of the shards have changed meanwhile", hint="run the command again")
    epoch = _begin(ports, shard, moved, states, identity)
    crash_point("shard_epoch_noted")
    if moved:
        _take(ports, shard, moved, states)
        crash_point("table_taken")
    for writer, tables in sorted(_by_writer(moved).items()):
        _give_up(ports, writer, tables, states[writer])
    _end_missing(ports, named)
    return epoch


def epochs_above(known: EpochsState | None, above: EpochsState | None, identity: str) -> EpochsState:
    """A shard's epochs, in that of ``above`` at least, and never below what is noted."""
    epochs = known or EpochsState()
    return epochs if above is None else joined(epochs, above, identity)


def joined(epochs: EpochsState, above: EpochsState, identity: str) -> EpochsState:
    """The same in the epoch of ``above`` at least, with where that begins in the topics that it names."""
    ends = {topic: {int(p): known[-1] for p, known in parts.items() if known} for topic, parts in epochs.starts.items()}
    reached = epochs.reaching(above.latest, ends, identity)
    others = {topic: {int(p): known[-1] for p, known in parts.items()} for topic, parts in above.starts.items()}
    taken = EpochsState().reaching(reached.latest, others)
    return replace(reached, starts={**reached.starts, **taken.starts})


def _begin(
    ports: TakeoverPorts, shard: str, moved: Sequence[MovedTable], states: Mapping[str, Documents], identity: str
) -> int:
    above = _above(ports, moved, states) if moved else None
    own = states.get(shard, {})
    if TopicsState.find(own) is not None:
        return ports.begin(above)
    # Its first epoch, of which nothing is to be given up.
    epochs = epochs_above(EpochsState.find(own), above, identity)
    ports.state(shard).write([(epochs.key(), epochs.to_json())])
    return epochs.latest


def _above(ports: TakeoverPorts, moved: Iterable[MovedTable], states: Mapping[str, Documents]) -> EpochsState:
    """The least epoch above all that the former shards have written, which begins where the tables' topics end."""
    partitions, latest = {}, 0
    for one in moved:
        documents = states[one.writer]
        slot, topics = SlotState.find(documents), TopicsState.find(documents)
        latest = max(latest, (EpochsState.find(documents) or EpochsState()).latest, slot.epoch if slot else 0)
        if topics is not None:
            topic = topics.tables[one.table]
            partitions[topic] = int(topics.topics[topic]["partitions"])
    return EpochsState().reaching(latest + 1, ports.ends(partitions))


def _take(ports: TakeoverPorts, shard: str, moved: Iterable[MovedTable], states: Mapping[str, Documents]) -> None:
    noted = TopicsState.find(states.get(shard, {})) or ports.made(shard)
    for one in moved:
        former = TopicsState.find(states[one.writer])
        if former is not None:
            topic = former.tables[one.table]
            topics = {**noted.topics, topic: former.topics[topic]}
            noted = replace(noted, tables={**noted.tables, one.table: topic}, topics=topics)
    ports.state(shard).write([(noted.key(), noted.to_json())])


def _give_up(ports: TakeoverPorts, writer: str, tables: Collection[str], documents: Documents) -> None:
    """Out of the publication first, then out of the topics, with all that was noted of the tables: a request of one
    would have its rows read by the former shard."""
    topics = TopicsState.find(documents)
    # Also without a slot: cdc init makes the publication, and the first snapshot the slot.
    ports.leave(writer, documents, tables)
    crash_point("publication_left")
    if topics is not None:
        gone = {topics.tables[table] for table in tables if table in topics.tables}
        kept = {table: topic for table, topic in topics.tables.items() if table not in tables}
        left = {topic: facts for topic, facts in topics.topics.items() if topic not in gone}
        noted = replace(topics, tables=kept, topics=left)
        # The topics last: as long as they have the table, a run that was killed is repeated.
        ports.state(writer).write([(key, None) for key in documents_of(documents, tables)])
        ports.state(writer).write([(noted.key(), noted.to_json())])
    crash_point("table_given_up")


def _end_missing(ports: TakeoverPorts, named: Collection[str]) -> None:
    """End each shard that the settings do not name any more, once others have all its tables."""
    states = ports.states()
    for shard, tables in missing_shards(states, named).items():
        if tables:
            continue
        ports.lock(shard)
        slot, intent = SlotState.find(states[shard]), SlotIntent.find(states[shard])
        ports.end(shard, states[shard])
        gone = [(one.key(), None) for one in (intent, slot) if one is not None]
        if gone:
            ports.state(shard).write(gone)
        ports.state("").write([(ShardState(shard=shard).key(), None)])
        states = ports.states()
        crash_point("shard_ended")


def _by_writer(moved: Iterable[MovedTable]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for one in moved:
        found[one.writer].append(one.table)
    return found
