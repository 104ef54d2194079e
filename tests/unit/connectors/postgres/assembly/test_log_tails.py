"""What a partition's end says of the transactions that come again."""

from __future__ import annotations

from cdc.record.position import Position
from connectors.postgres.assembly.transaction import LogTails


def test_h75_an_earlier_epochs_records_hold_nothing_of_this_one() -> None:
    tails = LogTails(40, 2, {0: Position(1, 1 << 40, 1), 1: Position(2, 80, 3)})
    assert [tails.partly(lsn) for lsn in (72, 80, 88)] == [True, True, False]
    assert tails.has(1, Position(2, 80, 3).text().encode())
    assert not tails.has(1, Position(2, 80, 4).text().encode())
