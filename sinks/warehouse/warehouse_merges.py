"""Shared by warehouses that merge rows into tables of files: lots of rows, what came of them, and odd keys."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc.process.clock import Clock
from cdc.process.errors import ConfigError
from sinks.contract.batch import pc
from sinks.contract.batch_plan import TableBatch
from sinks.contract.port import STRANGE_ROW, Applied, Refused, StoredRow
from sinks.warehouse.warehouse_columns import DELETED

SIDE_BY_SIDE = 8
"""So many tables are written at once."""
READ_ROWS = 2_000
UNPACKED = 3
"""About how much larger a row is than what it takes in its file."""
LOOKUP = 1_000
"""So many keys are looked up at once."""
_MERGE_ROWS = 250_000
_SCAN_ROWS = 16_384
_PIECES = -(-_MERGE_ROWS // _SCAN_ROWS)
"""Of one merge. So many rows are one and not two: a merge may read the whole table, however few rows it has."""

Piece = tuple[pa.Table, TableBatch, tuple[Refused, ...]]
Lot = tuple[pa.Table, list[bool], tuple[Refused, ...]]


def lots(pieces: Iterator[Piece]) -> Iterator[Lot]:
    """Pieces joined to what one merge takes: columns, which rows are deletes, what was refused."""
    while lot := list(itertools.islice(pieces, _PIECES)):
        rows = pa.concat_tables([table for table, _, _ in lot])
        deletes: list[Any] = rows[DELETED].to_pylist()
        yield rows, deletes, tuple(itertools.chain.from_iterable(refused for _, _, refused in lot))


def counted(written: int, deletes: Sequence[bool]) -> Applied:
    """The outcome of a merge that has put so many rows in.

    >>> counted(2, [False, True, False])
    Applied(applied=2, deleted=0, stale=1, refused=())
    """
    stale = max(0, len(deletes) - written)
    # A merge does not report which stale ones were deletes, so they are subtracted from the deletes first.
    deleted = max(0, sum(deletes) - stale)
    return Applied(applied=max(0, written - deleted), deleted=deleted, stale=stale)


def odd_rows(found: pa.Table, key: str, deleted: str) -> dict[str, StoredRow]:
    """The keys with a live row and another one, which nothing but another writer makes: no position decides. ``key``
    and ``deleted``: the columns' names."""
    live = set(found.filter(pc.invert(pc.fill_null(found[deleted], False)))[key].to_pylist())
    several: Counter[Any] = Counter(found[key].to_pylist())
    return {
        one: StoredRow(key=one, pos="", row=STRANGE_ROW) for one, count in several.items() if count > 1 and one in live
    }


class Expiry:
    """When the remembered deletes of each table are to be removed: now and then."""

    def __init__(self, replay_window_s: float, clock: Clock) -> None:
        self._remember_us = int(replay_window_s * 1e6)
        self._every_s = min(3600.0, replay_window_s)
        self._clock = clock
        self._purged: dict[str, float] = {}

    def due(self, table: str) -> datetime | None:
        """The moment before which deletes of a table go. None while it is not time for it yet."""
        now = self._clock.monotonic()
        if now - self._purged.setdefault(table, now) < self._every_s:
            return None
        self._purged[table] = now
        return datetime.fromtimestamp((self._clock.now_ns() // 1000 - self._remember_us) / 1e6, UTC)


def require_folder(folder: Path) -> None:
    """ConfigError unless the folder, or the nearest one above it that exists, can be written."""
    nearest = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not nearest.is_dir():
        raise ConfigError(f"the folder {folder} cannot be made: {nearest} is a file", hint="name a folder in path")
    try:
        # Asked by doing it: what a user may not write is not all that cannot be written.
        with tempfile.TemporaryDirectory(prefix=".cdc-", dir=nearest):
            pass
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be written: {error.strerror}",
            hint=f"give this user the right to write {nearest}, or name another folder in path",
        ) from None
