"""``cdc verify``, put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from cdc.aside import asides_of
from cdc.clock import SYSTEM_CLOCK
from cdc.settings import Settings, require_postgres
from cdc.verification.known import Known, known_of
from cdc.wiring import open_state, require_broker
from sinks.stores import kind_of, open_store, sink_settings

if TYPE_CHECKING:
    from cdc.topic import TableName
    from cdc.verification.ports import VerifiedStore
    from cdc.verification.rounds import Watch
    from cdc.verification.run import Verification
    from sinks.port import OpenSink


@contextmanager
def open_verification(
    settings: Settings, sinks: Sequence[str], *, timeout_s: float, watch: Watch
) -> Iterator[Verification]:
    """The stores beside the source, opened. ``timeout_s``: how long a store may take to reach a comparison's fence.

    UsageError for a sink that the settings do not name; LogError, at once, when no broker takes a connection;
    ConfigError while the first snapshot is not complete, or where the source is no Postgres; SinkError or SourceError
    when a server does not answer.
    """
    from cdc.verification.ports import Ports
    from cdc.verification.run import Verification
    from connectors.verified import open_cut, verified_tables

    require_postgres(settings, "cdc verify")
    for name in sinks:
        sink_settings(name, settings)
    require_broker(settings)
    known = read_known(settings)
    with ExitStack() as opened:
        # As one of several writers: the application that feeds a store goes on while it is repaired.
        stores = {name: opened.enter_context(closing(open_store(name, settings, parallel=True))) for name in sinks}
        source = opened.enter_context(closing(open_cut(settings)))
        tables = verified_tables(settings, known.topics, source)
        verified = {name: _verified(name, store, settings, sorted(tables)) for name, store in stores.items()}
        ports = Ports(source=source, stores=verified, tables=tables, lacking=lambda: lacking(settings))
        yield Verification(known, ports, watch, SYSTEM_CLOCK, timeout_s=timeout_s)


def _verified(name: str, store: OpenSink, settings: Settings, tables: Sequence[TableName]) -> VerifiedStore:
    from cdc.verification.ports import VerifiedStore
    from connectors.postgres.selection import kept
    from sinks.mend import Mending

    return VerifiedStore(
        reader=store.reader,
        watermarks=store.watermarks,
        target=Mending(store),
        tables=kept(tables, sink_settings(name, settings).tables),
        fills_lost_tables=kind_of(name, settings).fills_lost_tables,
    )


def read_known(settings: Settings) -> Known:
    """The pipeline's memory. ConfigError while the first snapshot is not complete."""
    return known_of(open_state(settings).read(), settings.source.kind)


def lacking(settings: Settings) -> dict[str, str]:
    """Tables of which the log lacks changes, each with what is to be said of it."""
    return {table: one.sentence() for table, one in asides_of(open_state(settings).read()).items() if one.due}
