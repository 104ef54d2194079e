"""Putting right what a comparison found, while changes go on: ``cdc verify --repair``.

The rows are read again in a new cut, and written at the position ``(epoch, settled, 0)``: the cut holds every change
committed below ``settled``, so what is written is newer than anything the store can hold from before, and every
change that the cut may lack was committed at or above it, so it has a greater position and wins, whichever of the
two comes first. A row that the source lacks is deleted, at the same position. That needs a cut of which it is
proven that each commit below ``settled`` was visible to it, so none is written without the proof.

Debezium's positions are offsets, which no LSN is beside. There a row is written at the position that the store has of
its key, or below all that its partition can bring: the next record of the key wins.

A stored version at a position that the source has not reached wins over all of that. It is taken away first, and the
cut is made behind that: a change that the store ignored in favour of it was committed before, so the cut has it. A row
that somebody else put there without a position, or under a key that is not the table's, is removed too.

Documents of views their runners put right, through the log. A row that were written into one store alone would come
back wrong with the next rebuild. So a view's runner is asked to compute the documents from the topics and to publish
them anew: each store takes them, because they are newer than anything that it can hold. The view's topic tells apart
those that differ still. Where that has what the source has, one store did not take it, and it is written there. Where
it has something else, the view's state is unlike the topics, and nothing but building the view anew helps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import orjson

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import CdcError, Exit, Retry, SourceError
from cdc.record.documents import dumped
from cdc.record.position import SNAPSHOT_SEQ, Position
from cdc.record.schema import Column, TableSchema
from cdc.record.topic_names import TableName
from cdc.verification.ports import (
    AsksRunners,
    Cut,
    PublishedDocument,
    RepairRow,
    RepairTarget,
    SourceRows,
    VerifiedSource,
    VerifiedTable,
)
from cdc.verification.result import StoreVerdict, VerificationReport
from cdc.wire.canonical import CanonicalTable
from cdc.wire.plain import KEYLESS, NULL_IN_KEY, PlainTable
from cdc.wire.types import INTEGERS, Plain, kinds

declare("repair_cut", "repair_cleared", "repair_written", "repair_finished")

_LOT_ROWS = 20_000
_LOT_BYTES = 32 * 1024**2
_CUTS = 5
_PAUSE_S = 1.0
_UNQUOTED = kinds(Plain.BOOLEAN, Plain.FLOAT)


@dataclass(slots=True, kw_only=True)
class Repaired:
    """The changes made to one store and table. ``refused``: rows that the store does not take, ``unread``: keys that
    are none of the table's, and were taken away. ``recomputed``: documents of a view that its runner published anew."""

    sink: str
    table: TableName
    written: int = 0
    deleted: int = 0
    refused: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    recomputed: int = 0

    def document(self) -> dict[str, Any]:
        """As ``cdc verify --repair --json`` prints it."""
        return {
            "sink": self.sink,
            "table": str(self.table),
            "written": self.written,
            "deleted": self.deleted,
            "refused": sorted(set(self.refused)),
            "unread": self.unread[:5],
            "recomputed": self.recomputed,
        }


def repair(
    source: SourceRows,
    targets: Mapping[str, RepairTarget],
    tables: Mapping[TableName, VerifiedTable],
    report: VerificationReport,
    *,
    epoch: int,
    clock: Clock,
    lowest: Mapping[tuple[str, str], str] | None = None,
) -> list[Repaired]:
    """Write anew every differing key that the report holds. May be repeated, and killed at any point. ``lowest``: of a
    sink and a topic of Debezium's, a position below all that it can bring. None for topics of ours.

    SourceError when no cut could be proven to hold every commit: a transaction stays open.
    """
    wanted = [verdict for verdict in report.verdicts if verdict.differing]
    if not wanted:
        return []
    settled = certain_cut(source, clock).settled
    crash_point("repair_cut")
    if remove_impossible(targets, tables, wanted):
        crash_point("repair_cleared")
        settled = certain_cut(source, clock).settled
    done: list[Repaired] = []
    by_table: dict[TableName, list[StoreVerdict]] = defaultdict(list)
    for verdict in wanted:
        by_table[verdict.table].append(verdict)
    for name, verdicts in by_table.items():
        mends = []
        for verdict in verdicts:
            shape, pos = tables[name].shape, Position(epoch, settled, SNAPSHOT_SEQ).text()
            at = None if lowest is None else lowest[verdict.sink, shape.topic]
            mends.append(
                _TableRepair(verdict, targets[verdict.sink], shape, pos if at is None else at, kept=at is not None)
            )
        keys = sorted(set().union(*(verdict.differing for verdict in verdicts)))
        for found in source.records_of(tables[name], keys):
            for mend in mends:
                mend.write(found)
        for mend in mends:
            mend.finish()
            done.append(mend.repaired)
    return done


