"""The facts read for a status, the requests in the state topic, and the ports that are asked for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from cdc.checks.findings import Condition, failed_readings
from cdc.figures.measures import Quantiles
from cdc.figures.process_status import FillShare, Process
from cdc.freshness.bounded_ports import OpenedStore
from cdc.operate.rebuild import RebuildState
from cdc.record.ports import Found, Unknown
from cdc.record.progress import Mark, Offsets, Watermark
from cdc.record.server_facts import PublicationFacts, ServerFacts, SlotFacts
from cdc.record.state import ReadingState, SlotState, SnapshotState, find_all, requests_of
from cdc.record.tables_aside import AsideState, Unfollowed
from cdc.record.topic_names import TableName
from cdc.status.stream_lines import StreamFacts
from cdc.status.view_lines import ViewFacts
from cdc.wire.dead_letter import DeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The source's side: where it is, the server, the slot (None: there is none)."""

    address: str
    server: ServerFacts
    slot: SlotFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorFacts:
    """Debezium's side: the connector, and how far it says that its topics hold the source.

    ``address``: of the source, as the settings name it. ``fault``: why it failed. Empty where it did not.
    ``snapshot``: ``none``, ``running`` or ``complete``. ``position``: its LSN as text, empty without one.
    ``lsn``: below which every commit is in the topics, of Postgres alone.
    """

    name: str
    database: str
    address: str
    state: str
    fault: str = ""
    snapshot: str = "none"
    position: str = ""
    lsn: int | None = None

    def conditions(self) -> Iterator[Condition]:
        """The faults that keep it from feeding the stores."""
        if self.fault:
            said = f"the connector {self.name} failed: {self.fault}"
            yield Condition(said, "end that cause, then cdc connect restart")
        elif self.state != "RUNNING":
            yield Condition(
                f"the connector {self.name} is {self.state.lower()}: cdc connect status says more", "cdc connect resume"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFacts:
    """One store: its watermark (None: it has none yet) and its parked keys, None where the log did not say.
    ``rebuild``: that is not over. None where there is none, or the log did not say."""

    name: str
    kind: str
    watermark: Found[Watermark] = None
    parked: int | None = 0
    rebuild: RebuildState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    """A table that is read again, or is to be. ``state`` and ``detail`` as in :class:`cdc.record.state.ReadingState`.
    ``first``: these are its first rows, so that stores are not whole before."""

    table: str
    reason: str
    state: str
    detail: str
    rows: int
    share: float
    first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshFacts:
    """How fresh changes were in the last minutes, as the running processes say: from commit to the log, and to each
    store. None where nothing came. ``asked``: which of ``log`` and the sinks' names a process answered for.
    ``fills``: by sink, how far a fill is. ``processes``: their own words about their parts."""

    asked: frozenset[str] = frozenset()
    log: Quantiles | None = None
    sinks: Mapping[str, Quantiles] = field(default_factory=dict)
    fills: Mapping[str, FillShare] = field(default_factory=dict)
    processes: Sequence[Process] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFacts:
    """Everything read. ``log``: None when it was read. Else ``slot`` and ``snapshot`` are not known, and ``marks`` and
    ``rereads`` are empty without saying that there are none. ``marks``: the newest progress records, oldest first.

    ``source``: None where the source is no Postgres, and is not asked. ``connector``: None where none captures.
    ``ends``: where the table topics end, read for a source without LSNs. ``views`` and ``streams``: those of the
    settings. ``not_followed``: captured tables that the stream says nothing of, and why. ``asides``: by table, what
    capture notes of those that are set aside or wait. ``tables``: how many are captured. ``fresh``: what the running
    processes say. ``answered_s``: by part, when it answered, of a clock that never goes back: ``log``, ``source``,
    ``connector``, and stores by :func:`store_part`."""

    name: str
    slot_name: str
    now_ms: int
    source: Found[SourceState]
    slot: Found[SlotState]
    snapshot: Found[SnapshotState]
    marks: Sequence[Mark]
    sinks: Sequence[SinkFacts]
    rereads: Sequence[Reread] = ()
    not_followed: Mapping[str, Unfollowed] = field(default_factory=dict)
    asides: Mapping[str, AsideState] = field(default_factory=dict)
    oversized: int = 0
    refused_events: int = 0
    tables: int = 0
    log: Unknown | None = None
    connector: Found[ConnectorFacts] = None
    ends: Offsets = field(default_factory=dict)
    fresh: FreshFacts = field(default_factory=FreshFacts)
    views: Sequence[ViewFacts] = ()
    streams: Sequence[StreamFacts] = ()
    answered_s: Mapping[str, float] = field(default_factory=dict)

    def put_aside(self) -> Iterator[tuple[str, str]]:
        """The sentences about what capture itself put aside, each with what ends that."""
        drop = 'cdc dead drop --sink "(capture)"'
        if self.oversized:
            rows = "1 row is" if self.oversized == 1 else f"{self.oversized} rows are"
            cure = f"cdc verify SINK --repair writes the rows into a store, then: {drop}"
            yield f"{rows} larger than the topic takes: cdc dead list names the keys", cure
        if self.refused_events:
            written = "1 of them is" if self.refused_events == 1 else f"{self.refused_events} of them are"
            cure = f"write them again as events, then: {drop}"
            yield f"of what was written to the outbox, {written} put aside: cdc dead list says why", cure


def store_part(name: str) -> str:
    """A store among the parts, by its sink's name: a sink may be called ``log``."""
    return f"store {name}"


def rereads_of(documents: Mapping[bytes, bytes]) -> list[Reread]:
    """The requests that are not over and those that failed and still matter, from the state topic's records. By
    table."""
    states = {state.id: state for state in find_all(documents, ReadingState)}
    failed = failed_readings(states.values())
    found = []
    for request in requests_of(documents):
        state = states.get(request.id)
        if state is None or state.serial != request.serial:
            state = ReadingState(id=request.id, table=request.table, serial=request.serial, epoch=0)
        found.append(_reread(state, request.reason, request.first))
    asked = {one.id for one in requests_of(documents)}
    found += [_reread(state, "", state.first) for state in failed if state.id not in asked]
    return sorted(found, key=lambda one: one.table)


def _reread(state: ReadingState, reason: str, first: bool) -> Reread:
    return Reread(
        table=state.table,
        reason=reason,
        state=state.state,
        detail=state.detail,
        rows=state.rows,
        share=state.share,
        first=first,
    )


class TopicStatus(Protocol):
    """The pipeline's topics. LogError when no broker answers, TopicError before ``cdc init``."""

    def state(self) -> Mapping[bytes, bytes]:
        """The newest record of each key of the state topic."""

    def marks(self) -> Sequence[Mark]:
        """The newest progress records, oldest first."""

    def letters(self) -> Iterable[DeadLetter]:
        """Every dead letter. TopicError where there is no such topic."""

    def ends(self, topics: Sequence[str]) -> Offsets:
        """Where those of these topics that exist end."""


class DatabaseStatus(Protocol):
    """The Postgres server. Its session is kept between looks."""

    def facts(self) -> SourceState:
        """The server and the pipeline's slot."""

    def publication(self) -> PublicationFacts | None:
        """The pipeline's publication, if the server has it."""

    def relations(self, tables: Sequence[str], oids: Sequence[int]) -> Mapping[int, TableName]:
        """The relations of the catalog that have one of these names or oids."""

    def children(self, oids: Sequence[int]) -> Mapping[int, Sequence[TableName]]:
        """The tables that inherit from one of these relations and that the settings do not mention."""

    def close(self) -> None:
        """Never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPorts:
    """All parts that a status reads.

    ``source``: None where it is no Postgres. ``connector``: None where the native capture writes.
    ``open_store``: a store by its sink's name. ``briefly``: within, a store is given up within a second. ``fresh``:
    what the running processes say, at once where none answers. It never raises. ``views``, ``streams``: those of the
    settings.
    """

    log: TopicStatus
    source: DatabaseStatus | None
    connector: Callable[[], ConnectorFacts] | None
    open_store: Callable[[str], OpenedStore]
    briefly: Callable[[], AbstractContextManager[None]]
    fresh: Callable[[], FreshFacts] = FreshFacts
    views: Callable[[], Sequence[ViewFacts]] = tuple
    streams: Callable[[], Sequence[StreamFacts]] = tuple
