"""The batches of a view on an exchange: which steps follow each other, over which versions of the state's files.

The driver learns of each what was written and what is to be known. It sees no row and no document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from cdc.json_bytes import dumped
from cdc.topic import TableName
from cdc.views.fences import Fence
from cdc.views.row_changes import RowChange
from cdc.wire.records import Span
from spark.views.bucket_files import PENDING, PUBLISHED, WAITING, FileChange
from spark.views.cut_steps import ApplyCut, PatchCopies, ReadCut, sorted_changes
from spark.views.document_steps import LookDown, MakeDocuments, TakeRoots
from spark.views.exchange import ASIDE, ASKS, CHANGES, CONTROL, KEYS, NEW, OLD, PATCHES, ROWS, Exchange, Parcel
from spark.views.view_parts import Files, ShippedView
from spark.views.walk_steps import KeepKeys, WalkUp, key_of


@dataclass(slots=True)
class BatchReport:
    """The words of tasks to the driver. ``said``: the members of each kind of word."""

    changes: list[FileChange] = field(default_factory=list)
    read_bytes: int = 0
    written_bytes: int = 0
    said: dict[str, list[list[Any]]] = field(default_factory=dict)

    def note(self, parcels: Iterable[Parcel]) -> None:
        """Take in what tasks told."""
        for one in parcels:
            what, *members = orjson.loads(one.payload)
            if what == "files":
                self.changes += [FileChange(*change) for change in members[0]]
                self.read_bytes += members[1]
                self.written_bytes += members[2]
            elif what == "read":
                self.read_bytes += members[0]
            else:
                self.said.setdefault(what, []).append(members)

    def all(self, what: str) -> list[list[Any]]:
        """The words of a kind."""
        return self.said.get(what, [])


@dataclass(frozen=True, slots=True, kw_only=True)
class CutBatch:
    """The parameters of a cut's steps. ``floors``: positions below which all rows of a table are gone. ``whole``:
    whether it is loaded without asking which documents it concerns."""

    turn: int
    fence: Fence
    below: Fence
    floors: Mapping[TableName, str]
    whole: bool


class ViewBatches:
    """See the module. ``shipped``: the view."""

    def __init__(self, shipped: ShippedView, exchange: Exchange) -> None:
        self._shipped = shipped
        self._parts = shipped.parts()
        self._exchange = exchange

    def read(self, spans: Sequence[Span], step: ReadCut) -> tuple[Any, BatchReport]:
        """The changes of a cut as a flow, and what its tasks told."""
        self._exchange.expect(sum(span.most_records for span in spans))
        begun = self._exchange.begin([Parcel(number, ROWS, dumped([list(span)])) for number, span in enumerate(spans)])
        flow = self._exchange.through(begun, step, [ROWS])
        return flow, self._report([flow])

    def apply(
        self, flow: Any, batch: CutBatch, files: Files, put_aside: Sequence[RowChange]
    ) -> tuple[list[Any], BatchReport]:
        """Bring changes into the state. ``files``: of the state before. Returns flows for :meth:`keys`."""
        layout = self._parts.layout
        touched = {*files.get(WAITING.table, {})}
        for table in batch.floors:
            touched |= {*layout.places(layout.primary(table))}
        more = [Parcel(place, CHANGES, b"[]") for place in sorted(touched)]
        more += list(sorted_changes(self._parts, put_aside, ASIDE))
        step = ApplyCut(self._shipped, files, batch.turn, batch.fence, batch.below, batch.floors, walks=not batch.whole)
        every = self._exchange.joined([flow, self._exchange.begin(more)], [CHANGES, ASIDE])
        applied = self._exchange.through(every, step, [CHANGES, ASIDE])
        patched = self._exchange.through(applied, PatchCopies(self._shipped, files, batch.turn), [PATCHES])
        return [applied], self._report([applied, patched])

    def keys(self, flows: Sequence[Any], turn: int, before: Files, after: Files) -> BatchReport:
        """Walk from replaced rows to the documents that they concern: the old ones over the state before, the new ones
        over the state behind (V3, V9). Their keys are kept."""
        found = list(flows)
        for tag, files in ((OLD, before), (NEW, after)):
            walking = self._exchange.joined(flows, [tag])
            for _ in range(self._parts.walks.depth):
                walking = self._exchange.through(walking, WalkUp(self._shipped, files, tag), [tag])
                found.append(walking)
        kept = self._exchange.through(
            self._exchange.joined(found, [KEYS]), KeepKeys(self._shipped, after, turn), [KEYS]
        )
        return self._report([*found[len(flows) :], kept])

    def keep(self, names: Iterable[str], turn: int, files: Files, *, published: bool, waits: bool) -> BatchReport:
        """Keep keys that the driver knows. See :class:`spark.views.walk_steps.KeepKeys`."""
        begun = self._exchange.begin([*self._parts.root_keys(key_of(name) for name in names)])
        step = KeepKeys(self._shipped, files, turn, published=published, waits=waits)
        return self._report([self._exchange.through(begun, step, [KEYS])])

    def stage(self, files: Files, make: MakeDocuments, count: int, *, whole: bool) -> BatchReport:
        """Make the documents that are due, about ``count``. ``files``: of the state. ``whole``: all of them."""
        self._exchange.expect(count)
        shipped, layout = self._shipped, self._parts.layout
        places = {*layout.places(layout.root)} if whole else set()
        for bucket in files.get(PENDING.table, {}):
            places.add(layout.root.number * shipped.buckets + bucket)
        more = list(self._parts.root_keys(key_of(name) for name in make.parked)) if whole else []
        begun = self._exchange.begin([*(Parcel(place, KEYS, b"[]") for place in sorted(places)), *more])
        taken = self._exchange.through(begun, TakeRoots(shipped, files, make.shares, whole), [KEYS])
        found = [taken]
        looking = taken
        for _ in range(self._parts.walks.depth):
            looking = self._exchange.through(looking, LookDown(shipped, files), [ASKS])
            found.append(looking)
        made = self._exchange.through(self._exchange.joined(found, [KEYS, ROWS]), make, [KEYS, ROWS])
        return self._report([*found, made])

    def forget(self) -> None:
        """The flows of the batch are of no use any more."""
        self._exchange.forget()

    def _report(self, flows: Sequence[Any]) -> BatchReport:
        report = BatchReport()
        report.note(self._exchange.collect(self._exchange.joined(flows, [CONTROL])))
        return report


STATE_TABLES = (PUBLISHED, PENDING, WAITING)
