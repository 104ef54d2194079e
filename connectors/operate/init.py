"""A pipeline's beginning and end on Postgres and Kafka: all that is made before the first row flows, the publication,
the topics, the first shapes, and the ports of ``cdc drop``, which takes it away.

``cdc init`` may be run again, and then checks what is there and makes what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from cdc.capture.table_masks import MaskNotes, masks_of
from cdc.capture.topic_specs import (
    TopicSpec,
    kept_topic_spec,
    pipeline_topic_specs,
    require_kept_topics,
    table_topic_spec,
    without_topics,
)
from cdc.checks.findings import Level
from cdc.checks.postgres import check_source
from cdc.operate.drop import Drop, DropPlan, DropPorts, DropSource
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, ConfigError, LogError
from cdc.record.ports import CompactedTopic
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.state import RequestState, SlotState, SnapshotState, TopicsState
from cdc.record.topic_names import TableName, history_topic, progress_topic, schema_topic, state_topic
from cdc.settings.model import Settings, require_postgres
from connectors.kafka.admin import TopicAdmin, topics_state
from connectors.kafka.broker_answers import DescribesTopics, facts_of_made, make_known, require_broker, stays_gone
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.kafka.topic_problems import TopicFacts, gone_by_themselves, raise_first, spec_problems, state_problems
from connectors.operate.new_epoch import begin_epoch
from connectors.postgres.server.catalog_facts import read_server, read_slot, read_source
from connectors.postgres.server.catalog_shapes import CapturedTable, captured_schema, resolve_tables
from connectors.postgres.server.connections import Connection, connect
from connectors.postgres.server.outbox_table import outbox_table
from connectors.postgres.server.publication import drop_publication, ensure_publication
from connectors.postgres.server.slot import drop_slot
from connectors.postgres.server.table_selection import note_parts, takes
from connectors.views.view_topics import topics_of_views


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The parts that were just made, and those that were there. ``tables``: table -> topic. ``late``: those whose first
    rows the running capture brings. ``begun``: the first snapshot is complete."""

    publication_made: bool
    topics_made: tuple[str, ...]
    tables: dict[TableName, str]
    late: tuple[TableName, ...] = ()
    begun: bool = False


def check_ready(
    conn: Connection, settings: Settings, slot: SlotState | None, *, besides: Collection[str] = ("publication",)
) -> None:
    """Return where nothing would stop capture.

    ``besides``: checks left out, because what they check is about to be made, repaired or handed over. Raises CdcError
    with the first failure's words and exit code, as ``cdc check`` words it.
    """
    for finding in check_source(read_source(conn, settings), settings, slot):
        if finding.level is Level.FAIL and finding.check not in besides:
            raise CdcError(finding.message, hint=finding.fix, exit=finding.exit)


