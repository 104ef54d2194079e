"""All checks of all parts, in the order in which a person would repair what they find. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, Self

from cdc.capture.topic_specs import topic_problems
from cdc.checks.findings import (
    Finding,
    absence,
    aside_condition,
    fail,
    failed_reading,
    failed_readings,
    failure,
    ok,
    troubles,
    unfed_view,
    waiting_reading,
    warn,
)
from cdc.checks.postgres import check_source
from cdc.checks.secrecy import check_settings
from cdc.figures.process_status import Process
from cdc.process.errors import CdcError, Exit
from cdc.record.ports import Unknown, look
from cdc.record.server_facts import LogFacts, SourceFacts, TopicRights
from cdc.record.state import ReadingState, SlotState, SnapshotState, TopicsState, find_all, requests_of
from cdc.record.tables_aside import AsideState, TableState, Unfollowed, asides_of
from cdc.settings.model import Settings, is_postgres, topics_maker


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


PART = "kafka"


def check_log(facts: LogFacts, *, initialised: bool, maker: str = "cdc init") -> Iterator[Finding]:
    """Every finding about Kafka. ``initialised``: the topics were made. ``maker``: the
    command that makes them."""
    yield ok(PART, "reachable", f"the Kafka cluster {facts.cluster_id} answers")
    if facts.unused:
        names = ", ".join(facts.unused)
        yield ok(PART, "options", f"no client gets these options of [log.client], which have no meaning here: {names}")
    yield from check_topics(facts, initialised=initialised, maker=maker)
    if facts.rights is not None:
        yield check_rights(facts.rights)


def check_rights(rights: TopicRights) -> Finding:
    """Check which principals may write requests: a writer to the state topic can have tables read
    again."""
    if rights.checked is None:
        message = f"who may write to {rights.topic} was not told: this login may not ask for ACLs"
        return ok(PART, "rights", message)
    if not rights.checked:
        message = f"the brokers check no rights: whoever reaches them may write to {rights.topic}"
        fix = "set authorizer.class.name on the brokers; SECURITY.md lists the rights that each part needs"
        return warn(PART, "rights", message, fix)
    everybody = [writer for writer in rights.writers if writer.endswith(":*")]
    if everybody:
        message = f"everybody who logs in to Kafka may write to {rights.topic}"
        return warn(PART, "rights", message, "give the right to capture's and the operators' principals alone")
    named = ", ".join(rights.writers) or "super users alone"
    return ok(PART, "rights", f"may write to {rights.topic}: {named}")


def check_topics(facts: LogFacts, *, initialised: bool, maker: str) -> Iterator[Finding]:
    """Policy, partitions, retention, size and identity of each topic."""
    for message, fix, fatal in facts.faults:
        if fatal:
            yield fail(PART, "topic", message, fix, exit=Exit.TOPIC)
        else:
            yield warn(PART, "topic", message, fix)
    if facts.missing and initialised:
        message = f"topics are missing: {', '.join(facts.missing)}"
        yield fail(PART, "topic", message, f"{maker} makes the topics of tables that were added", exit=Exit.TOPIC)
    elif facts.missing:
        yield ok(PART, "topic", f"{len(facts.missing)} topics will be made by {maker}")
    if facts.present and not facts.faults:
        yield ok(PART, "topic", f"{len(facts.present)} topics are as they have to be")


# The checks of how captured tables are followed: pure, from what ``cdc status`` shows as well.
#
# A table that waits, is set aside or is not followed lets ``cdc run`` go on. So nothing else that ``cdc check`` looks
# at fails because of it.

_CAPTURE, PROCESSES = "capture", "processes"


def check_following(
    asides: Mapping[str, AsideState],
    not_followed: Mapping[str, Unfollowed] | Unknown,
    tables: int,
    documents: Mapping[bytes, bytes],
) -> Iterator[Finding]:
    """One finding for each table that is not followed as the others are, or one for all.

    ``asides``: from the state topic. ``not_followed``: table -> why, from the catalog, or that it was not read.
    ``tables``: how many are captured. ``documents``: of the state topic, for the tables that are read again.
    """
    left = {} if isinstance(not_followed, Unknown) else not_followed
    for _, unfollowed in sorted(left.items()):
        yield fail(_CAPTURE, "following", unfollowed.why, unfollowed.fix)
    read = {one.table for one in requests_of(documents)}
    for table, one in sorted(asides.items()):
        if table not in left:
            yield _judged(one, read)
    if not isinstance(not_followed, Unknown) and not left and not asides:
        yield ok(_CAPTURE, "following", f"each of the {tables} captured tables is followed")


def check_readings(documents: Mapping[bytes, bytes]) -> Iterator[Finding]:
    """A finding for each table that could not be read again, or that waits for something. ``documents``: of the state
    topic."""
    states = find_all(documents, ReadingState)
    for state in failed_readings(states):
        sentence, cure = failed_reading(state.table, state.detail)
        yield fail(_CAPTURE, "readings", sentence, cure, exit=Exit.DIFFERENCE)
    for state in states:
        if state.state == "waiting" and state.detail:
            yield warn(_CAPTURE, "readings", *waiting_reading(state.table, state.detail))


def check_processes(processes: Iterable[Process]) -> Iterator[Finding]:
    """A finding for each process of the pipeline, by its own words."""
    for process in processes:
        found = list(troubles(process))
        yield from (fail(PROCESSES, "running", *one, exit=Exit.DIFFERENCE) for one in found)
        unsaid = [part for part in process.parts if part not in process.said]
        if unsaid:
            yield warn(PROCESSES, "running", *absence(process, unsaid))
        elif not found:
            yield ok(PROCESSES, "running", f"{process.command} answers at {process.address}, and goes on")


def check_views(unfed: Iterable[str]) -> Iterator[Finding]:
    """A finding for each view that no sink takes. ``unfed``: their names."""
    yield from (warn("views", "stores", *unfed_view(name)) for name in unfed)


def _judged(one: AsideState, read: Collection[str]) -> Finding:
    sentence, cure = aside_condition(one, read)
    if one.state is TableState.ASIDE:
        return fail(_CAPTURE, "following", sentence, cure, exit=Exit.DIFFERENCE)
    return warn(_CAPTURE, "following", sentence, cure)
