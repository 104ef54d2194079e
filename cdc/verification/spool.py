"""Rows of one side on disk, parted by key, so that a table of any size is compared in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from zlib import crc32

import numpy as np
import pyarrow as pa

from cdc.process.errors import CdcError, Exit
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
