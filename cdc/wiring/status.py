"""What ``cdc status`` reads, part by part; one that does not answer does not hide the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, NamedTuple, Self

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.dead import Parked
from cdc.errors import CdcError, TopicError
from cdc.following import captured_oids, not_followed
from cdc.found import Unknown, look
from cdc.progress import Mark, Watermark
from cdc.settings import Settings
from cdc.state import SlotState, SnapshotState, TopicsState
from cdc.status import SinkFacts, SourceFacts, StatusFacts, rereads_of
from cdc.topic import dead_topic
from cdc.wiring import open_source, open_state, require_broker
from cdc.wiring.stores import open_store

if TYPE_CHECKING:
    from connectors.postgres.session import Connection
    from sinks.port import OpenSink


class _Log(NamedTuple):
    """What Kafka says of a pipeline: the state topic, the progress records, parked keys by sink (None: not read)."""

    held: Mapping[bytes, bytes]
    marks: Sequence[Mark]
    parked: Mapping[str, int] | None


_NOTHING = _Log({}, (), None)


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
        """Everything as it is now; what a part did not answer is Unknown, and hides no other."""
        settings = self._settings
        log = look(self._read_log)
        known_log = _NOTHING if isinstance(log, Unknown) else log
        silent = log if isinstance(log, Unknown) else None
        asked = look(lambda: self._ask_source(known_log.held))
        source, left = (asked, {}) if isinstance(asked, Unknown) else asked
        with ThreadPoolExecutor(max(1, len(settings.sinks))) as pool:
            sinks = list(pool.map(lambda name: self._ask_store(name, known_log.parked), settings.sinks))
        return StatusFacts(
            name=settings.name,
            slot_name=settings.slot,
            now_ms=self._clock.now_ns() // 1_000_000,
            source=source,
            slot=silent or SlotState.find(known_log.held),
            snapshot=silent or SnapshotState.find(known_log.held),
            marks=known_log.marks,
            sinks=sinks,
            rereads=rereads_of(known_log.held),
            not_followed=left,
            log=silent,
        )

    def _read_log(self) -> _Log:
        """LogError or TopicError when Kafka does not answer or ``cdc init`` was not run."""
        from connectors.kafka.marks import read_marks

        require_broker(self._settings)
        held = open_state(self._settings).read()
        # Here already, so that a document that cannot be read is a fault of the log and hides no other part.
        SlotState.find(held), SnapshotState.find(held), rereads_of(held)
        return _Log(held, read_marks(self._settings.log, self._settings.name), self._parked())

    def _ask_source(self, held: Mapping[bytes, bytes]) -> tuple[SourceFacts, Mapping[str, str]]:
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
            return facts, self._not_followed(self._source, held)
        except CdcError:
            self._source = None
            raise

    def _not_followed(self, source: Connection, held: Mapping[bytes, bytes]) -> Mapping[str, str]:
        from connectors.postgres.facts import read_publication, read_relations
        from connectors.postgres.selection import takes

        settings, topics, oids = self._settings, TopicsState.find(held), captured_oids(held)
        if topics is None or SlotState.find(held) is None:
            return {}
        wanted = [t for t in topics.tables if takes(t, settings.source.tables, settings.source.exclude)]
        relations = read_relations(source, wanted, [oids[table] for table in wanted if table in oids])
        return not_followed(wanted, oids, relations, read_publication(source, settings.publication))

    def _ask_store(self, name: str, parked: Mapping[str, int] | None) -> SinkFacts:
        kind = self._settings.sinks[name].kind
        watermark = look(lambda: self._read_watermark(name))
        return SinkFacts(
            name=name, kind=kind, watermark=watermark, parked=parked.get(name, 0) if parked is not None else None
        )

    def _read_watermark(self, name: str) -> Watermark | None:
        from sinks.patience import looking

        with looking():
            if name not in self._stores or not self._stores[name].current():
                store = open_store(name, self._settings)
                self._open.callback(store.close)
                self._stores[name] = store
            return self._stores[name].watermarks.read()

    def _parked(self) -> Counter[str]:
        """Parked keys by sink."""
        from connectors.kafka.letters import DeadLetterTopic

        try:
            letters = list(DeadLetterTopic(self._settings.log, dead_topic(self._settings.name)).read())
        except TopicError:
            return Counter()
        return Counter({name: len(Parked(name, letters)) for name in self._settings.sinks})
