"""The conditions of each step of a handover, its notes, and the keys that both writers would write. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cdc.process.errors import ActiveError, ConfigError, SlotError, TopicError
from cdc.record.ports import CompactedTopic, Topics
from cdc.record.progress import EpochsState
from cdc.record.schema import Column, Encoding, Identity, TableSchema
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.state import SlotState, SnapshotState, TopicsState


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


_SAME = """
bool int2 int4 int8 oid money
text varchar bpchar char citext enum uuid inet cidr macaddr macaddr8 ltree
int4range int8range numrange tsrange tstzrange daterange
json jsonb xml bytea bit varbit tsvector
"""
_SAME_BYTES = frozenset(_SAME.split())
"""Kinds whose keys both write as the same bytes."""
_BY_VALUE: Mapping[str, tuple[str, str]] = {
    "numeric": ("D4", "{0} in ('NaN', 'Infinity', '-Infinity')"),
    "date": ("D6", "not isfinite({0}) or {0} < '1583-10-15' or {0} > '9999-12-31'"),
    "timestamp": ("D6", "not isfinite({0}) or {0} < '1583-10-15' or {0} >= '10000-01-01'"),
    "timestamptz": ("D6", "not isfinite({0}) or {0} < '1583-10-15' or {0} >= '10000-01-01'"),
    "time": ("D19", "{0} = '24:00'"),
    "timetz": ("D19", "{0} = '24:00+00'"),
}
"""Kinds whose keys are the same bytes but for some values."""
_UNLIKE = "interval point circle line lseg box path polygon vector halfvec sparsevec other"
_OTHERWISE = {kind: "D2" for kind in _UNLIKE.split()} | {
    "name": "D5",
    "float4": "D21",
    "float8": "D21",
    "hstore": "D22",
}
"""Kinds whose keys the two write otherwise, each with the rule that says how. A kind without a rule counts as D2."""


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """A row for which ``condition`` holds (``{0}`` is the column) has another key in each writer's topic."""

    table: TableSchema
    column: str
    rule: str
    condition: str

    @property
    def sentence(self) -> str:
        """The sentence for the case that there is such a row."""
        where = f"{self.table.table}: the key {self.column}"
        return f"{where} holds a value that is written otherwise ({self.rule})"


def key_problems(schemas: Iterable[TableSchema], primary_keys: Mapping[str, Sequence[str]]) -> list[str]:
    """A sentence for each table whose keys the two would write otherwise, whichever its rows are.

    ``primary_keys``: table -> columns. The old key of a row would stay in the topic for ever, and a delete not
    reach it.
    """
    found = []
    for schema in schemas:
        primary = tuple(primary_keys.get(str(schema.table), ()))
        if schema.identity is Identity.INDEX and primary != tuple(c.name for c in schema.key):
            found.append(f"{schema.table}: its key is the identity index's here and the primary key's there (D9)")
            continue
        found += [
            f"{schema.table}: the key column {column.name} ({column.type}) is written otherwise ({rule})"
            for column in schema.key
            if (rule := _differs(column, schema.encoding)) is not None
        ]
    return found


def key_questions(schemas: Iterable[TableSchema]) -> list[KeyQuestion]:
    """The questions to ask of the rows: only the values that they hold now count, since later ones have one writer."""
    return [
        KeyQuestion(schema, column.name, *_BY_VALUE[column.kind])
        for schema in schemas
        for column in schema.key
        if not column.array and column.kind in _BY_VALUE
    ]


def _differs(column: Column, encoding: Encoding) -> str | None:
    if column.array:
        return "D7"
    if column.scale is not None and column.scale < 0:
        return "D8"
    if column.kind in _SAME_BYTES or column.kind in _BY_VALUE or (column.kind == "interval" and encoding == "readable"):
        return None
    return _OTHERWISE.get(column.kind, "D2")


_SHAPING = (
    "transforms",
    "predicates",
    "key.converter",
    "message.key.columns",
    "producer.override.partitioner",
    "topic.",
    "slot.name",
    "publication.name",
    "plugin.name",
    "field.name.adjustment.mode",
    "schema.name.adjustment.mode",
    "decimal.handling.mode",
    "time.precision.mode",
    "interval.handling.mode",
    "binary.handling.mode",
    "money.fraction.digits",
    "column.",
    "datatype.",
)
_ALLOWED = ("topic.creation.", "column.propagate.", "datatype.propagate.")


def shaping_options(options: Iterable[str]) -> list[str]:
    """Those of the user's connector options that change keys, topics, partitions or the slot.

    >>> shaping_options(["poll.interval.ms", "topic.creation.default.partitions", "transforms"])
    ['transforms']
    """
    return sorted(o for o in options if o.startswith(_SHAPING) and not o.startswith(_ALLOWED))


class LockedSession(NamedTuple):
    """A session of the source that holds the native writer's lock."""

    pid: int
    application: str


class HandoverDatabase(Protocol):
    """The Postgres server. SourceError when it does not answer."""

    def facts(self) -> tuple[ServerFacts, SlotFacts | None]:
        """The server, and the pipeline's slot. None where the server has none."""

    def writer(self) -> LockedSession | None:
        """The session that holds the native writer's lock, if one does."""

    def publish_everything(self) -> bool:
        """Let the publication send every kind of change, TRUNCATE too. False when it does already."""


class Keys(Protocol):
    """Questions to the source's tables about their keys."""

    def primary(self) -> Mapping[str, Sequence[str]]:
        """Table -> the columns of its primary key, empty without one."""

    def answer(self, questions: Sequence[KeyQuestion]) -> Sequence[KeyQuestion]:
        """Those of the questions that a row answers with yes."""


class ConnectorState(NamedTuple):
    """``differing``: options that run otherwise than the settings want. ``unread``: why rows may be missing that it was
    asked for, as a sentence. Empty where none are. ``shown_lsn``: every commit below it is in the topics. None before
    its snapshot is complete. ``messages``: the topic of logical messages, where there is one."""

    differing: Sequence[str]
    unread: str
    shown_lsn: int | None
    messages: str = ""


class DebeziumConnector(Protocol):
    """Debezium's connector. Every method may be repeated. ConnectError when Kafka Connect refuses or is silent."""

    def facts(self) -> ConnectorState:
        """How it runs. ConnectError when it, or a task of it, has failed or is not there."""

    def stop(self) -> bool:
        """End its tasks, and return when they have ended. False where there is no connector."""

    def withdraw(self) -> bool:
        """Remove it with its offsets. False where there is none."""

    def unread(self) -> str:
        """Why rows may be missing that it was asked for, also where it is stopped. Empty where none are."""

    def resume(self) -> None:
        """Start it. Returns when it runs."""


class NativeWriter(Protocol):
    """The native capture."""

    def prepare(self) -> None:
        """Check or make publication, topics and shapes, as ``cdc init`` does."""

    def shapes(self) -> Sequence[TableSchema]:
        """The newest shape of each table that the schema topic knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverPorts:
    """Everything that a handover uses. ``state``, ``progress``: the pipeline's topics of those names."""

    source: HandoverDatabase
    keys: Keys
    connector: DebeziumConnector
    native: NativeWriter
    topics: Topics
    state: CompactedTopic
    progress: CompactedTopic
