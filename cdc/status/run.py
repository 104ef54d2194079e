"""Reads what ``cdc status`` shows, each part in a thread of its own. One that does not answer hides no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any, Generic, NamedTuple, Self, TypeVar

from cdc.freshness.bounded_ports import KeptStores
from cdc.operate.rebuild import RebuildState, find_rebuild
from cdc.process.clock import Clock
from cdc.process.errors import CdcError, Exit, Retry, TopicError
from cdc.record.ports import Found, Unknown, look
from cdc.record.progress import Mark, Offsets, Watermark
from cdc.record.state import SlotState, SnapshotState, TopicsState
from cdc.record.tables_aside import Unfollowed, asides_of, stopped_following
from cdc.status.facts import (
    DatabaseStatus,
    FreshFacts,
    SinkFacts,
    SourceState,
    StatusFacts,
    StatusPorts,
    rereads_of,
    store_part,
)
from cdc.status.stream_lines import StreamFacts
from cdc.status.view_lines import ViewFacts
from cdc.wire.dead_letter import CAPTURE, OUTBOX, Parked, events_address, waiting

T = TypeVar("T")
PART_S = 15.0
"""How long a look waits for a part. Each client gives up a server that is away before that, and says why."""
_HINT = "a part is asked again when it has ended its last answer: a new cdc status asks at once"


class AskedPart(Generic[T]):
    """A question that a part was asked. ``at_s``: when it was answered, by the clock of the parts."""

    def __init__(self, who: str, question: Callable[[], T], limit_s: float, clock: Clock) -> None:
        self._who, self._question, self._limit_s, self._clock = who, question, limit_s, clock
        self._ended = Event()
        self._found: T | Unknown
        self._bug: BaseException | None = None
        self._began_s = self.at_s = clock.monotonic()
        # Of those that hang none may hold the end of the process.
        Thread(target=self._ask, name=f"status {who}", daemon=True).start()

    @property
    def hangs(self) -> bool:
        """Whether it has no answer yet."""
        return not self._ended.is_set()

    def wait(self) -> T | Unknown:
        """The answer. Unknown where there is none within the limit, which counts from the question on."""
        left_s = self._limit_s - (self._clock.monotonic() - self._began_s)
        if not self._ended.wait(max(0.0, left_s)):
            return self.late()
        if self._bug is not None:
            raise self._bug
        return self._found

    def late(self) -> Unknown:
        """The answer of a part that gives none."""
        words = f"{self._who} has not answered in {self._limit_s:g} s"
        return Unknown(CdcError(words, hint=_HINT, retry=Retry.LATER, exit=Exit.UNAVAILABLE))

    def _ask(self) -> None:
        try:
            self._found = look(self._question)
        except BaseException as bug:  # raised where it is waited for
            self._bug = bug
        self.at_s = self._clock.monotonic()
        self._ended.set()


class AskedParts:
    """Asks parts by their names, from look to look. One that hangs is asked nothing more until it has answered, so that
    it has one thread and no more. Its answer is of no use then: it is too old."""

    def __init__(self, clock: Clock, limit_s: float = PART_S) -> None:
        self._clock, self._limit_s = clock, limit_s
        self._asked: dict[str, AskedPart[Any]] = {}

    def ask(self, part: str, who: str, question: Callable[[], T]) -> Callable[[], T | Unknown]:
        """Ask, and return at once. The answer comes of the function that is returned, see :meth:`AskedPart.wait`."""
        if self.hangs(part):
            return self._asked[part].late
        asked = self._asked[part] = AskedPart(who, question, self._limit_s, self._clock)
        return asked.wait

    def hangs(self, *parts: str) -> bool:
        """Whether one of these has not ended its last answer."""
        return any(part in self._asked and self._asked[part].hangs for part in parts)

    def answered_s(self) -> dict[str, float]:
        """When each part last answered."""
        return {part: asked.at_s for part, asked in self._asked.items() if not asked.hangs}

    def stamp(self, part: str, at_s: float) -> None:
        """Take an earlier answer of a part for its last one."""
        self._asked[part].at_s = at_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPlan:
    """The pipeline as its settings have it. ``sinks``: name -> kind. ``takes``: whether a table is captured by them.
    ``views``, ``streams``: their names."""

    name: str
    slot: str
    sinks: Mapping[str, str]
    takes: Callable[[str], bool]
    views: Sequence[str] = ()
    streams: Sequence[str] = ()


class _Log(NamedTuple):
    """Kafka's answers about a pipeline: the state topic, the progress records, views and streams."""

    documents: Mapping[bytes, bytes]
    marks: Sequence[Mark]
    views: Sequence[ViewFacts] = ()
    streams: Sequence[StreamFacts] = ()


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
        topics, asides = TopicsState.find(known_log.documents), asides_of(known_log.documents)
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
            asides=asides,
            oversized=keys.get(CAPTURE, 0) if keys is not None else 0,
            refused_events=keys.get(OUTBOX, 0) if keys is not None else 0,
            # Not one that the settings do not name any more, as when it became the outbox.
            tables=sum(table in asides or plan.takes(table) for table in (topics.tables if topics is not None else ())),
            log=silent or (ends if isinstance(ends, Unknown) else None),
            connector=connector,
            ends={} if isinstance(ends, Unknown) else ends,
            fresh=FreshFacts() if isinstance(fresh, Unknown) else fresh,
            views=known_log.views if silent is None else [ViewFacts(name=name, known=False) for name in plan.views],
            streams=known_log.streams
            if silent is None
            else [StreamFacts(name=name, known=False) for name in plan.streams],
            answered_s=self._parts.answered_s(),
        )

    def _read_log(self) -> _Log:
        found = self._ports.log.state()
        # Here already, so that a document that cannot be read is a fault of the log and hides no other part.
        SlotState.find(found), SnapshotState.find(found), rereads_of(found), asides_of(found), TopicsState.find(found)
        [find_rebuild(found, name) for name in self._plan.sinks]
        return _Log(found, self._ports.log.marks(), self._ports.views(), self._ports.streams())

    def _parked(self) -> Mapping[str, int]:
        """Parked keys by sink, and the rows and the events that capture put aside."""
        try:
            letters = list(self._ports.log.letters())
        except TopicError:
            return {}
        aside = [letter for letter in waiting(letters) if letter.sink == CAPTURE]
        events = sum(letter.topic == events_address(self._plan.name) for letter in aside)
        return {CAPTURE: len(aside) - events, OUTBOX: events} | {
            name: len(Parked(name, letters)) for name in self._plan.sinks
        }

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
