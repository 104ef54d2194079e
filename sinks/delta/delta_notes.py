"""The notes of a Delta warehouse: a Delta table of names and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import orjson
import pyarrow as pa

from cdc.clock import Clock
from cdc.json_bytes import dumped
from cdc.progress import Watermark
from cdc.schema import TableSchema
from cdc.stored import reading
from sinks.delta.delta_storage import Storage
from sinks.delta.delta_table import Delta
from sinks.notes import WATERMARK, Notes, PlacedWatermarks, TableIds
from sinks.tries import unrepeated

VERSIONS = "versions"
COMMITS = "commits"


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


class UsedTables(Protocol):
    """The tables that a sink has used."""

    def check(self) -> None:
        """PlaceMissing when one is gone, or an older copy of it is in its place."""

    def versions(self) -> dict[str, int]:
        """Path -> version of each."""

    def commits(self) -> dict[str, tuple[int, str]]:
        """Path -> that version, and what tells its commit from another one, where that is known."""


class DeltaWatermarks(PlacedWatermarks):
    """The watermark with the version of each table that it speaks of, in one commit. ``unnoted``:
    what is to be noted of the engine beside notes that were read."""

    def __init__(
        self, notes: DeltaNotes, tables: UsedTables, unnoted: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
    ) -> None:
        super().__init__(notes, tables.check)
        self._own = notes
        self._unnoted = unnoted
        self._tables = tables

    def write(self, watermark: Watermark) -> None:
        known = self._own.known()
        versions = {**versions_in(known), **self._tables.versions()}
        commits = {**commits_in(known), **self._tables.commits()}
        beside = {COMMITS: dumped(commits)} if commits else {}
        # On what was found when the store's place was checked: cdc rebuild may have written since.
        mark = {WATERMARK: watermark.to_json(), VERSIONS: dumped(versions), **beside}
        self._own.write_upon({**self._unnoted(known), **mark})


class NotedVersions:
    """The version of each table, as it was noted with the last watermark."""

    def __init__(self, notes: Notes) -> None:
        found = notes.read()
        self._by_path = versions_in(found)
        self._commits = commits_in(found)

    def of(self, path: str) -> int:
        """Of a table. -1 where nothing is known."""
        return self._by_path.get(path, -1)

    def commit_of(self, path: str, version: int) -> str:
        """Of a table at that version. Empty where nothing is known."""
        noted, commit = self._commits.get(path, (-1, ""))
        return commit if noted == version else ""


def is_older_copy(table: Delta, schema: TableSchema, noted: NotedVersions, ids: TableIds, path: str) -> bool:
    """Whether a table is older than the one that was noted with the last watermark: by its version, because somebody
    restored an older one since, because it is from before a removal, or because others
    have written to an older copy since, or to another line of it."""
    version = noted.of(path)
    older = table.version < version or (version >= 0 and table.restored_since(version))
    commit = noted.commit_of(path, version)
    older = older or (bool(commit) and table.commit(version) not in ("", commit))
    return older or ids.is_other(schema.table, table.identity())


def _rows(notes: Mapping[str, bytes]) -> pa.Table:
    return pa.table({"name": list(notes), "text": [note.decode() for note in notes.values()]})


def versions_in(notes: Mapping[str, bytes]) -> dict[str, int]:
    """Path -> the version of its table, as it was noted last. DamagedError where the note is none of ours."""
    text = notes.get(VERSIONS, b"{}")
    with reading("what the warehouse has noted of its tables' versions"):
        return {str(path): int(version) for path, version in orjson.loads(text).items()}


def commits_in(notes: Mapping[str, bytes]) -> dict[str, tuple[int, str]]:
    """Path -> version and commit of its table, as noted last. DamagedError where the note is none of ours."""
    with reading("what the warehouse has noted of its tables' commits"):
        found = orjson.loads(notes.get(COMMITS, b"{}"))
        return {str(path): (int(version), str(commit)) for path, (version, commit) in found.items()}
