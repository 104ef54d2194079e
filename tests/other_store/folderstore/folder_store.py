"""A folder per table, a JSON file per row: ``{"key": ..., "pos": ..., "row": ...}``; a deleted row has ``until``."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa

from cdc.process.clock import Clock
from cdc.process.errors import ConfigError
from cdc.record.schema import TableSchema
from cdc.record.server_facts import StoreFacts
from sinks.contract.batch_plan import TableBatch
from sinks.contract.generations import OpenGeneration
from sinks.contract.port import Applied, CannotCarry, OpenSink, PlaceMissing, StoreAway, StoredRow, stored_batch
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store import StoreSink
from sinks.contract.store_names import folder
from sinks.contract.store_notes import NotedWatermarks
from sinks.contract.table_places import Places, PlaceStep

_LOCK, _PLACE = ".lock", ".place"
_SCAN_ROWS = 1_000


def open_folder(spec: SinkSpec, clock: Clock) -> OpenSink:
    """What the kind's ``opener`` names."""
    place = FolderPlace(spec)
    notes = FolderNotes(lambda: place.folder)
    tables = _FolderTables(place, int(spec.replay_window_s * 1e9), clock)
    places = Places(tables)
    sink = StoreSink(tables, notes, _FolderSession(), places=places, shared=spec.follows, moved=place.look)
    return OpenSink(
        sink=sink,
        watermarks=NotedWatermarks(notes),
        reader=_FolderReader(tables),
        places=places,
        current=place.current,
        discards=tables,
        sweep_late=sink.sweep_late,
    )


def probe_folder(spec: SinkSpec) -> StoreFacts:
    """What the kind's ``probe`` names: for ``cdc check``."""
    path = Path(spec.text("path"))
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is no folder", hint="name a folder, or one that can be made")
    return StoreFacts(product="the folder", version=str(path))


def root_of(spec: SinkSpec) -> Path:
    """The folder of all generations."""
    return Path(spec.text("path")) / quote(spec.prefix, safe="")


class FolderPlace(OpenGeneration):
    """The folder of the generation that is worked on."""

    def __init__(self, spec: SinkSpec) -> None:
        self._root = root_of(spec)
        super().__init__(FolderNotes(lambda: self._root), spec.options.get("generation"), shared=spec.follows)

    @property
    def folder(self) -> Path:
        return self._root / str(self.number)


class FolderNotes:
    """:class:`sinks.contract.store_notes.Notes`: a file per note."""

    def __init__(self, place: Callable[[], Path]) -> None:
        self._place = place

    def read(self) -> Mapping[str, bytes]:
        folder = self._place() / "notes"
        files = list(folder.glob("*.json")) if folder.is_dir() else []
        documents = (json.loads(file.read_text(encoding="utf-8")) for file in files)
        return {document["name"]: document["text"].encode() for document in documents}

    def write(self, name: str, text: bytes) -> None:
        folder = self._place() / "notes"
        folder.mkdir(parents=True, exist_ok=True)
        _put(folder / _file(name), {"name": name, "text": text.decode()})


