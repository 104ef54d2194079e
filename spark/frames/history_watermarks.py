"""A batch of events that are joined with a history ends where the history's store shows all that the batch may ask for:
then its answer is the same whenever it is computed. No Spark."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from cdc.process.errors import SinkError
from cdc.record.documents import dumped
from cdc.record.position import Lsn, Position
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.history_rows import history_shape
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import SinkSpec, open_sink
from sinks.contract.table_places import TablePlace
from spark.frames.event_cuts import EventCut

STILL_S = 60.0
"""For how long the watermark of a store that is waited for may stand still."""
WAITS = "and events wait for it at"
"""Words of the error that says so, which comes back through Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptHistory:
    """A history in a store. ``shape``: its table's newest, from the log. ``spec``: without its secrets."""

    sink: str
    spec: SinkSpec
    shape: TableSchema

    @property
    def kept(self) -> TableSchema:
        """The shape of the table that keeps it."""
        return history_shape(self.shape)

    def option(self) -> str:
        """As an option of a read: Spark shows options, so secrets are in it by reference alone."""
        spec = self.spec
        plain = {name: getattr(spec, name) for name in ("kind", "opener", "prefix", "options", "references")}
        return dumped({"sink": self.sink, "spec": plain, "shape": self.shape.to_json().decode()}).decode()

    @classmethod
    def read(cls, option: str) -> KeptHistory:
        """Read :meth:`option` back."""
        found = orjson.loads(option)
        shape = TableSchema.from_json(found["shape"].encode())
        return cls(sink=found["sink"], spec=SinkSpec(**found["spec"]), shape=shape)


def shown_up_to(mark: Watermark | None, place: TablePlace | None, topic: str) -> str:
    """Below which position, as text, a store shows all of a history. Empty where it shows none. ``place``: of the table
    that keeps it, which may have been taken away, or back."""
    offsets = mark.offsets.get(topic) if mark is not None else None
    if mark is None or not offsets or topic in mark.held:
        return ""
    here = place.offsets if place is not None else {}
    if any(here.get(partition, 0) < offset for partition, offset in offsets.items()):
        return ""
    return Position(mark.epoch, mark.lsn, 0).text()


class HistoryWatermark:
    """Up to where a store shows a history, asked again and again."""

    def __init__(self, history: KeptHistory) -> None:
        self._history = history
        self._cuts = HeldCuts(history)
        self._store: OpenSink | None = None

    def given(self, newest: EventCut, reached: EventCut, now_s: float) -> EventCut:
        """As :meth:`HeldCuts.given`."""
        return self._cuts.given(newest, reached, self.shown(), now_s)

    def require(self, highest: str) -> None:
        """SinkError where events up to a position cannot be joined yet."""
        shown = self.shown()
        if highest > shown:
            raise behind(self._history, shown, highest)

    def shown(self) -> str:
        """As :func:`shown_up_to`. Empty for a store that does not answer."""
        kept = self._history.kept
        try:
            if self._store is None:
                self._store = open_sink(self._history.spec.renewed())
            return shown_up_to(self._store.watermarks.read(), self._store.places.read(kept), kept.topic)
        except SinkError:
            self.close()
            return ""

    def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()
            self._store = None


class HeldCuts:
    """Where a batch may end: a cut is held until the watermark is at it, though newer ones come meanwhile. Pure."""

    def __init__(self, history: KeptHistory) -> None:
        self._history = history
        self._held: EventCut | None = None
        self._still: tuple[str, float] | None = None

    def given(self, newest: EventCut, reached: EventCut, shown: str, now_s: float) -> EventCut:
        """The newest cut that is shown of those that were heard of, ``reached`` where none is. SinkError once the
        watermark has stood still below for STILL_S. ``shown``: the watermark, as :func:`shown_up_to`."""
        for cut in (newest, self._held):
            if cut is not None and cut.highest <= shown:
                self._held, self._still = None if cut is newest else newest, None
                return cut
        self._held = self._held or newest
        if self._still is None or self._still[0] != shown:
            self._still = shown, now_s
        if now_s - self._still[1] >= STILL_S:
            raise behind(self._history, shown, self._held.highest)
        return reached


def behind(history: KeptHistory, shown: str, highest: str) -> SinkError:
    """Why a batch cannot be computed yet."""
    sink, table = history.sink, history.kept.table
    at = f"shows {table} up to {_lsn(shown)}" if shown else f"does not show {table} yet"
    return SinkError(
        f"the store of {sink} {at}, {WAITS} {_lsn(highest)}",
        hint=f"cdc sink {sink} brings it there, and cdc status {sink} says how far it is",
    )


def _lsn(position: str) -> Lsn:
    return Lsn(Position.parse(position).commit_lsn)