def prepare(
    conn: Connection, settings: Settings, admin: TopicAdmin, state: KafkaCompactedTopic, *, handing_over: bool = False
) -> Prepared:
    """Make or check publication, topics and shapes, then note the topics in ``<name>.state``.

    ``handing_over``: another reader has the slot and passes it on. The publication then has to be complete.

    Nothing is made while a check of the source fails: one table without a key in a publication makes its
    updates fail in the application. Raises ConfigError, SlotError or TopicError with what to do.
    """
    own = pipeline_topic_specs(settings.log, settings.name)
    begun = BegunPipeline(state_topic(settings.name), progress_topic(settings.name), partial(_has_slot, conn, settings))
    documents = noted_documents(admin, state, begun)
    stored, slot, head = TopicsState.find(documents), SlotState.find(documents), SnapshotState.find(documents)
    known = stored
    if stored is not None and stored.never_compacted:
        # Nothing is built from what these held. Capture makes new ones, a history with a gap.
        known = without_topics(stored, gone_by_themselves(stored, facts_of_made(admin, stored.never_compacted)))
    check_ready(conn, settings, slot, besides=("publication", "slot") if handing_over else ("publication",))
    tables = resolve_tables(conn, settings)
    require_kept_topics(known, {str(table.table): table.topic for table in tables})
    if known is not None and known.encoding != settings.log.encoding:
        raise ConfigError(
            f"[log] encoding is {settings.log.encoding}, the pipeline was made with {known.encoding}",
            hint=f'set encoding = "{known.encoding}" again; a topic never changes its encoding',
        )
    taken = known.tables if known is not None else {}
    late = [table for table in tables if str(table.table) not in taken] if slot is not None else []
    outbox = outbox_table(conn, settings)
    published = [*tables, outbox] if outbox is not None else tables
    if not late:
        publication_made = ensure_publication(conn, settings.publication, published, may_add=not handing_over)
    # A history that begins later than its table begins with a gap, which the running capture writes.
    histories = histories_of(settings, tables if slot is None else late)
    kept = [kept_topic_spec(settings.log, topic, settings.history.keep_ms) for topic in histories.values()]
    specs = _specs(settings, [*own, *kept], tables, known)
    made, facts = _topics(admin, specs, known)
    if known is None and begun.state not in made and TopicsState.find(state.read()) is not None:
        # Its notes would be written over by those of a first run.
        raise LogError(
            f"a broker did not know the topic {begun.state} for a moment, which notes what was made before",
            hint="run cdc init again: a broker that lags behind comes to know its topics by itself",
        )
    notes = MaskNotes(masks_of(settings), state, documents)
    note_parts(conn, notes)
    registry = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name)), notes=notes)
    shapes = [captured_schema(conn, settings, table.oid, topic=table.topic) for table in tables]
    registry.register_all(shapes, new_key=slot is None)
    topics = {str(table.table): table.topic for table in tables}
    noted = topics_state(facts, topics, admin.cluster_id(), settings.log.encoding)
    if known is not None:
        noted = replace(known, topics={**noted.topics, **known.topics}, tables={**known.tables, **noted.tables})
    noted = replace(noted, histories={**noted.histories, **histories})
    # Of a table that comes after the slot first the request: the running capture reads its rows, and waits with it
    # until the publication sends the table.
    records = [(one.key(), one.to_json()) for one in map(_first_rows, late)]
    if noted != stored:
        records.append((noted.key(), noted.to_json()))
    if records:
        state.write(records)
    if late:
        publication_made = ensure_publication(conn, settings.publication, published)
    return Prepared(
        publication_made=publication_made,
        topics_made=tuple(made),
        tables={table.table: table.topic for table in tables},
        late=tuple(table.table for table in late),
        begun=head is not None and head.state == "complete",
    )


@dataclass(frozen=True, slots=True)
class BegunPipeline:
    """The signs that a pipeline is there: the names of two of its topics, and whether its slot exists."""

    state: str
    progress: str
    slot: Callable[[], bool]


def noted_documents(
    admin: DescribesTopics, state: CompactedTopic, begun: BegunPipeline, clock: Clock = SYSTEM_CLOCK
) -> Mapping[bytes, bytes]:
    """The state of a pipeline. Nothing before its first init.

    Where there is a slot or a progress topic, a state topic is not there that is gone for five seconds on end: on the
    word of a broker that lags behind, a pipeline that runs was advised to drop its own slot.
    """
    present: Collection[str] = admin.describe([begun.state, begun.progress])
    if begun.state not in present and (begun.progress in present or begun.slot()):
        present = facts_of_made(admin, [begun.state], clock)
    return state.read() if begun.state in present else {}


def histories_of(settings: Settings, tables: Collection[CapturedTable]) -> dict[str, str]:
    """Topic -> its history, of those of these tables that have one by the settings."""
    taken = (table for table in tables if takes(str(table.table), settings.history.tables, ()))
    return {table.topic: history_topic(table.topic) for table in taken}


def _has_slot(conn: Connection, settings: Settings) -> bool:
    return read_slot(conn, settings.slot) is not None


def _first_rows(table: CapturedTable) -> RequestState:
    return RequestState(
        id=f"snapshot:{table.table}",
        table=str(table.table),
        after_lsn=0,
        reason=f"{table.table} came after the slot",
        serial=SYSTEM_CLOCK.now_ns(),
        first=True,
    )


