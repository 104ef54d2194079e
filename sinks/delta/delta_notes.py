"""The notes of a Delta warehouse: a Delta table of names and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from cdc.process.clock import Clock
from cdc.record.progress import Watermark
from sinks.contract.store_notes import WATERMARK, NotedWatermarks
from sinks.contract.tries import unrepeated
from sinks.delta.delta_faults import Storage
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
