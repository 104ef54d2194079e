"""Reads what ``cdc status`` shows, part by part. One that does not answer does not hide the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from cdc.aside import asides_of
from cdc.clock import Clock
from cdc.dead import CAPTURE, Parked, waiting
from cdc.errors import TopicError
from cdc.following import Unfollowed, stopped_following
from cdc.found import Found, Unknown
from cdc.freshness.opened_stores import KeptStores
from cdc.progress import Mark, Offsets, Watermark
from cdc.rebuild.rules import RebuildState, find_rebuild
from cdc.state import SlotState, SnapshotState, TopicsState
from cdc.status.asked_parts import PART_S, AskedParts
from cdc.status.facts import FreshFacts, SinkFacts, SourceState, StatusFacts, rereads_of, store_part
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
    """Kafka's answers about a pipeline: the state topic, the progress records, the views."""

    documents: Mapping[bytes, bytes]
    marks: Sequence[Mark]
    views: Sequence[ViewFacts] = ()


_NOTHING = _Log({}, ())


class StatusReader:
    """Looks at everything, again and again. Connections are kept open. A context."""

    def __init__(self, plan: StatusPlan, ports: StatusPorts, clock: Clock, limit_s: float = PART_S) -> None:
        """``limit_s``: how long a look waits for one part."""
        self._plan = plan
        self._ports = ports
        self._clock = clock
        self._parts = AskedParts(clock, limit_s)
        self._stores = KeptStores(ports.open_store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The connection of a part that hangs is in use. It ends with the process.
        if not self._parts.hangs(*map(store_part, self._plan.sinks)):
            self._stores.close()
        if self._ports.source is not None and not self._parts.hangs("source"):
            self._ports.source.close()

    def read(self) -> StatusFacts:
        """Everything as it is now. The answer of a silent part is Unknown, and hides no other. Not for two threads."""
        plan, ports, ask = self._plan, self._ports, self._parts.ask
        # All at once, so that parts that are away cost one wait together.
        asked_log = ask("log", "Kafka", self._read_log)
        asked_source = ask("source", "Postgres", ports.source.facts) if ports.source is not None else None
        asked_connector = ask("connector", "Kafka Connect", ports.connector) if ports.connector is not None else None
        asked_fresh = ask("fresh", "a process", ports.fresh)
        asked_stores = {name: self._ask_store(name) for name in plan.sinks}
        log = asked_log()
        # Not before: a question to a broker that is away takes long to fail.
        asked_letters = ask("letters", "Kafka", self._parked) if not isinstance(log, Unknown) else None
        source, left = self._judged(asked_source, None if isinstance(log, Unknown) else log.documents)
        parked = asked_letters() if asked_letters is not None else None
        if isinstance(parked, Unknown) and not self._parts.hangs("letters"):
            log = parked  # It has answered, and cannot be read. Letters that are many are not: they are not counted.
        known_log = _NOTHING if isinstance(log, Unknown) else log
        silent = log if isinstance(log, Unknown) else None
        connector = asked_connector() if asked_connector is not None else None
        ends: Offsets | Unknown = {}
        if ports.source is None and silent is None:
            ends = ask("log", "Kafka", lambda: self._ends(known_log.documents))()
        topics = TopicsState.find(known_log.documents)
        keys = None if isinstance(parked, Unknown) else parked
        fresh = asked_fresh()
        return StatusFacts(
            name=plan.name,
            slot_name=plan.slot,
            now_ms=self._clock.now_ns() // 1_000_000,
            source=source,
            slot=silent or SlotState.find(known_log.documents),
            snapshot=silent or SnapshotState.find(known_log.documents),
            marks=known_log.marks,
            sinks=[
                SinkFacts(
                    name=name,
                    kind=plan.sinks[name],
                    watermark=asked(),
                    parked=keys.get(name, 0) if keys is not None else None,
                    rebuild=_rebuild(known_log.documents, name),
                )
                for name, asked in asked_stores.items()
            ],
            rereads=rereads_of(known_log.documents),
            not_followed=left,
            asides=asides_of(known_log.documents),
            oversized=keys.get(CAPTURE, 0) if keys is not None else 0,
            tables=len(topics.tables) if topics is not None else 0,
            log=silent or (ends if isinstance(ends, Unknown) else None),
            connector=connector,
            ends={} if isinstance(ends, Unknown) else ends,
            fresh=FreshFacts() if isinstance(fresh, Unknown) else fresh,
            views=known_log.views if silent is None else [ViewFacts(name=name, known=False) for name in plan.views],
            answered_s=self._parts.answered_s(),
        )

    def _read_log(self) -> _Log:
        found = self._ports.log.state()
        # Here already, so that a document that cannot be read is a fault of the log and hides no other part.
        SlotState.find(found), SnapshotState.find(found), rereads_of(found), asides_of(found), TopicsState.find(found)
        [find_rebuild(found, name) for name in self._plan.sinks]
        return _Log(found, self._ports.log.marks(), self._ports.views())

    def _parked(self) -> Mapping[str, int]:
        """Parked keys by sink, and the rows that capture put aside."""
        try:
            letters = list(self._ports.log.letters())
        except TopicError:
            return {}
        aside = sum(letter.sink == CAPTURE for letter in waiting(letters))
        return {CAPTURE: aside} | {name: len(Parked(name, letters)) for name in self._plan.sinks}

    def _judged(
        self, asked: Callable[[], SourceState | Unknown] | None, documents: Mapping[bytes, bytes] | None
    ) -> tuple[Found[SourceState], Mapping[str, Unfollowed]]:
        """The source, and the tables of the log that its stream says nothing of. ``documents``: None where the log is
        silent: then nothing is said of them."""
        source = asked() if asked is not None else None
        database = self._ports.source
        if database is None or documents is None or source is None or isinstance(source, Unknown):
            return source, {}
        answered = self._parts.answered_s()["source"]
        left = self._parts.ask("source", "Postgres", lambda: self._not_followed(database, documents))()
        self._parts.stamp("source", answered)
        return (left, {}) if isinstance(left, Unknown) else (source, left)

    def _not_followed(self, source: DatabaseStatus, documents: Mapping[bytes, bytes]) -> Mapping[str, Unfollowed]:
        relations, children = source.relations, source.children
        return stopped_following(documents, self._plan.takes, relations, source.publication, children)

    def _ends(self, documents: Mapping[bytes, bytes]) -> Offsets:
        topics = TopicsState.find(documents)
        return self._ports.log.ends(sorted(set(topics.tables.values())) if topics is not None else [])

    def _ask_store(self, name: str) -> Callable[[], Found[Watermark]]:
        return self._parts.ask(store_part(name), "it", lambda: self._read_watermark(name))

    def _read_watermark(self, name: str) -> Watermark | None:
        with self._ports.briefly():
            return self._stores.watermarks(name).read()


def _rebuild(documents: Mapping[bytes, bytes], sink: str) -> RebuildState | None:
    found = find_rebuild(documents, sink)
    return found if found is not None and found.unfinished else None