def _specs(
    settings: Settings, own: Sequence[TopicSpec], tables: Sequence[CapturedTable], known: TopicsState | None
) -> list[TopicSpec]:
    """The topics as they are to be. One that was made keeps its partition count under later settings."""
    specs = [*own, *(table_topic_spec(settings.log, table.topic) for table in tables)]
    if known is None:
        return specs
    return [replace(s, partitions=known.topics[s.topic]["partitions"]) if s.topic in known.topics else s for s in specs]


def _topics(
    admin: TopicAdmin, specs: Sequence[TopicSpec], known: TopicsState | None
) -> tuple[list[str], Mapping[str, TopicFacts]]:
    """The topics that were made, and the facts of all."""
    if known is not None:
        # Before anything is made: a topic that was deleted must not come back empty in silence.
        raise_first(state_problems(known, facts_of_made(admin, known.topics), admin.cluster_id()))
    made, facts = make_known(admin, specs)
    for spec in specs:
        found = facts[spec.topic]
        if known is not None and spec.topic in known.topics:
            # Its count was judged against the state, above. One that was raised later does no harm.
            found = replace(found, partitions=spec.partitions)
        raise_first(spec_problems(spec, found))
    return made, facts


def prepare_pipeline(settings: Settings) -> Prepared:
    """Make or check publication, topics and shapes, on a session of its own. See :func:`prepare`."""
    with closing(connect(settings.source, application_name="cdc init", autocommit=True)) as session:
        require_broker(settings.log)
        return prepare(session, settings, TopicAdmin(settings.log), _state(settings))


def begin_pipeline_again(settings: Settings, clock: Clock) -> tuple[int, Prepared]:
    """End the present epoch and prepare the next one. See :mod:`connectors.operate.new_epoch`. Its number, and what
    was made."""
    with closing(connect(settings.source, application_name="cdc init", autocommit=True)) as session:
        require_broker(settings.log)
        # First, because nothing may be given up that cannot be begun again.
        check_ready(session, settings, None, besides=("publication", "slot", "free_slots"))
        state, admin = _state(settings), TopicAdmin(settings.log)
        epoch = begin_epoch(session, settings, admin, state, clock)
        return epoch, prepare(session, settings, admin, state)


def _state(settings: Settings) -> KafkaCompactedTopic:
    return KafkaCompactedTopic(settings.log, state_topic(settings.name))


class DroppedSource:
    """Slot and publication of one pipeline, in an open session. Implements :class:`cdc.operate.drop.DropSource`."""

    def __init__(self, session: Connection, *, slot: str, publication: str) -> None:
        self._session = session
        self._slot = slot
        self._publication = publication

    def server(self) -> ServerFacts:
        return read_server(self._session)

    def slot(self) -> SlotFacts | None:
        return read_slot(self._session, self._slot)

    def transaction(self) -> AbstractContextManager[object]:
        return self._session.transaction()

    def drop_publication(self) -> bool:
        return drop_publication(self._session, self._publication)

    def drop_slot(self) -> bool:
        return drop_slot(self._session, self._slot)


def drop_of(settings: Settings) -> Drop:
    """The drop of the pipeline that the settings describe. Nothing is opened before it is run."""

    @contextmanager
    def source() -> Iterator[DropSource]:
        require_postgres(settings, "cdc drop")
        with closing(connect(settings.source, application_name="cdc drop", autocommit=True)) as session:
            yield DroppedSource(session, slot=settings.slot, publication=settings.publication)

    plan = DropPlan(
        name=settings.name,
        slot=settings.slot,
        publication=settings.publication,
        by_debezium=settings.source.kind == "debezium",
    )
    ports = DropPorts(
        reach=partial(require_broker, settings.log),
        source=source,
        state=KafkaCompactedTopic(settings.log, state_topic(settings.name)),
        topics=partial(TopicAdmin, settings.log),
        gone=lambda topic: stays_gone([topic], TopicAdmin(settings.log).names),
        views=partial(topics_of_views, settings),
    )
    return Drop(plan, ports)
