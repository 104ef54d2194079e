"""The passes: one over every row, then again and again over the keys that differed, until each is settled.

A key counts as different only if it differed at two cuts and the store's position is below what the last cut surely
contains. A store that has moved past the cut proves nothing. Such a key is compared again. A key that moves at every
comparison (a counter row under load) is reported as undecided, never as different.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.verification.ports import Cut, LooksUpMany, ScansStore, SourceReader, StoredVersion, VerifiedTable
from cdc.verification.result import Kind, StoreVerdict, VerificationReport
from cdc.verification.spool import KeyDifference, Spool, difference_of, differences, digest, part_count, row_count
from cdc.wire.canonical import CanonicalTable
from cdc.wire.format import POS

if TYPE_CHECKING:
    pass


declare("verify_cut", "verify_reached", "verify_looked")

KEYED_LOOK_KEYS = 20_000
"""Up to so many differing rows of a table are read by their keys. More are read whole again."""
_KEYS_AT_ONCE = 250
_HIGHEST = "f" * 32
MAX_LOOKS = 8
PAUSE_S = 0.25


@dataclass(slots=True)
class TableComparison:
    """One store and one table on the way to a verdict. ``open``: keys to compare again. None: all of them. ``seen``:
    the store's positions of those that differed at the last look."""

    verdict: StoreVerdict
    table: VerifiedTable
    reader: ScansStore
    open: list[str] | None = None
    left: int = field(default=1)
    seen: dict[str, str | None] = field(default_factory=dict)


class VerificationProgress(Protocol):
    """Is called with how far a verification is."""

    def reading(self, side: str, table: TableName, rows: int) -> None:
        """``rows`` more rows of the table were read from ``side``: ``source`` or a sink."""

    def looking(self, look: int, keys: int) -> None:
        """Another pass begins, over so many keys."""


def verify(
    source: SourceReader,
    stores: Mapping[str, ScansStore],
    tables: Mapping[str, Sequence[VerifiedTable]],
    *,
    epoch: int | None,
    reached: Callable[[Cut], None],
    clock: Clock,
    watch: VerificationProgress,
) -> VerificationReport:
    """Compare each store with the source in its ``tables``.

    ``reached`` returns when every store shows the cut's fence, and raises when that takes too long. A key whose
    position lies above the source's end, asked for after the store was read, counts, however it compares: the store
    would ignore every change until then. ``epoch`` None: positions are offsets, which say nothing of the cut. There a
    key differs whose stored position is that of the look before: all up to this cut was read since. Raises what the
    readers raise. Nothing is written anywhere but in a temporary folder.
    """

    def bounds(look: int) -> _Bounds:
        counts = look > (1 if cut.certain else 2)
        if epoch is None:
            return _Bounds(None, lambda: _HIGHEST, by_offsets=True)
        below = Position(epoch, cut.settled, 0).text() if counts else None
        return _Bounds(below, lambda: Position(epoch, source.insert_lsn(), CHUNK_SEQ).text())

    pairs = [
        TableComparison(StoreVerdict(sink=sink, table=table.table), table, reader)
        for sink, reader in stores.items()
        for table in tables[sink]
    ]
    cut, look = Cut(0, 0, False), 0
    while look < MAX_LOOKS and (waiting := [pair for pair in pairs if pair.left]):
        look += 1
        watch.looking(look, sum(pair.left for pair in waiting) if look > 1 else 0)
        cut = source.cut()
        crash_point("verify_cut")
        reached(cut)
        crash_point("verify_reached")
        for table, together in _by_table(waiting):
            _look(source, table, together, bounds(look), watch)
            crash_point("verify_looked")
        if any(pair.left for pair in pairs):
            clock.sleep(PAUSE_S * look)
    for pair in pairs:
        pair.verdict.undecided = pair.left
    left_out = {str(pair.table.table): pair.table.left_out for pair in pairs if pair.table.left_out}
    verdicts = [pair.verdict for pair in pairs]
    return VerificationReport(verdicts=verdicts, fence=cut.fence, looks=look, columns_left_out=left_out)


class _Bounds(NamedTuple):
    """``below``: a position under which a difference counts. None: nothing counts yet. ``ceiling``: a position that
    no change so far is above. ``by_offsets``: neither is known."""

    below: str | None
    ceiling: Callable[[], str]
    by_offsets: bool = False

    def proves(self, difference: KeyDifference, seen: Mapping[str, str | None]) -> bool:
        """Whether a difference counts. ``seen``: the positions of those of the look before."""
        if self.by_offsets:
            return difference.key in seen and seen[difference.key] == difference.pos
        return self.below is not None and (difference.pos is None or difference.pos < self.below)


