"""What a Delta warehouse notes about itself, in a small table beside the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson
import pyarrow as pa

from cdc.clock import Clock
from cdc.stored import reading
from sinks.delta.delta_table import Delta, Storage
from sinks.tries import unrepeated

VERSIONS = "versions"


class DeltaNotes:
    """The Delta table ``<root>/_watermark``: a name and a JSON text each. Implements :class:`sinks.notes.Notes`."""

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
        rows = self._table.dataset().to_table(["name", "text"]).to_pylist()
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
        self._table.replace(lambda: _noted(notes()))
        self._known = None
        self._table.tidy()


def noted_versions(notes: DeltaNotes) -> dict[str, int]:
    """Path -> version of each table, as noted with the watermark."""
    return versions_in(notes.read())


def _noted(notes: Mapping[str, bytes]) -> pa.Table:
    return pa.table({"name": list(notes), "text": [note.decode() for note in notes.values()]})


def versions_in(notes: Mapping[str, bytes]) -> dict[str, int]:
    """The same of notes that were read."""
    text = notes.get(VERSIONS, b"{}")
    with reading("what the warehouse has noted of its tables' versions"):
        return {str(path): int(version) for path, version in orjson.loads(text).items()}
