"""Notes of an Iceberg warehouse about itself: properties of a small table beside the others.

A write is one small file, the table's metadata, and no data. A snapshot without files is a fence: what was looked up
before it cannot be written behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate

from cdc.process.crash_points import crash_point, declare
from sinks.contract.tries import unrepeated
from sinks.iceberg.iceberg_catalog import LakeCatalog
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
