"""``cdc verify``, put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.aside import lacking
from cdc.clock import SYSTEM_CLOCK
from cdc.epochs import epoch_of
from cdc.settings import Settings, require_askable
from cdc.shard_documents import tables_of
from cdc.verification.known_pipeline import KnownPipeline, known_of
from cdc.wiring import require_broker
from sinks.stores import open_store

if TYPE_CHECKING:
    from cdc.cuts import VerifiedTable
    from cdc.topic import TableName
    from cdc.verification.passes import Watch
    from cdc.verification.run import Verification


@contextmanager
def open_verification(
    settings: Settings, names: Sequence[str], *, timeout_s: float, watch: Watch
) -> Iterator[Verification]:
    """The stores beside the source, opened. ``names``: of sinks, and of tables with their schemas. ``timeout_s``: how
    long a store may take to reach a comparison's fence.

    UsageError for a sink that the settings do not name. LogError, at once, when no broker takes a connection.
    ConfigError while the first snapshot is not complete, or where the source cannot be asked. SinkError or SourceError
    when a server does not answer.
    """
    from cdc.verification.ports import VerificationPorts
    from cdc.verification.run import Verification
    from connectors.verified_stores import open_side, sinks_of, verified_store
    from connectors.whole_state import read_state

    require_askable(settings, "cdc verify")
    sinks, only = sinks_of(settings, names)
    require_broker(settings)
    known = read_known(settings)
    with ExitStack() as opened:
        # As one of several writers: the application that feeds a store goes on while it is repaired.
        stores = {name: opened.enter_context(closing(open_store(name, settings, parallel=True))) for name in sinks}
        side = open_side(settings, known.topics, opened, sinks).of(only)
        verified = {name: verified_store(name, store, settings, side) for name, store in stores.items()}
        ports = VerificationPorts(
            source=side.reader,
            stores=verified,
            tables=_with_epochs(settings, side.compared),
            lacking=lambda: side.named({**side.refused, **lacking(read_state(settings))}),
            left_out=side.named(side.left_out),
            passed=side.passed,
            runners=side.runners,
        )
        yield Verification(known, ports, watch, SYSTEM_CLOCK, timeout_s=timeout_s)


def _with_epochs(settings: Settings, tables: Mapping[TableName, VerifiedTable]) -> Mapping[TableName, VerifiedTable]:
    """The same tables, each with the epoch of its shard of capture."""
    from connectors.whole_state import read_each

    if not settings.capture.shards:
        return tables
    epochs = {
        table: epoch_of(documents, settings.source.kind) or 0
        for documents in read_each(settings).values()
        for table in tables_of(documents)
    }
    return {name: replace(table, epoch=epochs.get(str(name), 0)) for name, table in tables.items()}


def read_known(settings: Settings) -> KnownPipeline:
    """The pipeline's memory. ConfigError while the first snapshot is not complete."""
    from connectors.whole_state import read_state

    return known_of(read_state(settings), settings.source.kind)
