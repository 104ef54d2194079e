"""``cdc verify``, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from cdc.aside import lacking
from cdc.clock import SYSTEM_CLOCK
from cdc.settings import Settings, is_postgres, require_askable
from cdc.verification.known_pipeline import KnownPipeline, known_of
from cdc.wiring import open_state, require_broker
from sinks.stores import kind_of, open_store, sink_settings

if TYPE_CHECKING:
    from cdc.cuts import Cut, VerifiedTable
    from cdc.progress import Offsets
    from cdc.topic import TableName
    from cdc.verification.passes import Watch
    from cdc.verification.ports import VerifiedSource, VerifiedStore
    from cdc.verification.run import Verification
    from sinks.port import OpenSink


@contextmanager
def open_verification(
    settings: Settings, sinks: Sequence[str], *, timeout_s: float, watch: Watch
) -> Iterator[Verification]:
    """The stores beside the source, opened. ``timeout_s``: how long a store may take to reach a comparison's fence.

    UsageError for a sink that the settings do not name. LogError, at once, when no broker takes a connection.
    ConfigError while the first snapshot is not complete, or where the source cannot be asked. SinkError or SourceError
    when a server does not answer.
    """
    from cdc.verification.ports import VerificationPorts
    from cdc.verification.run import Verification

    require_askable(settings, "cdc verify")
    for name in sinks:
        sink_settings(name, settings)
    require_broker(settings)
    known = read_known(settings)
    with ExitStack() as opened:
        # As one of several writers: the application that feeds a store goes on while it is repaired.
        stores = {name: opened.enter_context(closing(open_store(name, settings, parallel=True))) for name in sinks}
        side = _open_source(settings, known, opened)
        verified = {name: _verified(name, store, settings, sorted(side.tables)) for name, store in stores.items()}
        ports = VerificationPorts(
            source=side.reader,
            stores=verified,
            tables=side.tables,
            lacking=lambda: {**side.refused, **lacking(open_state(settings).read())},
            passed=side.passed,
        )
        yield Verification(known, ports, watch, SYSTEM_CLOCK, timeout_s=timeout_s)


class _Side(NamedTuple):
    """The source's side. ``refused``: tables that cannot be compared, each with why."""

    reader: VerifiedSource
    tables: Mapping[TableName, VerifiedTable]
    refused: Mapping[str, str]
    passed: Callable[[Cut, float], Offsets] | None


def _open_source(settings: Settings, known: KnownPipeline, opened: ExitStack) -> _Side:
    if is_postgres(settings):
        from connectors.verified import gone_tables, open_cut, verified_tables

        source = opened.enter_context(closing(open_cut(settings)))
        tables = verified_tables(settings, known.topics, source, missing=lambda _: None)
        return _Side(source, tables, gone_tables(settings, known.topics, tables), None)
    from connectors.verified_binlog import BinlogSource

    binlog = opened.enter_context(closing(BinlogSource(settings, known.topics)))
    return _Side(binlog.reader, binlog.tables, binlog.refused, binlog.passed)


def _verified(name: str, store: OpenSink, settings: Settings, tables: Sequence[TableName]) -> VerifiedStore:
    from cdc.verification.ports import VerifiedStore
    from connectors.postgres.selection import kept
    from sinks.mend import StoreRepair

    return VerifiedStore(
        reader=store.reader,
        watermarks=store.watermarks,
        target=StoreRepair(store),
        tables=kept(tables, sink_settings(name, settings).tables),
        fills_lost_tables=kind_of(name, settings).fills_lost_tables,
    )


def read_known(settings: Settings) -> KnownPipeline:
    """The pipeline's memory. ConfigError while the first snapshot is not complete."""
    return known_of(open_state(settings).read(), settings.source.kind)
