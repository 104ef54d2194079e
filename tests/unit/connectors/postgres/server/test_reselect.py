"""Which transactions a snapshot sees."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.capture.transaction_visibility import Visibility


@given(st.sets(st.integers(100, 200)), st.integers(90, 220))
def test_h69_a_running_or_later_transaction_is_not_seen(running: set[int], xid: int) -> None:
    xmin, xmax = min(running, default=201), 201
    seen = Visibility.parse(f"{xmin}:{xmax}:{','.join(map(str, sorted(running)))}")
    assert seen.sees(xid) == (xid < 201 and xid not in running)
