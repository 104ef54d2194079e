"""Rows of a history, of a batch at once: what they share, and what each says for itself."""

from __future__ import annotations

import orjson

from cdc.record.position import SNAPSHOT_SEQ, Position
from sinks.contract.history_rows import kept_rows
from tests.contract.histories import HISTORY

BORN_S = 1_700_000_000


def record(number: int, pos: Position, op: str, xid: int | None, at_s: int) -> tuple[bytes, bytes]:
    row = {"id": number, "status": "new", "note": None}
    source = {"version": "1", "snapshot": "true" if op == "r" else "false", "ts_us": at_s * 1_000_000, "txId": xid}
    value = {"before": None, "after": row, "source": source, "transaction": None, "op": op}
    return f'{pos.text()}:{{"id":{number}}}'.encode(), orjson.dumps(value)


def facts(*records: tuple[bytes, bytes]) -> list[tuple[str, int | None, str]]:
    _, rows, bad = kept_rows(HISTORY, *zip(*records, strict=True))
    assert not bad
    found = [orjson.loads(row) for row in rows if row is not None]
    return [(one["_op"], one["_xid"], one["_commit_ts"][17:19]) for one in found]


def test_each_change_has_its_operation_and_its_transaction() -> None:
    """Two transactions, the first of them with two operations."""
    first, second = Position(1, 0x1000, 1), Position(1, 0x1008, 1)
    assert facts(
        record(1, first, "c", 7, BORN_S),
        record(2, first._replace(tx_seq=2), "u", 7, BORN_S),
        record(3, first._replace(tx_seq=3), "c", 7, BORN_S),
        record(1, second, "c", 8, BORN_S + 1),
    ) == [("c", 7, "20"), ("u", 7, "20"), ("c", 7, "20"), ("c", 8, "21")]


def test_rows_of_a_snapshot_have_times_of_their_own() -> None:
    """They stand at one position."""
    at = Position(1, 0x1000, SNAPSHOT_SEQ)
    assert facts(record(1, at, "r", None, BORN_S), record(2, at, "r", None, BORN_S + 2)) == [
        ("r", None, "20"),
        ("r", None, "22"),
    ]
