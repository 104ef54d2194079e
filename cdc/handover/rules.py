"""The conditions of each step of a handover, and the notes: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.epochs import EpochsState
from cdc.errors import ActiveError, ConfigError, SlotError, TopicError
from cdc.handover.ports import ConnectorState, LockedSession
from cdc.state import SlotState, SnapshotState, TopicsState


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverPlan:
    """The pipeline, as a handover needs it. ``shaping``: options of the user's that change what Debezium writes."""

    name: str
    slot: str
    publication: str
    connector: str
    shaping: Sequence[str] = ()


def require_complete(facts: ConnectorState) -> None:
    """ConfigError unless the connector runs as the settings want it and has no snapshot to finish."""
    if facts.differing:
        raise ConfigError(
            f"the running connector differs from the settings: {', '.join(facts.differing)}",
            hint="cdc connect deploy brings it to them; then hand over",
        )
    require_read(facts.unread)
    if facts.shown_lsn is None:
        raise ConfigError(
            "Debezium's snapshot is not complete, or it has not stored an offset yet",
            hint="cdc connect status shows its offsets; they are stored every offset.flush.interval.ms",
        )


def require_read(unread: str) -> None:
    """ConfigError while rows are still read or asked for: nobody would read the rest of them."""
    if unread:
        raise ConfigError(
            f"{unread}, and nobody would read the rest", hint="cdc connect status says when it is over; then hand over"
        )


def require_no_writer(session: LockedSession | None) -> None:
    """ActiveError while a native writer runs."""
    if session is not None:
        raise ActiveError(
            f"Postgres session {session.pid} ({session.application}) still writes",
            hint="stop cdc run (and cdc snapshot) first, and keep it stopped; then hand over",
        )


def require_unshaped(shaping: Sequence[str]) -> None:
    """ConfigError when options of the user's change keys, topics, partitions or the slot."""
    if shaping:
        raise ConfigError(
            f"[debezium.options] {', '.join(shaping)}: these change keys, topics or the slot",
            hint="both must write the same; take them out, cdc connect deploy, then hand over",
        )


def require_same_keys(problems: Sequence[str]) -> None:
    """ConfigError when the two would write other keys. ``problems``: a sentence for each."""
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ConfigError(
            f"the two would write other keys: {problems[0]}{more}",
            hint="rows of both would stay in the topic beside each other: leave the table out ([source] exclude), "
            "or begin a new pipeline with a snapshot of its own",
        )


def require_partitions(topics: TopicsState, counts: Mapping[str, int]) -> None:
    """TopicError when a table's topic has another number of partitions than it was made with."""
    for topic, count in counts.items():
        made = topics.topics[topic]["partitions"]
        if count != made:
            raise TopicError(
                f"{topic} has {count} partitions, and {made} when it was made",
                hint="Debezium writes to as many as there are, the native capture to as many as there were",
            )


def usable(slot: SlotFacts | None, name: str) -> SlotFacts:
    """The slot, if the native capture can read it, now or once its reader has gone. SlotError otherwise."""
    if slot is None or slot.confirmed_flush_lsn is None or slot.wal_status == "lost":
        raise SlotError(
            f"the slot {name} is not there, or was given up by the server",
            hint="see connectors/postgres/README.md, slot lost",
        )
    if slot.plugin != "pgoutput":
        raise SlotError(
            f"the slot {slot.slot} is made for {slot.plugin}, and pgoutput is wanted",
            hint="the native capture reads pgoutput alone: a new pipeline has a snapshot of its own",
        )
    return slot


def adopted(
    plan: HandoverPlan, documents: Mapping[bytes, bytes], server: ServerFacts, slot: SlotFacts
) -> tuple[SlotState, SnapshotState]:
    """Slot and snapshot as the native capture would have noted them, had it made them itself.

    Its first snapshot counts as complete: Debezium's is.
    """
    topics, former, snapshot = TopicsState.find(documents), SlotState.find(documents), SnapshotState.find(documents)
    assert topics is not None
    assert slot.confirmed_flush_lsn is not None
    start, epoch = slot.confirmed_flush_lsn, (EpochsState.find(documents) or EpochsState()).latest
    noted = SlotState(
        epoch=epoch,
        system_identifier=server.system_identifier,
        timeline=server.timeline,
        database=server.database,
        database_oid=server.database_oid,
        slot=slot.slot,
        publication=plan.publication,
        consistent_point=start if former is None else former.consistent_point,
    )
    if snapshot is None or snapshot.state != "complete" or snapshot.epoch != epoch:
        snapshot = SnapshotState(
            epoch=epoch,
            state="complete",
            consistent_point=noted.consistent_point,
            last_cut_lsn=start,
            tables=sorted(topics.tables),
        )
    return noted, snapshot
