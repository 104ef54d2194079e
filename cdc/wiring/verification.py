"""``cdc verify``, put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.tables_aside import lacking
from cdc.settings.model import Settings, require_postgres
from cdc.wiring import open_state, require_broker
from sinks.contract.stores import open_store

if TYPE_CHECKING:
    from cdc.verification.passes import Watch
    from cdc.verification.run import KnownPipeline, Verification


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
    from connectors.operate.verify import open_side, sinks_of, verified_store

    require_postgres(settings, "cdc verify")
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
            tables=side.compared,
            lacking=lambda: side.named({**side.refused, **lacking(open_state(settings).read())}),
            left_out=side.named(side.left_out),
            runners=side.runners,
        )
        yield Verification(known, ports, watch, SYSTEM_CLOCK, timeout_s=timeout_s)


def read_known(settings: Settings) -> KnownPipeline:
    """The pipeline's memory. ConfigError while the first snapshot is not complete."""
    from cdc.verification.run import known_of

    return known_of(open_state(settings).read(), settings.source.kind)
