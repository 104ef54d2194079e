"""A pipeline put together: what ``cdc init`` makes, ``check`` asks and ``drop`` removes, its snapshots, its capture
daemon, and what ``cdc status`` looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from cdc.capture.capture_loop import CaptureStop
from cdc.capture.table_masks import as_masked
from cdc.capture.transaction_visibility import Gate, Visibility, VisibilityGate
from cdc.figures.capture_metrics import CaptureFigures
from cdc.operate.snapshot_requests import RereadPorts, Rereads
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.settings.model import Settings, is_postgres, require_postgres
from cdc.status.facts import StatusPorts
from cdc.status.run import StatusPlan, StatusReader
from cdc.wiring import open_schemas, open_source, open_state, require_broker
from cdc.wiring.debezium import open_connector
from sinks.contract.stores import kind_of, open_store, spec_of

if TYPE_CHECKING:
    from cdc.checks.findings import Finding
    from cdc.operate.drop import Drop
    from cdc.operate.settings_proposal import FoundDatabase
    from cdc.operate.snapshot_requests import RereadSource
    from connectors.operate.check import ServerProbes
    from connectors.operate.init import Prepared as PreparedPipeline
    from connectors.operate.new_epoch import Successor
    from connectors.session.opening import Opening
    from snapshot.first.first_snapshot import FirstSnapshot
    from snapshot.source.ports import Reporter


def prepare_pipeline(settings: Settings) -> PreparedPipeline:
    """Make or check publication, topics and shapes. ConfigError where the source is another database than Postgres."""
    from connectors.operate.init import prepare_pipeline as prepare

    require_postgres(settings, "cdc init")
    return prepare(settings)


def begin_epoch(settings: Settings, clock: Clock) -> tuple[int, PreparedPipeline]:
    """End the present epoch and prepare the next one. Its number, and what was made."""
    from connectors.operate.init import begin_pipeline_again

    require_postgres(settings, "cdc init")
    return begin_pipeline_again(settings, clock)


def accept_server(settings: Settings, clock: Clock) -> Successor | None:
    """See :func:`connectors.operate.new_epoch.accept_server`."""
    from connectors.operate.new_epoch import accept

    require_postgres(settings, "cdc init")
    return accept(settings, clock)


def open_drop(settings: Settings) -> Drop:
    """See :func:`connectors.operate.init.drop_of`."""
    from connectors.operate.init import drop_of

    return drop_of(settings)


def open_probes(settings: Settings) -> ServerProbes:
    """Connections open when they are first asked for."""
    from connectors.operate.check import ServerProbes

    def store(sink: str) -> Iterable[Finding]:
        return kind_of(sink, settings).findings(sink, spec_of(sink, settings))

    return ServerProbes(settings, store)


def look_at_database(dsn: str, role: str) -> tuple[FoundDatabase, bool]:
    """See :func:`connectors.operate.proposal.read_database`."""
    from connectors.operate.proposal import read_database

    return read_database(dsn, role)


def open_capture(
    settings: Settings,
    *,
    figures: CaptureFigures,
    stop: CaptureStop,
    clock: Clock,
    gate: Callable[[Visibility], Gate] = VisibilityGate,
) -> Opening:
    """The opener of capture's sessions, later snapshots included. See :class:`connectors.session.opening.Opening`."""
    from connectors.operate.snapshot import later_of
    from connectors.session.opening import Opening

    return Opening(settings, figures=figures, stop=stop, clock=clock, later=later_of(settings, clock), gate=gate)


def build_snapshot(settings: Settings, reporter: Reporter, *, workers: int | None = None) -> FirstSnapshot:
    """One run of the first snapshot. ``workers`` over the settings'. LogError, at once, when no broker takes a
    connection."""

    from connectors.operate.snapshot import SnapshotEdges
    from snapshot.first.first_snapshot import FirstSnapshot

    require_broker(settings)
    return FirstSnapshot(SnapshotEdges(settings), reporter, workers=workers)


def open_rereads(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> Rereads:
    """Requests of the pipeline that the settings describe. LogError, at once, when no broker takes a connection."""
    require_broker(settings)

    @contextmanager
    def source() -> Iterator[RereadSource]:
        from snapshot.later.window_read import RequestSource

        with closing(open_source(settings, application_name="cdc snapshot")) as session:
            yield RequestSource(session)

    shape = as_masked(settings, lambda table: open_schemas(settings).named(str(table)))
    ports = RereadPorts(state=open_state(settings), source=source, shape=shape)
    return Rereads(ports, clock)


def open_status(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> StatusReader:
    """A look at the pipeline that the settings describe, to be repeated. Nothing is opened before the first one."""
    from connectors.operate.status import StatusLog, StatusSource, read_fresh
    from connectors.postgres.server.table_selection import takes
    from connectors.views.view_topics import look_at_streams, look_at_views
    from sinks.contract.attempt_limits import looking

    plan = StatusPlan(
        name=settings.name,
        slot=settings.slot,
        sinks={name: sink.kind for name, sink in settings.sinks.items()},
        views=tuple(settings.views),
        streams=tuple(settings.streams),
        takes=partial(takes, tables=settings.source.tables, exclude=settings.source.exclude),
    )
    ports = StatusPorts(
        log=StatusLog(settings),
        source=StatusSource(settings) if is_postgres(settings) else None,
        connector=(lambda: open_connector(settings).facts()) if settings.source.kind == "debezium" else None,
        open_store=lambda sink: open_store(sink, settings),
        briefly=looking,
        fresh=lambda: read_fresh(settings),
        views=lambda: look_at_views(settings),
        streams=lambda: look_at_streams(settings),
    )
    return StatusReader(plan, ports, clock)
