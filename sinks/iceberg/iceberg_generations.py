"""The notes of an Iceberg warehouse, and its generations: filled in a namespace beside, then exchanged by names.

Notes are properties of a small table beside the others. A write of them is one small file, the table's metadata, and no
data. A snapshot without files is a fence: what was looked up before it cannot be written behind it. Readers know the
tables of one namespace. Those of a generation that is not in use have the same names in another one, and no row is
copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import SinkError
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.attempt_limits import unrepeated
from sinks.contract.generations import GENERATION, Generations, lower, number_in_use, said_in_use
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store_notes import WATERMARK, NotedWatermarks
from sinks.iceberg.iceberg_catalog import LakeCatalog, LakePlace, beside_namespace, table_name
from sinks.iceberg.iceberg_table import PROPERTIES

if TYPE_CHECKING:
    from pyiceberg.table import Table


declare("iceberg_note_written")

NOTES = "_watermark"
"""The table."""
_BEGIN = "cdc."
_SHAPE = pa.schema([("name", pa.string())])


class IcebergNotes:
    """The properties that begin with ``cdc.`` of the table ``_watermark``. Implements
    :class:`sinks.contract.store_notes.Notes`. ``namespace``: of another generation."""

    def __init__(self, catalog: LakeCatalog, namespace: str = "") -> None:
        self._catalog = catalog
        self._namespace = namespace or catalog.place.namespace
        self._known: tuple[Table | None, Mapping[str, bytes]] | None = None

    def read(self) -> Mapping[str, bytes]:
        table = self._catalog.load(self._namespace, NOTES)
        self._known = table, _notes(table)
        return self._known[1]

    def known(self) -> Mapping[str, bytes]:
        """As they were last read."""
        return self._known[1] if self._known is not None else self.read()

    def write(self, name: str, text: bytes) -> None:
        self.write_all({name: text})

    def write_all(self, some: Mapping[str, bytes], *, fence: bool = False) -> None:
        """:meth:`write` for several, in one commit. ``fence``: what others have read before is not written upon."""

        def write() -> None:
            table = self._catalog.load(self._namespace, NOTES) or self._make()
            with table.transaction() as change:
                change.set_properties(_properties(some))
                if fence:
                    change.update_snapshot().fast_append().commit()

        self._catalog.asked(write)
        self._known = None
        crash_point("iceberg_note_written")

    def write_upon(self, some: Mapping[str, bytes]) -> None:
        """:meth:`write_all`, unless another generation came into use since the notes were last read: StoreAway then."""
        if self._known is None:
            self.read()
        table = self._known[0] if self._known is not None else None
        if table is None:
            self.write_all(some)
            return
        current = table.metadata.current_snapshot_id
        same = (AssertTableUUID(uuid=table.metadata.table_uuid), AssertRefSnapshotId(ref="main", snapshot_id=current))

        def write() -> None:
            # By its own method the table would ask for less. This one removes older metadata, too.
            table._do_commit((SetPropertiesUpdate(updates=_properties(some)),), same)

        with unrepeated():
            self._catalog.asked(write)
        self._known = None
        crash_point("iceberg_note_written")

    def _make(self) -> Table:
        self._catalog.make_namespace(self._namespace)
        place = (self._namespace, NOTES)
        try:
            return self._catalog.opened.create_table(place, _SHAPE, properties=PROPERTIES)
        except TableAlreadyExistsError:
            return self._catalog.opened.load_table(place)


def _notes(table: Table | None) -> Mapping[str, bytes]:
    found = table.properties.items() if table is not None else ()
    return {name.removeprefix(_BEGIN): text.encode() for name, text in found if name.startswith(_BEGIN)}


def _properties(notes: Mapping[str, bytes]) -> dict[str, str]:
    return {f"{_BEGIN}{name}": text.decode() for name, text in notes.items()}


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
