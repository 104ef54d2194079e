"""A verification of the stores beside the source, over its ports: compared and repaired as often as one likes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cdc.clock import Clock
from cdc.cuts import Cut
from cdc.errors import ConfigError, DifferenceFound, SinkError
from cdc.freshness.rules import wait_until_read, wait_until_shown
from cdc.progress import Offsets
from cdc.verification.known_pipeline import KnownPipeline
from cdc.verification.passes import Watch, verify
from cdc.verification.ports import VerificationPorts
from cdc.verification.repair import Repaired, repair
from cdc.verification.result import VerificationReport


class Verification:
    """Comparisons and repairs of some stores. ``timeout_s``: how long a store may take to reach a fence."""

    def __init__(
        self, known: KnownPipeline, ports: VerificationPorts, watch: Watch, clock: Clock, *, timeout_s: float
    ) -> None:
        self._known = known
        self._ports = ports
        self._watch = watch
        self._clock = clock
        self._timeout_s = timeout_s

    def compare(self) -> VerificationReport:
        """See :func:`cdc.verification.passes.verify`. Tables that are set aside are not compared. SinkError when a
        store does not reach the fence in time."""
        stores, lacking = self._ports.stores, self._ports.lacking()
        tables = {name: table for name, table in self._ports.tables.items() if str(name) not in lacking}
        report = verify(
            self._ports.source,
            {name: store.reader for name, store in stores.items()},
            {name: [tables[table] for table in store.tables if table in tables] for name, store in stores.items()},
            epoch=self._known.epoch,
            reached=self._reached,
            clock=self._clock,
            watch=self._watch,
        )
        lacking = {**lacking, **self._ports.lacking()}
        verdicts = [one for one in report.verdicts if str(one.table) not in lacking]
        return replace(report, verdicts=verdicts, not_compared=lacking)

    def repair(self, report: VerificationReport) -> list[Repaired]:
        """See :func:`cdc.verification.repair.repair`. ConfigError where a repair cannot be right."""
        _require_repairable(self._known, self._ports, report)
        return repair(
            self._ports.source,
            {name: store.target for name, store in self._ports.stores.items()},
            self._ports.tables,
            report,
            epoch=self._known.epoch,
            clock=self._clock,
        )

    def repair_all(self, show: Callable[[VerificationReport], None]) -> tuple[VerificationReport, list[Repaired]]:
        """Compare and repair until nothing differs, or a repair no longer makes it fewer: the last report, and what was
        done. ``show`` is given each report that is repaired."""
        done: list[Repaired] = []
        report = self.compare()
        left = report.differences + 1
        # More than one repair takes is left for the next.
        while 0 < report.differences < left:
            left = report.differences
            show(report)
            done += self.repair(report)
            report = self.compare()
        return report, done

    def _reached(self, cut: Cut) -> None:
        try:
            if self._ports.passed is not None:
                self._until_read(self._ports.passed(cut, self._timeout_s))
                return
            for name, store in self._ports.stores.items():
                wait_until_shown(
                    name,
                    store.watermarks,
                    cut.fence,
                    epoch=self._known.epoch,
                    timeout_s=self._timeout_s,
                    clock=self._clock,
                )
        except DifferenceFound as late:
            raise SinkError(f"no comparison: {late.message}", hint=late.hint) from None

    def _until_read(self, ends: Offsets) -> None:
        for name, store in self._ports.stores.items():
            topics = {self._known.topics.tables[str(table)] for table in store.tables}
            wanted = {topic: parts for topic, parts in ends.items() if topic in topics}
            wait_until_read(name, store.watermarks, wanted, timeout_s=self._timeout_s, clock=self._clock)


def _require_repairable(known: KnownPipeline, ports: VerificationPorts, report: VerificationReport) -> None:
    if ports.passed is not None:
        raise ConfigError(
            "a store fed from MySQL's or MariaDB's topics is compared and not repaired: a row written anew would lose "
            "its columns that cannot be compared",
            hint="cdc connect signal snapshot TABLE brings its rows anew; where rows are extra, "
            "cdc connect offsets --reset and a new snapshot remove them",
        )
    if known.kind == "debezium":
        raise ConfigError(
            "a store fed from Debezium's topics cannot be repaired: their positions lie below their commits",
            hint="cdc connect signal asks Debezium for an incremental snapshot, which repairs it",
        )
    for verdict in report.verdicts:
        if not ports.stores[verdict.sink].fills_lost_tables and verdict.differing and not verdict.store_rows:
            raise ConfigError(
                f"{verdict.sink} holds no row of {verdict.table} at all: that is not repaired row by row",
                hint=f"cdc rebuild {verdict.sink} fills it from the log",
            )
