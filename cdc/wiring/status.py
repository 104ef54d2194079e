"""What ``cdc status`` reads, part by part; one that does not answer does not hide the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Self

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.dead import Parked
from cdc.errors import CdcError, TopicError
from cdc.following import captured_oids, not_followed
from cdc.settings import Settings
from cdc.state import SlotState, SnapshotState, TopicsState
from cdc.status import SinkFacts, SourceFacts, StatusFacts, rereads_of
from cdc.topic import dead_topic
from cdc.wiring import open_source, open_state, require_broker
from cdc.wiring.stores import open_store

if TYPE_CHECKING:
    from connectors.postgres.session import Connection
    from sinks.port import OpenSink


class StatusReader:
    """Reads everything, again and again; connections that work are kept."""

    def __init__(self, settings: Settings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._open = ExitStack()
        self._source: Connection | None = None
        self._stores: dict[str, OpenSink] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self) -> StatusFacts:
        """Everything as it is now. LogError or TopicError when Kafka does not answer or ``cdc init`` was not run."""
        from connectors.kafka.marks import read_marks

        settings = self._settings
        require_broker(settings)
        held = open_state(settings).read()
        marks = read_marks(settings.log, settings.name)
        parked = self._parked()
        source, problem, left = self._ask_source(held)
        with ThreadPoolExecutor(max(1, len(settings.sinks))) as pool:
            sinks = list(pool.map(lambda name: self._ask_store(name, parked.get(name, 0)), settings.sinks))
        return StatusFacts(
            name=settings.name,
            slot_name=settings.slot,
            now_ms=self._clock.now_ns() // 1_000_000,
            source=source,
            source_error=problem,
            slot=SlotState.find(held),
            snapshot=SnapshotState.find(held),
            marks=marks,
            sinks=sinks,
            rereads=rereads_of(held),
            not_followed=left,
        )

    def _ask_source(self, held: Mapping[bytes, bytes]) -> tuple[SourceFacts | None, str | None, Mapping[str, str]]:
        from connectors.postgres.facts import read_server, read_slot
        from connectors.postgres.session import describe

        try:
            if self._source is None or self._source.closed:
                self._source = self._open.enter_context(
                    closing(open_source(self._settings, application_name="cdc status"))
                )
            facts = SourceFacts(
                address=describe(self._settings.source),
                server=read_server(self._source),
                slot=read_slot(self._source, self._settings.slot),
            )
            left = self._not_followed(self._source, held)
        except CdcError as error:
            self._source = None
            return None, error.message, {}
        return facts, None, left

    def _not_followed(self, source: Connection, held: Mapping[bytes, bytes]) -> Mapping[str, str]:
        from connectors.postgres.facts import read_publication, read_relations
        from connectors.postgres.selection import takes

        settings, topics, oids = self._settings, TopicsState.find(held), captured_oids(held)
        if topics is None or SlotState.find(held) is None:
            return {}
        wanted = [t for t in topics.tables if takes(t, settings.source.tables, settings.source.exclude)]
        relations = read_relations(source, wanted, [oids[table] for table in wanted if table in oids])
        return not_followed(wanted, oids, relations, read_publication(source, settings.publication))

    def _ask_store(self, name: str, parked: int) -> SinkFacts:
        kind = self._settings.sinks[name].kind
        try:
            if name not in self._stores or not self._stores[name].current():
                store = open_store(name, self._settings)
                self._open.callback(store.close)
                self._stores[name] = store
            watermark = self._stores[name].watermarks.read()
        except CdcError as error:
            return SinkFacts(name=name, kind=kind, parked=parked, error=error.message)
        return SinkFacts(name=name, kind=kind, watermark=watermark, parked=parked)

    def _parked(self) -> Counter[str]:
        """Parked keys by sink."""
        from connectors.kafka.letters import DeadLetterTopic

        try:
            letters = list(DeadLetterTopic(self._settings.log, dead_topic(self._settings.name)).read())
        except TopicError:
            return Counter()
        return Counter({name: len(Parked(name, letters)) for name in self._settings.sinks})
