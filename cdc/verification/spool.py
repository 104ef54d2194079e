"""Rows of one side on disk, parted by key, and two sides against each other, part by part: a table of any size is
compared in bounded memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc.process.errors import CdcError, Exit
from cdc.verification.result import Kind
from cdc.wire.format import POS

PART_ROWS = 1_000_000
"""Rows of one part at most, as far as the estimate holds: about 100 MB while it is compared."""
MAX_PARTS = 256
_BATCH_ROWS = 65_536

_FIELDS: list[tuple[str, pa.DataType]] = [("key", pa.string()), ("digest", pa.binary()), (POS, pa.string())]
SCHEMA = pa.schema(_FIELDS)
"""Store key | digest of the canonical row, null for a delete that is remembered | position, null for the source."""


def digest(canonical: bytes) -> bytes:
    """16 bytes that distinguish rows."""
    return blake2b(canonical, digest_size=16).digest()


def part_count(rows: int) -> int:
    """How many parts a table of about that many rows takes."""
    return max(1, min(MAX_PARTS, -(-rows // PART_ROWS)))


class Spool:
    """Append rows, then read them back part by part. A key is in the same part of every spool of that many parts.

    CdcError from every write when the folder takes no more.
    """

    def __init__(self, folder: Path, name: str, parts: int) -> None:
        self.parts = parts
        self._folder = folder
        self._paths = [folder / f"{name}.{part}.arrow" for part in range(parts)]
        with self._writing():
            self._writers = [pa.ipc.new_file(str(path), SCHEMA) for path in self._paths]
        self._keys: list[str] = []
        self._digests: list[bytes | None] = []
        self._positions: list[str | None] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            for writer in self._writers:
                writer.close()
        for path in self._paths:
            path.unlink(missing_ok=True)

    def add(
        self, keys: Sequence[str], digests: Sequence[bytes | None], positions: Sequence[str | None] | None = None
    ) -> None:
        """Append rows. The three sequences are of one length."""
        self._keys += keys
        self._digests += digests
        self._positions += positions if positions is not None else [None] * len(keys)
        if len(self._keys) >= _BATCH_ROWS:
            self._write()

    def finish(self) -> None:
        """No row follows. :meth:`part` may be called."""
        if self._writers:
            self._write()
            with self._writing():
                for writer in self._writers:
                    writer.close()
            self._writers = []

    def part(self, part: int) -> pa.Table:
        """The rows of one part, mapped from disk."""
        with pa.memory_map(str(self._paths[part])) as file:
            return pa.ipc.open_file(file).read_all()

    def _write(self) -> None:
        if not self._keys:
            return
        columns: list[Any] = [
            pa.array(self._keys, pa.string()),
            pa.array(self._digests, pa.binary()),
            pa.array(self._positions, pa.string()),
        ]
        batch = pa.record_batch(columns, schema=SCHEMA)
        with self._writing():
            self._append(batch)
        self._keys, self._digests, self._positions = [], [], []

    def _append(self, batch: pa.RecordBatch) -> None:
        if self.parts == 1:
            self._writers[0].write_batch(batch)
        else:
            keys: list[Any] = batch.column("key").to_pylist()
            parts = np.fromiter((crc32(key.encode()) for key in keys), np.uint32, len(keys)) % self.parts
            for part, writer in enumerate(self._writers):
                chosen = np.flatnonzero(parts == part)
                if len(chosen):
                    writer.write_batch(batch.take(pa.array(chosen, pa.int64())))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise CdcError(
                f"the comparison cannot be written to {self._folder}: {why}",
                hint="make room there, or name another folder: TMPDIR",
                exit=Exit.UNAVAILABLE,
            ) from None


class KeyDifference(NamedTuple):
    """A key in which the sides differ. ``pos``: the store's position, None where it knows nothing of the key.
    ``twice``: it was read more than once from the store, ``equal``: and each time as the source has it."""

    kind: Kind
    key: str
    pos: str | None
    twice: bool = False
    equal: bool = False


def differences(source: Spool, store: Spool, ceiling: str | None = None) -> Iterator[KeyDifference]:
    """Every key in which the store is not as the source, and every one that either has several rows of. Both spools
    are finished and have as many parts.

    ``ceiling``: the highest position that there was when the store had been read. A key above it is ahead, whatever
    its row is.
    """
    for part in range(source.parts):
        yield from _part_differences(source.part(part), store.part(part), ceiling)


def row_count(spool: Spool) -> int:
    """Distinct keys with a row. A store may show a key twice while it is written to."""
    return sum(
        pc.count_distinct(table.filter(pc.is_valid(table["digest"]))["key"]).as_py()
        for table in (spool.part(part) for part in range(spool.parts))
    )


def _part_differences(source: Any, store: Any, ceiling: str | None) -> Iterator[KeyDifference]:
    shared = _twice(source)
    yield from (KeyDifference(Kind.SHARED, key, None) for key in shared)
    if shared:
        source, store = (_without(one, shared) for one in (source, store))
    stored = store.rename_columns(["key", "stored", "stored_pos"])
    joined = source.drop_columns([POS]).join(stored, keys="key", join_type="full outer")
    # Equal digests are equal rows, and two nulls are a row that neither side has.
    same = pc.fill_null(pc.equal(joined["digest"], joined["stored"]), False)
    neither = pc.and_(pc.is_null(joined["digest"]), pc.is_null(joined["stored"]))
    equal: Any = pc.or_(same, neither)
    if ceiling is not None:
        positions: Any = joined["stored_pos"]
        equal = pc.and_(equal, pc.invert(pc.fill_null(pc.greater(positions, pa.scalar(ceiling)), False)))
    twice = _twice(store)
    found: dict[str, KeyDifference] = {}
    for row in joined.filter(pc.invert(equal)).to_pylist():
        difference = difference_of(row["key"], row["digest"], row["stored"], row["stored_pos"], ceiling)
        if row["key"] not in twice:
            yield difference
        elif row["key"] not in found or difference.kind is Kind.AHEAD:
            found[row["key"]] = difference._replace(twice=True)
    for key in twice - found.keys():
        found[key] = KeyDifference(Kind.STALE, key, "", twice=True, equal=True)
    yield from found.values()


def _without(rows: Any, keys: set[str]) -> Any:
    return rows.filter(pc.invert(pc.is_in(rows["key"], pa.array(sorted(keys), pa.string()))))


def _twice(store: Any) -> set[str]:
    """The keys of which a side gave more than one live row."""
    counted = store.filter(pc.is_valid(store["digest"])).group_by("key").aggregate([([], "count_all")])
    several: Any = pc.greater(counted["count_all"], pa.scalar(1))
    return set(counted.filter(several)["key"].to_pylist())


def difference_of(key: str, source: object, store: object, pos: str | None, ceiling: str | None) -> KeyDifference:
    """A difference, from what each side has (None: nothing) and the store's position."""
    if ceiling is not None and pos is not None and pos > ceiling:
        return KeyDifference(Kind.AHEAD, key, pos)
    return KeyDifference(kind_of(source, store), key, pos)


def kind_of(source: object | None, store: object | None) -> Kind:
    """The kind of a difference, from what each side has (None: nothing)."""
    if source is None:
        return Kind.EXTRA
    return Kind.MISSING if store is None else Kind.STALE
