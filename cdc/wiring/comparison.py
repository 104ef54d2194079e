"""``cdc connect compare``, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.capture import CaptureStop
from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.comparison.run import Comparing
from cdc.comparison.sides import require_debezium, sides_of
from cdc.metrics import CaptureFigures
from cdc.settings import Settings
from cdc.wiring import require_broker
from cdc.wiring.capture import open_capture
from cdc.wiring.pipeline import prepare_pipeline
from cdc.wiring.snapshot import build_snapshot
from cdc.wiring.verification import read_known

if TYPE_CHECKING:
    from cdc.cuts import VerifiedTable
    from connectors.postgres.cut import SourceCut
    from connectors.session.opening import Opening


def open_comparison(
    settings: Settings, say: Callable[[str], None], clock: Clock = SYSTEM_CLOCK, *, only_clean: bool = False
) -> Comparing:
    """Comparisons of the pipeline that the settings describe. ``only_clean``: what is left of one is to be removed.

    ConfigError without a [debezium] section for Postgres. LogError, at once, when no broker takes a connection, unless
    ``only_clean``: the connector and the slots are removed without one. SourceError when Postgres does not answer.
    """
    from connectors.connect.compared import ports_of, published
    from connectors.verified import verified_tables
    from snapshot.edges import NoReport

    if not only_clean:
        require_broker(settings)
    require_debezium(settings)
    sides = sides_of(settings, published=published(settings))
    native = sides.native

    def prepare(rows: bool) -> None:
        prepare_pipeline(native)
        build_snapshot(native, NoReport(), workers=1).run(rows=rows)

    def opening(figures: CaptureFigures, stop: CaptureStop) -> Opening:
        return open_capture(native, figures=figures, stop=stop, clock=clock)

    def verified(source: SourceCut) -> Mapping[str, VerifiedTable]:
        found = verified_tables(native, read_known(native).topics, source)
        return {str(name): _as_written(table, native) for name, table in found.items()}

    ports = ports_of(settings, sides, prepare=prepare, opening=opening, verified=verified)
    return Comparing(sides, ports, say, clock)


def _as_written(table: VerifiedTable, settings: Settings) -> VerifiedTable:
    """The table, its rows encoded as the log has them: a verification reads them readable, under either encoding."""
    return replace(table, shape=replace(table.shape, encoding=settings.log.encoding))
