"""Puts ``cdc verify`` together: the source's cuts, the stores' readers, the wait between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, NamedTuple, Self

from cdc.clock import SYSTEM_CLOCK
from cdc.epochs import EpochsState
from cdc.errors import ConfigError, Difference, SinkError
from cdc.freshness import wait_until_shown
from cdc.settings import Settings
from cdc.state import SlotState, SnapshotState, TopicsState
from cdc.topic import TableName
from cdc.verification.result import Report
from cdc.wiring import open_schemas, open_source, open_state, require_broker
from cdc.wiring.stores import open_store, sink_settings, tables_of

if TYPE_CHECKING:
    from cdc.cuts import Cut, VerifiedTable
    from cdc.verification.repair import Repaired
    from cdc.verification.rounds import Watch
    from connectors.postgres.cut import SourceCut
    from sinks.port import OpenSink


class Known(NamedTuple):
    """What the pipeline's memory says; every part of it is needed to compare."""

    topics: TopicsState
    epoch: int


class Verification:
    """The stores beside the source, opened: to be compared, and repaired, as often as one likes.

    SinkError when a store does not reach the fence of a comparison in ``timeout_s``.
    """

    def __init__(self, settings: Settings, sinks: Sequence[str], *, timeout_s: float, watch: Watch) -> None:
        for name in sinks:
            sink_settings(name, settings)
        self._settings = settings
        self._timeout_s = timeout_s
        self._watch = watch
        self._open = ExitStack()
        require_broker(settings)
        self._known = read_known(settings)
        # As one of several writers: the application that feeds a store goes on while it is repaired.
        self._stores = {name: open_store(name, settings, parallel=True) for name in sinks}
        for store in self._stores.values():
            self._open.callback(store.close)
        self._source = self._open.enter_context(closing(open_cut(settings)))
        self._tables = verified_tables(settings, self._known, self._source)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def compare(self) -> Report:
        """See :func:`cdc.verification.rounds.verify`."""
        from cdc.verification.rounds import verify

        tables, settings = self._tables, self._settings
        return verify(
            self._source,
            {name: store.reader for name, store in self._stores.items()},
            {name: [tables[t] for t in tables_of(name, settings, sorted(tables))] for name in self._stores},
            epoch=self._known.epoch,
            reached=lambda cut: _reached(self._stores, cut, self._known.epoch, self._timeout_s),
            clock=SYSTEM_CLOCK,
            watch=self._watch,
        )

    def repair(self, report: Report) -> list[Repaired]:
        """See :func:`cdc.verification.repair.repair`. ConfigError where a repair cannot be right."""
        from cdc.verification.repair import repair
        from sinks.mend import Mending

        if self._settings.source.kind == "debezium":
            raise ConfigError(
                "a store fed from Debezium's topics cannot be repaired: their positions lie below their commits",
                hint="cdc connect signal asks Debezium for an incremental snapshot, which repairs it",
            )
        for verdict in report.verdicts:
            delta = self._settings.sinks[verdict.sink].kind == "delta"
            if delta and verdict.differing and not verdict.store_rows:
                raise ConfigError(
                    f"{verdict.sink} holds no row of {verdict.table} at all: that is not repaired row by row",
                    hint=f"cdc rebuild {verdict.sink} fills it from the log",
                )
        targets = {name: Mending(store) for name, store in self._stores.items()}
        return repair(self._source, targets, self._tables, report, epoch=self._known.epoch, clock=SYSTEM_CLOCK)


def read_known(settings: Settings) -> Known:
    """The pipeline's memory. ConfigError while the first snapshot is not complete."""
    held = open_state(settings).read()
    topics, slot, snapshot = TopicsState.find(held), SlotState.find(held), SnapshotState.find(held)
    if topics is not None and settings.source.kind == "debezium":
        return Known(topics, (EpochsState.find(held) or EpochsState()).latest)
    if topics is None or slot is None or snapshot is None:
        raise ConfigError(
            "there is nothing to compare yet", hint="cdc init, then cdc snapshot, then cdc run and cdc sink"
        )
    if snapshot.state != "complete":
        raise ConfigError("the first snapshot is not complete", hint="cdc snapshot goes on where it stopped")
    return Known(topics, slot.epoch)


def open_cut(settings: Settings) -> SourceCut:
    """The source's reader, on two sessions of its own."""
    from connectors.postgres.cut import SourceCut

    return SourceCut(
        lambda autocommit: open_source(settings, application_name="cdc verify", autocommit=autocommit),
        settings.publication,
        SYSTEM_CLOCK,
    )


def verified_tables(settings: Settings, known: Known, source: SourceCut) -> Mapping[TableName, VerifiedTable]:
    """The captured tables by name, each in its shape now and in the one the log knows."""
    from cdc.cuts import VerifiedTable
    from connectors.postgres.catalog import resolve_tables, table_schema

    schemas = open_schemas(settings)
    tables: dict[TableName, VerifiedTable] = {}
    with closing(open_source(settings, application_name="cdc verify")) as connection:
        for table in resolve_tables(connection, settings):
            if str(table.table) not in known.topics.tables:
                continue
            shape = table_schema(
                connection, table.oid, topic=table.topic, encoding="readable", publication=settings.publication
            )
            tables[table.table] = VerifiedTable(
                shape=shape,
                stored=schemas.latest(table.table) or shape,
                rows=source.estimate(table.oid),
                partitioned=table.partitioned,
            )
    return tables


def _reached(stores: Mapping[str, OpenSink], cut: Cut, epoch: int, timeout_s: float) -> None:
    for name, store in stores.items():
        try:
            wait_until_shown(name, store.watermarks, cut.fence, epoch=epoch, timeout_s=timeout_s)
        except Difference as late:
            raise SinkError(f"no comparison: {late.message}", hint=late.hint) from None
