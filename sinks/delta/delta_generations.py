"""The notes of a Delta warehouse, a Delta table of names and texts, and its generations: filled in a folder below its
root, then put in the place of the tables' rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import deltalake
import pyarrow as pa

from cdc.process.clock import Clock
from cdc.process.errors import SinkError
from cdc.record.documents import dumped
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.attempt_limits import unrepeated
from sinks.contract.generations import GENERATION, Generations, is_said, lower, number_in_use
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store_notes import WATERMARK, NotedWatermarks
from sinks.delta.delta_kind import EMBEDDED, ENGINE, generation_folder
from sinks.delta.delta_storage import Storage, table_path
from sinks.delta.delta_table import Delta


class DeltaNotes:
    """The Delta table ``<root>/_watermark``: a name and a JSON text each. Implements
    :class:`sinks.contract.store_notes.Notes`."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._table = Delta(storage, "_watermark", clock, versions_kept="1 minutes")
        self._known: Mapping[str, bytes] | None = None

    def read(self) -> Mapping[str, bytes]:
        self._known = self._read()
        return self._known

    def _read(self) -> Mapping[str, bytes]:
        if not self._table.refresh():
            return {}
        # The file itself, also at a version that was read before: a folder that was put back has such versions, too.
        rows = self._table.columns(["name", "text"]).to_pylist()
        return {row["name"]: row["text"].encode() for row in rows}

    def known(self) -> Mapping[str, bytes]:
        """As they were last read."""
        return self._known if self._known is not None else self.read()

    def write(self, name: str, text: bytes) -> None:
        self.write_all({name: text})

    def write_all(self, some: Mapping[str, bytes]) -> None:
        """:meth:`write` for several, in one commit, beside what others have written by then."""
        self._write(lambda: {**self._read(), **some})

    def write_upon(self, some: Mapping[str, bytes]) -> None:
        """:meth:`write_all`, unless somebody has written since the notes were last read: StoreAway then."""
        with unrepeated():
            self._write(lambda: {**self.known(), **some})

    def _write(self, notes: Callable[[], Mapping[str, bytes]]) -> None:
        self._table.replace(lambda: _rows(notes()))
        self._known = None
        self._table.tidy()


class DeltaWatermarks(NotedWatermarks):
    """The watermark of a warehouse, written upon the notes that were read. ``unnoted``: what is to be noted of the
    engine beside these."""

    def __init__(self, notes: DeltaNotes, unnoted: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]) -> None:
        super().__init__(notes)
        self._own = notes
        self._unnoted = unnoted

    def write(self, watermark: Watermark) -> None:
        # On what was found when the store's place was checked: cdc rebuild may have written since.
        self._own.write_upon({**self._unnoted(self._own.known()), WATERMARK: watermark.to_json()})


def _rows(notes: Mapping[str, bytes]) -> pa.Table:
    return pa.table({"name": list(notes), "text": [note.decode() for note in notes.values()]})


def open_generations(spec: SinkSpec, clock: Clock) -> Generations:
    """Nothing is connected to before it is used."""
    return _DeltaGenerations(spec, clock)


class _DeltaGenerations:
    def __init__(self, spec: SinkSpec, clock: Clock) -> None:
        self._spec = spec
        self._clock = clock
        self._base = Storage.of(spec)
        self._notes = DeltaNotes(self._base, clock)

    def in_use(self) -> int:
        return number_in_use(self._notes)

    def keep(self, number: int, shapes: Sequence[TableSchema]) -> None:
        place = self._place(number)
        # The notes first: what they claim must not be more than the tables hold.
        DeltaNotes(place, self._clock).write_all(_of_content(self._notes.read()))
        self._copy_tables(self._base, place, shapes)

    def switch(self, number: int, shapes: Sequence[TableSchema]) -> None:
        place = self._place(number)
        notes = _of_content(DeltaNotes(place, self._clock).read())
        if WATERMARK not in notes:
            raise SinkError(f"there is no generation {number} of {self._base.root}", hint="cdc rebuild makes one")
        used = self._notes.read()
        if is_said(used, number):
            return
        if ENGINE in used:
            notes = {ENGINE: dumped(EMBEDDED), **notes}
        found = NotedWatermarks(self._notes).read()
        goal = Watermark.from_json(notes[WATERMARK])
        # While the tables change one by one no more is claimed than is true of the old and of the new ones. The sink
        # that runs sees the generation change, twice, and goes on from what stands here then.
        before = lower(goal, found)
        self._notes.write_all({**notes, WATERMARK: before.to_json(), GENERATION: b"-%d" % number})
        self._copy_tables(place, self._base, shapes)
        self._notes.write_all({WATERMARK: goal.to_json(), GENERATION: b"%d" % number})

    def discard(self, number: int, shapes: Sequence[TableSchema]) -> None:
        place = self._place(number)
        if place.local:
            shutil.rmtree(place.root, ignore_errors=True)
            return
        for path in {"_watermark", *(table_path(shape) for shape in shapes)}:
            table = Delta(place, path, self._clock)
            if table.exists():
                opened = deltalake.DeltaTable(table.path, storage_options=dict(place.options) or None)
                opened.delete()
                opened.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    def close(self) -> None:
        """Nothing is open."""

    def _place(self, number: int) -> Storage:
        return Storage.of(generation_folder(self._spec, number))

    def _copy_tables(self, source: Storage, target: Storage, shapes: Sequence[TableSchema]) -> None:
        for path in sorted({table_path(shape) for shape in shapes}):
            earlier = Delta(source, path, self._clock)
            if earlier.exists():
                if target.local:
                    Path(target.root, path).mkdir(parents=True, exist_ok=True)
                taken = Delta(target, path, self._clock)
                taken.take(earlier)
                # Another engine may have written the table before.
                taken.set_vectors(wanted=earlier.writes_vectors)


def _of_content(notes: Mapping[str, bytes]) -> dict[str, bytes]:
    """The notes that speak of what a place holds, and not of the place."""
    return {name: text for name, text in notes.items() if name != GENERATION}
