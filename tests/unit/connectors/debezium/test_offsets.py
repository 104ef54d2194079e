"""The offset that a connector is given where the native capture stopped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.position import Position
from cdc.wire.debezium.order import position_of
from connectors.debezium.source_progress import offset_at, shown_lsn


@given(st.integers(16, 2**50).map(lambda n: n * 8), st.integers(1, 1000), st.integers(0, 1000))
def test_h91_debezium_goes_on_above_the_native_captures_records(end: int, seq: int, distance: int) -> None:
    offset = offset_at(end, 1_700_000_000_000_000_000)
    assert shown_lsn([{"offset": offset}]) == end
    assert offset["lsn"] % 8 == 7, "no record begins there"
    source = {"connector": "postgresql", "snapshot": "false", "sequence": f'["{offset["lsn_commit"]}","{end + 64}"]'}
    first = position_of(source, 1)
    # The commit that ends there began at least a record's length before; the next one's begins there or later.
    assert Position(1, end - 40, seq) < first < Position(1, end + distance * 8, seq)
