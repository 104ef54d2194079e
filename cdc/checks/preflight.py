"""All checks of all parts, in the order in which a person would mend what they find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from cdc.checks.facts import LogFacts, SourceFacts
from cdc.checks.finding import Finding, failure, ok
from cdc.checks.kafka import check_log
from cdc.checks.postgres import check_source
from cdc.checks.secrecy import check_settings
from cdc.errors import CdcError
from cdc.found import Unknown, look
from cdc.settings import Settings, topics_maker
from cdc.state import SlotState, TopicsState


class Probes(Protocol):
    """Reads the facts. Every method raises CdcError when its part cannot be asked."""

    def state(self) -> tuple[TopicsState | None, SlotState | None]:
        """The notes of ``cdc init`` and ``cdc snapshot``. None for what has not happened."""

    def source(self) -> SourceFacts:
        """Server, slot, publication and captured tables, as the database has them."""

    def log(self, topics: list[str], known: TopicsState | None) -> LogFacts:
        """``topics``: of the captured tables."""

    def store(self, sink: str) -> Iterable[Finding]:
        """The findings about a store that answers."""


def preflight(settings: Settings, probes: Probes) -> Iterator[Finding]:
    """Findings part by part. A part that cannot be asked is one failure, and the others are still checked."""
    yield from check_settings(settings)
    state = look(probes.state)
    topics_known, slot_known = (None, state) if isinstance(state, Unknown) else state
    tables: list[str] = []
    if settings.debezium is None or settings.debezium.database == "postgres":
        try:
            source = probes.source()
            tables = [table.topic for table in source.tables]
            yield ok("postgres", "reachable", "Postgres answers")
            yield from check_source(source, settings, slot_known)
        except CdcError as error:
            yield failure("postgres", "reachable", error)
    log = state if isinstance(state, Unknown) else look(lambda: probes.log(tables, topics_known))
    if isinstance(log, Unknown):
        yield failure("kafka", "reachable", log.because)
    else:
        yield from check_log(log, initialised=topics_known is not None, maker=topics_maker(settings))
    for name in settings.sinks:
        try:
            yield from probes.store(name)
        except CdcError as error:
            yield failure(name, "reachable", error)
