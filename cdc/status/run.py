"""Reads what ``cdc status`` shows, part by part. One that does not answer does not hide the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from cdc.aside import asides_of
from cdc.clock import Clock
from cdc.dead import Parked
from cdc.epochs import EpochsState
from cdc.errors import TopicError
from cdc.following import stopped_following
from cdc.found import Unknown, look
from cdc.freshness.opened_stores import KeptStores
from cdc.progress import Mark, Offsets, Watermark
from cdc.state import SlotState, SnapshotState, TopicsState
from cdc.status.facts import SinkFacts, SourceState, StatusFacts, rereads_of
from cdc.status.ports import DatabaseStatus, StatusPorts
from cdc.status.view_lines import ViewFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPlan:
    """The pipeline as its settings have it. ``sinks``: name -> kind. ``takes``: whether a table is captured by them.
    ``views``: their names."""

    name: str
    slot: str
    sinks: Mapping[str, str]
    takes: Callable[[str], bool]
    views: Sequence[str] = ()


class _Log(NamedTuple):
    """Kafka's answers about a pipeline: the state topic, the progress records, parked keys by sink (None: not read)."""

    documents: Mapping[bytes, bytes]
    marks: Sequence[Mark]
    parked: Mapping[str, int] | None
    views: Sequence[ViewFacts] = ()


_NOTHING = _Log({}, (), None)


class StatusReader:
    """Looks at everything, again and again. Connections are kept open. A context."""

    def __init__(self, plan: StatusPlan, ports: StatusPorts, clock: Clock) -> None:
        self._plan = plan
        self._ports = ports
        self._clock = clock
        self._stores = KeptStores(ports.open_store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stores.close()
        if self._ports.source is not None:
            self._ports.source.close()

    def read(self) -> StatusFacts:
        """Everything as it is now. The answer of a silent part is Unknown, and hides no other."""
        plan, ports = self._plan, self._ports
        log = look(self._read_log)
        known_log = _NOTHING if isinstance(log, Unknown) else log
        silent = log if isinstance(log, Unknown) else None
        asked = look(lambda: self._ask_source(known_log.documents))
        source, left = (asked, {}) if isinstance(asked, Unknown) else asked
        connector = look(ports.connector) if ports.connector is not None else None
        if connector is not None and not isinstance(connector, Unknown):
            epochs = EpochsState.find(known_log.documents) or EpochsState()
            connector = replace(connector, fell=epochs.fell, moved=epochs.moved)
        ends = {} if ports.source is not None or silent is not None else look(lambda: self._ends(known_log.documents))
        topics = TopicsState.find(known_log.documents)
        return StatusFacts(
            name=plan.name,
            slot_name=plan.slot,
            now_ms=self._clock.now_ns() // 1_000_000,
            source=source,
            slot=silent or SlotState.find(known_log.documents),
            snapshot=silent or SnapshotState.find(known_log.documents),
            marks=known_log.marks,
            sinks=self._ask_stores(known_log.parked),
            rereads=rereads_of(known_log.documents),
            not_followed=left,
            asides=asides_of(known_log.documents),
            tables=len(topics.tables) if topics is not None else 0,
            log=silent or (ends if isinstance(ends, Unknown) else None),
            connector=connector,
            ends={} if isinstance(ends, Unknown) else ends,
            fresh=ports.fresh(),
            views=known_log.views if silent is None else [ViewFacts(name=name, known=False) for name in plan.views],
        )

    def _read_log(self) -> _Log:
        found = self._ports.log.state()
        # Here already, so that a document that cannot be read is a fault of the log and hides no other part.
        SlotState.find(found), SnapshotState.find(found), rereads_of(found), asides_of(found), TopicsState.find(found)
        EpochsState.find(found)
        return _Log(found, self._ports.log.marks(), self._parked(), self._ports.views())

    def _parked(self) -> Mapping[str, int]:
        """Parked keys by sink."""
        try:
            letters = list(self._ports.log.letters())
        except TopicError:
            return {}
        return {name: len(Parked(name, letters)) for name in self._plan.sinks}

    def _ask_source(self, documents: Mapping[bytes, bytes]) -> tuple[SourceState | None, Mapping[str, str]]:
        source = self._ports.source
        return (None, {}) if source is None else (source.facts(), self._not_followed(source, documents))

    def _not_followed(self, source: DatabaseStatus, documents: Mapping[bytes, bytes]) -> Mapping[str, str]:
        return stopped_following(documents, self._plan.takes, source.relations, source.publication)

    def _ends(self, documents: Mapping[bytes, bytes]) -> Offsets:
        topics = TopicsState.find(documents)
        return self._ports.log.ends(sorted(set(topics.tables.values())) if topics is not None else [])

    def _ask_stores(self, parked: Mapping[str, int] | None) -> list[SinkFacts]:
        def ask(name: str) -> SinkFacts:
            keys = parked.get(name, 0) if parked is not None else None
            watermark = look(lambda: self._read_watermark(name))
            return SinkFacts(name=name, kind=self._plan.sinks[name], watermark=watermark, parked=keys)

        with ThreadPoolExecutor(max(1, len(self._plan.sinks))) as pool:
            return list(pool.map(ask, self._plan.sinks))

    def _read_watermark(self, name: str) -> Watermark | None:
        with self._ports.briefly():
            return self._stores.watermarks(name).read()
