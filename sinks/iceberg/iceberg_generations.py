"""Generations of an Iceberg warehouse: filled in a namespace beside, then exchanged by names. No row is copied.

Readers know the tables of one namespace. Those of a generation that is not in use have the same names in another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import SinkError
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.generations import GENERATION, Generations, lower, number_in_use, said_in_use
from sinks.contract.registry import SinkSpec
from sinks.contract.store_notes import WATERMARK, NotedWatermarks
from sinks.iceberg.iceberg_catalog import LakeCatalog, LakePlace, beside_namespace
from sinks.iceberg.iceberg_notes import NOTES, IcebergNotes
from sinks.iceberg.iceberg_store import table_name

declare("iceberg_tables_moved")

_FROM = "generation_from"
"""The generation that was in use before a switch that is under way."""
_OF_A_PLACE = (GENERATION, _FROM)
"""Notes that speak of the place where they stand, and not of what it holds."""


def open_generations(spec: SinkSpec, clock: Clock) -> Generations:
    """Nothing is connected to before it is used."""
    return _IcebergGenerations(spec, clock)


class _IcebergGenerations:
    def __init__(self, spec: SinkSpec, clock: Clock) -> None:
        self._base = LakePlace.of(spec)
        self._catalog = LakeCatalog(self._base, clock)
        self._notes = IcebergNotes(self._catalog)

    def in_use(self) -> int:
        return number_in_use(self._notes)

    def keep(self, number: int, shapes: Sequence[TableSchema]) -> None:
        """The switch itself keeps what was in use: its tables go to a namespace of their own."""

    def switch(self, number: int, shapes: Sequence[TableSchema]) -> None:
        said = said_in_use(self._notes)
        if said == number:
            return
        filled = self._notes_of(number)
        found = filled.read()
        if WATERMARK not in found:
            raise SinkError(
                f"there is no generation {number} of the warehouse in {self._base.namespace}",
                hint="cdc rebuild makes one",
            )
        before = self._begin(number, found, under_way=said == -number)
        self._exchange(number, before, shapes)
        self._notes.write_all({WATERMARK: found[WATERMARK], GENERATION: b"%d" % number}, fence=True)

    def _begin(self, number: int, found: Mapping[str, bytes], *, under_way: bool) -> int:
        """Note that the switch has begun. The number of the generation that is in use until then."""
        now = dict(self._notes.read())
        if under_way:
            return int(now[_FROM])
        before = number_in_use(self._notes)
        kept = {name: text for name, text in now.items() if name not in _OF_A_PLACE}
        self._notes_of(before).write_all(kept)
        # While the tables change no more is claimed than is true of the old and of the new ones. The sink that runs
        # sees the generation change, twice, and goes on from what stands here then.
        known = NotedWatermarks(self._notes).read()
        claim = lower(Watermark.from_json(found[WATERMARK]), known)
        notes = {name: text for name, text in found.items() if name not in _OF_A_PLACE}
        said = {WATERMARK: claim.to_json(), GENERATION: b"-%d" % number, _FROM: b"%d" % before}
        self._notes.write_all({**notes, **said}, fence=True)
        return before

    def _exchange(self, number: int, before: int, shapes: Sequence[TableSchema]) -> None:
        base, filled, kept = self._base.namespace, self._namespace(number), self._namespace(before)
        there, new, old = (self._catalog.names(one) for one in (base, filled, kept))
        names = sorted({table_name(shape.table) for shape in shapes} & new)
        self._catalog.make_namespace(kept)
        # One that the sink made anew while a switch was cut short between two names of a REST catalog.
        self._catalog.drop(base, [name for name in names if name in there and name in old])
        away = [((base, name), (kept, name)) for name in names if name in there and name not in old]
        here = [((filled, name), (base, name)) for name in names]
        self._catalog.move([*away, *here])
        crash_point("iceberg_tables_moved")

    def discard(self, number: int, shapes: Sequence[TableSchema]) -> None:
        namespace = self._namespace(number)
        self._catalog.drop(namespace, [*sorted({table_name(shape.table) for shape in shapes}), NOTES])
        self._catalog.drop_namespace(namespace)

    def close(self) -> None:
        self._catalog.close()

    def _namespace(self, number: int) -> str:
        return beside_namespace(self._base.namespace, number)

    def _notes_of(self, number: int) -> IcebergNotes:
        return IcebergNotes(self._catalog, self._namespace(number))
