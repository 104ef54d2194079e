"""The records of two captures that are of the same changes: those committed between two marks in the source's log.

The captures begin and end at different moments. Ours carry the LSN of their commit. Debezium's say where the
commit before theirs ended, and carry the transaction's number, by which ours decide for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdc.comparison.compared_record import ComparedRecord
from cdc.comparison.lossless import Json, LosslessNumber, Object, parse, show
from cdc.position import Position
from cdc.wire.format import POS, SOURCE, TRUNCATE_OP


@dataclass(frozen=True, slots=True)
class CommitWindow:
    """Commits above ``begin`` and below ``end``. ``rows``: the first snapshot's rows are compared too."""

    begin: int
    end: int
    rows: bool

    def cut(
        self, theirs: Sequence[ComparedRecord], ours: Sequence[ComparedRecord]
    ) -> tuple[list[ComparedRecord], list[ComparedRecord]]:
        """Both sides of one table, cut to the window.

        Rows whose key changed between the two snapshots, or right behind them, are left out: each side read
        another state of them.
        """
        inside: set[str] = set()
        outside: set[str] = set()
        touched: set[str] = set()
        for record in ours:
            position = position_of(record)
            if position is None or not position.streamed:
                continue
            within = self.begin < position.commit_lsn < self.end
            (inside if within else outside).add(_transaction(record))
            if position.commit_lsn <= self.begin:
                touched.add("" if record.op == TRUNCATE_OP else show(record.key))

        def ours_counts(record: ComparedRecord) -> bool:
            position = position_of(record)
            if position is None:
                return True  # a fault of its own
            if position.streamed:
                return self.begin < position.commit_lsn < self.end
            return self._row_counts(record, touched)

        return self._theirs(theirs, inside, outside - inside, touched), [r for r in ours if ours_counts(r)]

    def _theirs(
        self, records: Sequence[ComparedRecord], inside: set[str], outside: set[str], touched: set[str]
    ) -> list[ComparedRecord]:
        kept: list[ComparedRecord] = []
        delete_counts: dict[tuple[int, str], bool] = {}
        for record in records:
            where = (record.place[0], show(record.key))
            if record.source is None:
                counts = delete_counts.get(where, False)
            elif record.snapshot:
                counts = self._row_counts(record, touched)
            else:
                transaction = _transaction(record)
                near = transaction not in outside and self.begin <= _commit_before(record) < self.end
                counts = transaction in inside or near
                delete_counts[where] = counts
            if counts:
                kept.append(record)
        return kept

    def _row_counts(self, record: ComparedRecord, touched: set[str]) -> bool:
        return self.rows and "" not in touched and show(record.key) not in touched


def position_of(record: ComparedRecord) -> Position | None:
    """The position in our record's header. None where it has none that can be read."""
    text = dict(record.headers).get(POS)
    try:
        return Position.parse(text) if text is not None else None
    except ValueError:
        return None


def _transaction(record: ComparedRecord) -> str:
    return "" if record.source is None else show(record.source.get("txId"))


def _commit_before(record: ComparedRecord) -> int:
    sequence = record.source.get("sequence") if record.source is not None else None
    found = parse(sequence) if isinstance(sequence, str) else ()
    last = found[0] if isinstance(found, tuple) and found else None
    return int(last) if isinstance(last, str) else 0


_CAPTURED_AT = ("ts_ms", "ts_us", "ts_ns")
_READ_AT = (*_CAPTURED_AT, "lsn", "txId", "sequence")


def comparable(record: ComparedRecord, pipeline: str) -> ComparedRecord:
    """The record without what two captures of one change never share: when each wrote it, the pipeline's name,
    and for a row of a snapshot where each began."""
    value, source = record.value, record.source
    if source is None or not isinstance(value, Object):
        return record
    volatile: dict[str, Json] = {name: LosslessNumber("0") for name in _CAPTURED_AT}
    of_source: dict[str, Json] = {"name": ""} if source.get("name") == pipeline else {}
    if source.get("snapshot") is None:
        # Its default, "false", is written as null where NULLs are not replaced by defaults.
        source = Object(tuple((n, "false" if n == "snapshot" else v) for n, v in source.members))
    if record.snapshot:
        of_source |= {name: LosslessNumber("0") for name in _READ_AT}
    known = value.replaced({**volatile, SOURCE: source.replaced(of_source)})
    return ComparedRecord(table=record.table, key=record.key, value=known, headers=record.headers, place=record.place)