def _by_table(pairs: Iterable[TableComparison]) -> Iterator[tuple[VerifiedTable, list[TableComparison]]]:
    groups: dict[TableName, list[TableComparison]] = {}
    for pair in pairs:
        groups.setdefault(pair.table.table, []).append(pair)
    for group in groups.values():
        yield group[0].table, group


def _look(
    source: SourceReader,
    table: VerifiedTable,
    pairs: list[TableComparison],
    bounds: _Bounds,
    watch: VerificationProgress,
) -> None:
    """One pass over one table in several stores."""
    keyed = [pair for pair in pairs if pair.open is not None]
    whole = [pair for pair in pairs if pair.open is None]
    if keyed:
        rows = source.rows_of(table, sorted({key for pair in keyed for key in pair.open or ()}))
        for pair in keyed:
            _settle(pair, _keyed_differences(pair, rows, bounds), bounds)
    if whole:
        _look_whole(source, table, whole, bounds, watch)


def _keyed_differences(pair: TableComparison, rows: Mapping[str, bytes], bounds: _Bounds) -> Iterator[KeyDifference]:
    keys = pair.open or []
    canonical = CanonicalTable(pair.table.shape)
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        lot = keys[start : start + _KEYS_AT_ONCE]
        found = _versions(pair.reader, pair.table.stored, lot)
        ceiling = bounds.ceiling()
        for key in lot:
            version = found.get(key)
            row = version.row if version is not None else None
            stored = _canonical(canonical, row) if row is not None else None
            pos = version.pos if version is not None else None
            difference = difference_of(key, rows.get(key), stored, pos, ceiling)
            if stored != rows.get(key) or difference.kind is Kind.AHEAD:
                yield difference


def _versions(reader: ScansStore, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredVersion]:
    if isinstance(reader, LooksUpMany):
        return reader.get_many(schema, keys)
    found = {key: reader.get(schema, key) for key in keys}
    return {key: version for key, version in found.items() if version is not None}


def _canonical(table: CanonicalTable, row: bytes) -> bytes:
    """A stored row in its one form. Of what somebody else put there, a form that no row of the source has."""
    try:
        return table.row(row)
    except (ValueError, TypeError, LookupError, AttributeError):
        return b"\0" + row


def _look_whole(
    source: SourceReader,
    table: VerifiedTable,
    pairs: list[TableComparison],
    bounds: _Bounds,
    watch: VerificationProgress,
) -> None:
    parts, count = part_count(table.rows), 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="cdc-verify-")))
        read = stack.enter_context(Spool(folder, "source", parts))
        for keys, rows in source.rows(table):
            read.add(keys, [digest(row) for row in rows])
            watch.reading("source", table.table, len(keys))
            count += len(keys)
        read.finish()
        for pair in pairs:
            with Spool(folder, "store", parts) as spool:
                _fill(spool, pair, watch)
                # Everything is compared anew, so nothing counted before stands.
                pair.verdict.restart(source_rows=count, store_rows=row_count(spool))
                _settle(pair, _told_apart(pair, differences(read, spool, bounds.ceiling())), bounds)


def _told_apart(pair: TableComparison, found: Iterable[KeyDifference]) -> Iterator[KeyDifference]:
    """Keys that were read twice are several rows in one store, and in another a walk that met a key again: which of
    both, the store says of one of them. Several rows have no position that decides: they are taken away for a repair.
    """
    several: bool | None = None
    for difference in found:
        if not difference.twice:
            yield difference
            continue
        if several is None:
            one = pair.reader.get(pair.table.stored, difference.key)
            several = one is not None and not one.pos
        if several:
            yield difference._replace(pos="")
        elif not difference.equal:
            yield difference


def _fill(spool: Spool, pair: TableComparison, watch: VerificationProgress) -> None:
    canonical = CanonicalTable(pair.table.shape)
    for batch in pair.reader.scan(pair.table.stored):
        rows = batch.column("row").to_pylist()
        digests = [None if row is None else digest(_canonical(canonical, row)) for row in rows]
        keys: list[Any] = batch.column("key").to_pylist()
        spool.add(keys, digests, batch.column(POS).to_pylist())
        watch.reading(pair.verdict.sink, pair.table.table, len(rows))
    spool.finish()


def _settle(pair: TableComparison, found: Iterable[KeyDifference], bounds: _Bounds) -> None:
    """Count what is proven, keep what is open for another pass."""
    moving: list[str] = []
    seen: dict[str, str | None] = {}
    left = 0
    for difference in found:
        if bounds.proves(difference, pair.seen) or difference.kind in (Kind.AHEAD, Kind.SHARED):
            pair.verdict.add(difference.kind, difference.key, difference.pos)
            continue
        seen[difference.key] = difference.pos
        left += 1
        if left <= KEYED_LOOK_KEYS:
            moving.append(difference.key)
    pair.left, pair.seen = left, seen if bounds.by_offsets else {}
    pair.open = moving if left <= KEYED_LOOK_KEYS else None
