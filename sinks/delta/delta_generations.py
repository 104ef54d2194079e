"""Generations of a Delta warehouse: filled in a folder below its root, then put in the place of the tables' rows."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import deltalake

from cdc.process.clock import Clock
from cdc.process.errors import SinkError
from cdc.record.documents import dumped
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.generations import GENERATION, Generations, is_said, lower, number_in_use
from sinks.contract.registry import SinkSpec
from sinks.contract.store_notes import WATERMARK, NotedWatermarks
from sinks.delta.delta_faults import Storage
from sinks.delta.delta_kind import EMBEDDED, ENGINE, generation_folder
from sinks.delta.delta_notes import DeltaNotes
from sinks.delta.delta_store import table_path
from sinks.delta.delta_table import Delta


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
