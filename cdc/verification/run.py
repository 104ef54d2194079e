"""A verification of the stores beside the source, over its ports: compared and repaired as often as one likes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from cdc.freshness.rules import wait_until_shown, wait_until_spoken_for
from cdc.process.clock import Clock
from cdc.process.errors import ConfigError, DifferenceFound, SinkError
from cdc.record.position import Position
from cdc.record.progress import EpochsState
from cdc.record.state import SlotState, SnapshotState, TopicsState
from cdc.verification.passes import VerificationProgress, verify
from cdc.verification.ports import Cut, VerificationPorts
from cdc.verification.repair import Repaired, ViewRepair, repair
from cdc.verification.result import StoreVerdict, VerificationReport


class Verification:
    """Comparisons and repairs of some stores. ``timeout_s``: how long a store may take to reach a fence."""

    def __init__(
        self,
        known: KnownPipeline,
        ports: VerificationPorts,
        watch: VerificationProgress,
        clock: Clock,
        *,
        timeout_s: float,
    ) -> None:
        self._known = known
        self._ports = ports
        self._watch = watch
        self._clock = clock
        self._timeout_s = timeout_s
        self._behind: Mapping[str, str] = {}
        targets = {name: store.target for name, store in ports.stores.items()}
        self._views = (
            ViewRepair(ports.runners, ports.source, targets, ports.tables, clock, timeout_s=timeout_s)
            if ports.runners is not None
            else None
        )

    def compare(self) -> VerificationReport:
        """See :func:`cdc.verification.passes.verify`. Tables that are set aside are not compared. SinkError when a
        store does not reach the fence in time."""
        stores = self._ports.stores
        # A view that is not built yet or far behind is not waited for: what the tables show is known without it.
        self._behind = behind = _views_behind(self._ports)
        lacking = {**self._ports.lacking(), **behind}
        tables = {name: table for name, table in self._ports.tables.items() if str(name) not in lacking}
        report = verify(
            self._ports.source,
            {name: store.reader for name, store in stores.items()},
            {name: [tables[table] for table in store.tables if table in tables] for name, store in stores.items()},
            epoch=None if self._known.kind == "debezium" else self._known.epoch,
            reached=self._reached,
            clock=self._clock,
            watch=self._watch,
        )
        lacking = {**lacking, **self._ports.lacking()}
        verdicts = [one for one in report.verdicts if str(one.table) not in lacking]
        return replace(report, verdicts=verdicts, not_compared=lacking, left_out=self._ports.left_out)

    def repair(self, report: VerificationReport) -> list[Repaired]:
        """See :func:`cdc.verification.repair.repair`, and of views :meth:`ViewRepair.ask`. ConfigError where a repair
        cannot be right."""
        _require_repairable(self._ports, report)
        views = self._of_views(report)
        mine = [one for one in report.verdicts if one.table not in self._ports.stores[one.sink].views]
        done = self._views.ask(views) if self._views is not None and views else []
        return done + repair(
            self._ports.source,
            {name: store.target for name, store in self._ports.stores.items()},
            self._ports.tables,
            replace(report, verdicts=mine),
            epoch=self._known.epoch,
            clock=self._clock,
            lowest=self._lowest() if self._known.kind == "debezium" else None,
        )

    def _lowest(self) -> dict[tuple[str, str], str]:
        """Of each store and topic the place of the last record read from the partition that it has read least of."""
        found = {}
        for name, store in self._ports.stores.items():
            mark = store.watermarks.read()
            for topic, parts in (mark.offsets if mark is not None else {}).items():
                found[name, topic] = Position(0, min(parts.values(), default=0) << 3, 1).text()
        return found

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
        if self._views is not None and report.differences:
            judged = self._views.judge(self._of_views(report), self._known.epoch)
            done += judged
            if any(one.written or one.deleted for one in judged):
                report = self.compare()
        return report, done

    def _of_views(self, report: VerificationReport) -> list[StoreVerdict]:
        """The verdicts on views that differ."""
        views = {name: store.views for name, store in self._ports.stores.items()}
        return [one for one in report.verdicts if one.differing and one.table in views[one.sink]]

    def _reached(self, cut: Cut) -> None:
        try:
            for name, store in self._ports.stores.items():
                wait_until_shown(
                    name,
                    store.watermarks,
                    cut.fence,
                    epoch=self._known.epoch,
                    timeout_s=self._timeout_s,
                    clock=self._clock,
                )
                for topic in (topic for table, topic in store.views.items() if str(table) not in self._behind):
                    wait_until_spoken_for(name, store.watermarks, topic, timeout_s=self._timeout_s, clock=self._clock)
        except DifferenceFound as late:
            raise SinkError(f"no comparison: {late.message}", hint=late.hint) from None


def _views_behind(ports: VerificationPorts) -> dict[str, str]:
    """Views that a store's LSN does not speak for, and not for a moment only: each with the sentence about it."""
    found = {}
    for name, store in ports.stores.items():
        mark = store.watermarks.read() if store.views else None
        for table, topic in store.views.items():
            hold = mark.held.get(topic) if mark is not None else None
            if hold is not None and not hold.passing:
                found[str(table)] = hold.sentence(name)
    return found


def _require_repairable(ports: VerificationPorts, report: VerificationReport) -> None:
    differing = [one for one in report.verdicts if one.differing]
    views = [one for one in differing if one.table in ports.stores[one.sink].views]
    if views and len(views) == len(differing) and ports.runners is None:
        raise ConfigError(
            f"documents of {views[0].table} cannot be repaired one by one: they are computed from the log",
            hint=f"cdc rebuild {views[0].sink} fills the store anew from the view's topic",
        )
    for verdict in report.verdicts:
        if not ports.stores[verdict.sink].fills_lost_tables and verdict.differing and not verdict.store_rows:
            raise ConfigError(
                f"{verdict.sink} holds no row of {verdict.table} at all: that is not repaired row by row",
                hint=f"cdc rebuild {verdict.sink} fills it from the log",
            )


class KnownPipeline(NamedTuple):
    """``kind``: of the source, ``postgres`` or ``debezium``."""

    topics: TopicsState
    epoch: int
    kind: str


def known_of(documents: Mapping[bytes, bytes], kind: str) -> KnownPipeline:
    """The memory of a pipeline, by its state topic. ConfigError while the first snapshot is not complete."""
    topics, slot, snapshot = TopicsState.find(documents), SlotState.find(documents), SnapshotState.find(documents)
    if topics is not None and kind == "debezium":
        return KnownPipeline(topics, (EpochsState.find(documents) or EpochsState()).latest, kind)
    if topics is None or slot is None or snapshot is None:
        native = "cdc init, then cdc snapshot, then cdc run and cdc sink"
        hint = "cdc connect deploy, then cdc sink" if kind == "debezium" else native
        raise ConfigError("there is nothing to compare yet", hint=hint)
    if snapshot.state != "complete":
        raise ConfigError("the first snapshot is not complete", hint="cdc snapshot goes on where it stopped")
    return KnownPipeline(topics, slot.epoch, kind)