def remove_impossible(
    targets: Mapping[str, RepairTarget], tables: Mapping[TableName, VerifiedTable], verdicts: Sequence[StoreVerdict]
) -> bool:
    """Remove versions that win over every change, and those that somebody else wrote. Whether there were any."""
    found = False
    for verdict in verdicts:
        versions = {key: pos for key, pos in verdict.positions.items() if key in verdict.ahead or not pos}
        if versions:
            targets[verdict.sink].remove(tables[verdict.table].shape, versions)
            found = True
    return found


def certain_cut(source: SourceRows, clock: Clock) -> Cut:
    """A cut that surely holds every commit below its ``settled``. Waits longer after each try that is not certain.

    Raises SourceError when none of the tries is: a transaction on the source stays open.
    """
    for attempt in range(_CUTS):
        cut = source.cut()
        if cut.certain:
            return cut
        clock.sleep(_PAUSE_S * (attempt + 1))
    raise SourceError(
        "nothing was repaired: a transaction on the source stays open, so it is not certain what a cut contains",
        hint="find it in pg_stat_activity (xact_start) or pg_prepared_xacts, let it end, and repair again",
    )


class _TableRepair:
    """One store and table on the way: rows gathered into lots, then what the source does not have."""

    def __init__(
        self, verdict: StoreVerdict, target: RepairTarget, shape: TableSchema, pos: str, *, kept: bool
    ) -> None:
        self.repaired = Repaired(sink=verdict.sink, table=verdict.table)
        self._positions = verdict.positions
        self._target = target
        self._shape = shape
        self._pos = pos
        self._kept = kept
        self._left = set(verdict.differing)
        self._lots: dict[str, list[RepairRow]] = defaultdict(list)
        self._lot_rows = self._lot_bytes = 0

    def write(self, found: Mapping[str, RepairRow]) -> None:
        for key in found.keys() & self._left:
            self._left.discard(key)
            self._add(key, found[key])

    def finish(self) -> None:
        strange: dict[str, str] = {}
        for key in sorted(self._left):
            record = record_key(self._shape, key)
            if record is None:
                self.repaired.unread.append(key)
                strange[key] = self._positions.get(key, "")
            else:
                self._add(key, RepairRow(record, None))
        self._put()
        if strange:
            self._target.remove(self._shape, strange)
        crash_point("repair_finished")

    def _add(self, key: str, row: RepairRow) -> None:
        stored = self._positions.get(key) if self._kept else None
        self._lots[stored or self._pos].append(row)
        self._lot_rows, self._lot_bytes = self._lot_rows + 1, self._lot_bytes + len(row.key) + len(row.after or b"")
        if self._lot_rows >= _LOT_ROWS or self._lot_bytes >= _LOT_BYTES:
            self._put()

    def _put(self) -> None:
        for pos, rows in self._lots.items():
            refused = self._target.put(self._shape, pos, rows)
            crash_point("repair_written")
            deletes = sum(row.after is None for row in rows)
            self.repaired.deleted += deletes
            self.repaired.written += len(rows) - deletes - len(refused)
            self.repaired.refused.extend(refused)
        self._lots.clear()
        self._lot_rows = self._lot_bytes = 0


def record_key(shape: TableSchema, key: str) -> bytes | None:
    """A store key as the key of its record. None when it is no key of this table.

    The inverse of :meth:`cdc.wire.plain.PlainTable.key`, checked against it.
    """
    parts = key.split(":") if shape.key or key != KEYLESS else []
    if len(parts) != len(shape.key):
        return None
    try:
        values = {column.name: _value(column, part) for column, part in zip(shape.key, parts, strict=True)}
        record = dumped(values)
        return record if PlainTable(shape).key(record) == key else None
    except (ValueError, TypeError):
        return None


def _value(column: Column, part: str) -> Any:
    """A key column's value on the wire, in the ``readable`` encoding, from its part of a store key."""
    if part == NULL_IN_KEY:
        return None
    text = unquote(part)
    if column.array:
        return orjson.loads(text)
    if column.kind in INTEGERS:
        return int(text)
    if column.kind in _UNQUOTED and text not in ("NaN", "Infinity", "-Infinity"):
        return orjson.loads(text)
    return text