@dataclass
class _FolderTables:
    """:class:`sinks.contract.store.TableStore` and :class:`sinks.contract.port.Discards`."""

    home: FolderPlace
    remember_ns: int
    clock: Clock

    def prepare(self, schema: TableSchema, *, older: bool) -> None:
        path = self.path(schema)
        if path.is_file():
            raise CannotCarry.because(schema.table, f"{path} is no folder")
        path.mkdir(parents=True, exist_ok=True)

    def write(self, batch: TableBatch) -> Applied:
        converted = batch.converted(batch.plain.row, orjson.dumps)
        rows = zip(converted.batch.keys, converted.batch.pos, converted.rows, strict=True)
        with self._locked(batch.schema) as path:
            done = Applied(refused=converted.refused)
            for key, pos, row in rows:
                done += self._put_newer(path / _file(key), key, pos, row)
        return done

    def _put_newer(self, file: Path, key: str, pos: str, row: bytes | None) -> Applied:
        held = self._read(file)
        if held is not None and held.pos > pos:
            return Applied(stale=1)
        until = {"until": self.clock.now_ns() + self.remember_ns} if row is None else {}
        _put(file, {"key": key, "pos": pos, "row": None if row is None else row.decode(), **until})
        return Applied(deleted=1) if row is None else Applied(applied=1)

    def stored(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        with self._locked(schema) as path:
            found = {key: self._read(path / _file(key)) for key in keys}
        return {key: row for key, row in found.items() if row is not None}

    def remove_below(self, schema: TableSchema, floor: str) -> None:
        with self._locked(schema) as path:
            for file in path.glob("*.json"):
                row = self._read(file)
                if row is not None and row.pos < floor:
                    file.unlink()

    def place(self, schema: TableSchema) -> bytes | None:
        file = self.path(schema) / _PLACE
        return file.read_bytes() if file.exists() else None

    def put_places(self, steps: Sequence[PlaceStep]) -> None:
        for step in steps:
            with self._locked(step.schema) as path:
                if not step.fits(self.place(step.schema)):
                    raise PlaceMissing.moved(step.schema.table)
                draft = path / f"{_PLACE}.{os.getpid()}"
                draft.write_bytes(step.after)
                draft.replace(path / _PLACE)

    def taken_back(self, schema: TableSchema, *, empty: bool) -> None:
        if empty and self.path(schema).exists():
            with self._locked(schema) as path:
                for file in (path / _PLACE, *path.glob("*.json")):
                    file.unlink(missing_ok=True)

    def remove(self, schema: TableSchema, versions: Mapping[str, str]) -> None:
        with self._locked(schema) as path:
            for key, pos in versions.items():
                row = self._read(path / _file(key))
                if row is not None and row.pos == pos:
                    (path / _file(key)).unlink()

    def rows(self, schema: TableSchema) -> Iterator[StoredRow]:
        """Everything that is stored of a table."""
        path = self.path(schema)
        found = (self._read(file) for file in path.glob("*.json")) if path.is_dir() else iter(())
        return (row for row in found if row is not None)

    def path(self, schema: TableSchema) -> Path:
        return self.home.folder / "tables" / folder(schema.table.schema) / folder(schema.table.table)

    def _read(self, file: Path) -> StoredRow | None:
        """What a file holds; None where there is none, or its memory of a delete is over."""
        try:
            held: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        if held["row"] is None and held["until"] <= self.clock.now_ns():
            return None
        row = held["row"].encode() if held["row"] is not None else None
        return StoredRow(key=held["key"], pos=held.get("pos") or "", row=row)

    @contextmanager
    def _locked(self, schema: TableSchema) -> Iterator[Path]:
        """Alone in a table's folder, among all processes: what is compared stays until it is replaced."""
        path = self.path(schema)
        if path.is_file():
            raise CannotCarry.because(schema.table, f"{path} is no folder")
        try:
            lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR)
        except FileNotFoundError:
            raise PlaceMissing.of(schema.table, str(path)) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield path
        finally:
            os.close(lock)


class _FolderSession:
    def show(self) -> None:
        """A file shows as soon as it is there."""

    def close(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class _FolderReader:
    """:class:`sinks.contract.port.StoreReader`."""

    tables: _FolderTables

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        rows = list(self.tables.rows(schema))
        for start in range(0, len(rows), _SCAN_ROWS):
            yield stored_batch(rows[start : start + _SCAN_ROWS])

    def get(self, schema: TableSchema, key: str) -> StoredRow | None:
        return next((row for row in self.tables.rows(schema) if row.key == key), None)

    def close(self) -> None:
        """Nothing is open."""


def _file(name: str) -> str:
    """A file's name for any key or note: no longer than a file's name may be."""
    escaped = quote(name, safe="")
    return f"{escaped if len(escaped) < 200 else hashlib.sha256(name.encode()).hexdigest()}_.json"


def _put(file: Path, document: Mapping[str, Any]) -> None:
    """Replace a file at once: a reader sees the old one or the new one. StoreAway when the disk takes nothing."""
    draft = file.with_suffix(f".{os.getpid()}")
    try:
        draft.write_text(json.dumps(document), encoding="utf-8")
    except OSError as error:
        raise StoreAway(f"the folder {file.parent} takes nothing: {error.strerror}") from None
    draft.replace(file)
