"""All checks of all parts, in the order in which a person would repair what they find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, Self

from cdc.aside import AsideState, asides_of
from cdc.checks.facts import LogFacts, SourceFacts
from cdc.checks.finding import Finding, fail, failure, ok
from cdc.checks.following import check_following, check_processes, check_readings, check_views
from cdc.checks.kafka import check_log
from cdc.checks.postgres import check_source
from cdc.checks.secrecy import check_settings
from cdc.errors import CdcError
from cdc.following import Unfollowed
from cdc.found import Unknown, look
from cdc.kept_topics import topic_problems
from cdc.running import Process
from cdc.settings import Settings, is_postgres, topics_maker
from cdc.state import SlotState, SnapshotState, TopicsState


class Probes(Protocol):
    """Reads the facts. Every method raises CdcError when its part cannot be asked."""

    def state(self) -> Mapping[bytes, bytes]:
        """The newest record of each key of the state topic. Empty before ``cdc init``."""

    def source(self) -> SourceFacts:
        """Server, slot, publication and captured tables, as the database has them."""

    def not_followed(self, documents: Mapping[bytes, bytes]) -> Mapping[str, Unfollowed]:
        """Captured table -> why the stream says nothing of it. ``documents``: of the state topic."""

    def log(self, topics: list[str], known: TopicsState | None) -> LogFacts:
        """``topics``: of the captured tables."""

    def processes(self) -> Sequence[Process]:
        """The pipeline's processes, asked at the addresses of the settings. Never raises."""

    def unfed_views(self) -> Sequence[str]:
        """The views of the settings that no sink takes. Asks nobody."""

    def store(self, sink: str) -> Iterable[Finding]:
        """The findings about a store that answers."""


class _Noted(NamedTuple):
    """The notes of ``cdc init``, ``cdc snapshot`` and capture. None for what has not happened. ``begun``: the first
    snapshot is complete."""

    documents: Mapping[bytes, bytes] = {}
    topics: TopicsState | None = None
    slot: SlotState | None = None
    asides: Mapping[str, AsideState] = {}
    begun: bool = False

    @classmethod
    def of(cls, documents: Mapping[bytes, bytes]) -> Self:
        """Raises what a document raises that cannot be read."""
        snapshot = SnapshotState.find(documents)
        begun = snapshot is not None and snapshot.state == "complete"
        return cls(documents, TopicsState.find(documents), SlotState.find(documents), asides_of(documents), begun)


def preflight(settings: Settings, probes: Probes) -> Iterator[Finding]:
    """Findings part by part. A part that cannot be asked is one failure, and the others are still checked."""
    yield from check_settings(settings)
    state = look(lambda: _Noted.of(probes.state()))
    known = _Noted() if isinstance(state, Unknown) else state
    tables: list[str] = []
    left: Mapping[str, Unfollowed] | Unknown = {}
    if is_postgres(settings):
        left = look(lambda: probes.not_followed(known.documents))
        try:
            source = probes.source()
            meant = {str(table.table): table.topic for table in source.tables}
            # The topic that each table has: that another one is missing is no fault by itself.
            had = known.topics.tables if known.topics is not None else {}
            tables = [had.get(table, topic) for table, topic in meant.items()]
            yield ok("postgres", "reachable", "Postgres answers")
            slot, named = state if isinstance(state, Unknown) else known.slot, {} if isinstance(left, Unknown) else left
            yield from check_source(source, settings, slot, named)
            if settings.source.kind == "postgres":
                yield from (fail("postgres", "topics", *problem) for problem in topic_problems(known.topics, meant))
        except CdcError as error:
            yield failure("postgres", "reachable", error)
    log = state if isinstance(state, Unknown) else look(lambda: probes.log(tables, known.topics))
    if isinstance(log, Unknown):
        yield failure("kafka", "reachable", log.because)
    else:
        yield from check_log(log, initialised=known.topics is not None, maker=topics_maker(settings))
    if known.topics is not None and known.slot is not None:
        yield from check_following(known.asides, left, len(known.topics.tables), known.documents)
        yield from check_readings(known.documents)
    yield from check_views(probes.unfed_views())
    if known.begun or (known.topics is not None and settings.source.kind == "debezium"):
        yield from check_processes(probes.processes())
    for name in settings.sinks:
        try:
            yield from probes.store(name)
        except CdcError as error:
            yield failure(name, "reachable", error)