class RunnerSilent(CdcError):
    """A view's runner does not answer."""

    exit = Exit.UNAVAILABLE
    retry = Retry.LATER


class ViewRepair:
    """Repairs of views. ``targets``: by sink. ``timeout_s``: how long a runner may take to answer."""

    def __init__(
        self,
        runners: AsksRunners,
        source: VerifiedSource,
        targets: Mapping[str, RepairTarget],
        tables: Mapping[TableName, VerifiedTable],
        clock: Clock,
        *,
        timeout_s: float,
    ) -> None:
        self._runners = runners
        self._source = source
        self._targets = targets
        self._tables = tables
        self._clock = clock
        self._timeout_s = timeout_s
        self._answered: dict[TableName, set[str]] = defaultdict(set)
        self._silent: dict[TableName, str] = {}

    def ask(self, verdicts: Sequence[StoreVerdict]) -> list[Repaired]:
        """Have every differing document that these hold published anew. A silent runner is told of as a refusal."""
        remove_impossible(self._targets, self._tables, verdicts)
        return [one for view, some in _by_view(verdicts).items() for one in self._asked(view, some)]

    def _asked(self, view: TableName, verdicts: Sequence[StoreVerdict]) -> list[Repaired]:
        shape = self._tables[view].shape
        records = {key: record_key(shape, key) for verdict in verdicts for key in verdict.differing}
        asked = sorted({record for record in records.values() if record is not None})
        parked: Mapping[bytes, str] = {}
        if asked and view not in self._silent:
            try:
                parked = self._runners.recompute(view, asked, self._timeout_s)
                self._answered[view] |= records.keys()
            except RunnerSilent as nobody:
                self._silent[view] = f"{nobody.message}: {nobody.hint}"
        silent = self._silent.get(view, "")
        done = []
        for verdict in verdicts:
            one = Repaired(sink=verdict.sink, table=view)
            one.unread = [key for key in verdict.differing if records[key] is None]
            if one.unread:
                versions = {key: verdict.positions.get(key, "") for key in one.unread}
                self._targets[verdict.sink].remove(shape, versions)
            own = [record for key in verdict.differing if (record := records[key]) is not None]
            one.refused = [silent for _ in own] if silent else [parked[record] for record in own if record in parked]
            one.recomputed = len(own) - len(one.refused)
            done.append(one)
        return done

    def judge(self, verdicts: Sequence[StoreVerdict], epoch: int) -> list[Repaired]:
        """Tell apart what differs though its runner has published it: write it where one store alone lacks it, and
        refuse the rest. SourceError as :func:`cdc.verification.repair.certain_cut`."""
        found = []
        for verdict in verdicts:
            keys = [key for key in verdict.differing if key in self._answered[verdict.table]]
            if keys:
                found.append(self._judged(verdict, keys, epoch))
        return found

    def _judged(self, verdict: StoreVerdict, keys: Sequence[str], epoch: int) -> Repaired:
        table = self._tables[verdict.table]
        bound = Position(epoch, certain_cut(self._source, self._clock).settled, 0).text()
        rows = self._source.rows_of(table, keys)
        records = {key: record for key in keys if (record := record_key(table.shape, key)) is not None}
        published = self._runners.published(verdict.table, set(records.values()))
        plain, canonical = PlainTable(table.shape).row, CanonicalTable(table.shape).row
        one = Repaired(sink=verdict.sink, table=verdict.table)
        for key, record in records.items():
            there = published.get(record, PublishedDocument("", None))
            row = None if there.after is None else canonical(plain(there.after))
            if row == rows.get(key):
                one.refused += self._put(verdict, there, RepairRow(record, there.after))
                one.written += there.after is not None
                one.deleted += there.after is None
            elif there.pos < bound:
                one.refused.append(unlike(verdict.table))
        return one

    def _put(self, verdict: StoreVerdict, there: PublishedDocument, row: RepairRow) -> Sequence[str]:
        return self._targets[verdict.sink].put(self._tables[verdict.table].shape, there.pos, [row]) if there.pos else ()


def unlike(view: TableName) -> str:
    """The sentence on a document that the view's topic has otherwise than the source gives it.

    >>> unlike(TableName("view", "v"))
    "the view's topic has another document than its text gives: cdc view rebuild v builds it anew"
    """
    return f"the view's topic has another document than its text gives: cdc view rebuild {view.table} builds it anew"


def _by_view(verdicts: Sequence[StoreVerdict]) -> Mapping[TableName, list[StoreVerdict]]:
    found: dict[TableName, list[StoreVerdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.differing:
            found[verdict.table].append(verdict)
    return found
