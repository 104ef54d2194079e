"""What of a change holds at a fence, what waits, and what nobody knows."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.topic_names import TableName
from cdc.views.embedded_state import EmbeddedState, SqliteRows
from cdc.views.log_cut import Fence
from cdc.views.row_changes import KEPT, LOST, RowChange, UnseenRows, filled, newest, parted
from cdc.views.view_plan import planned
from cdc.views.view_state import ViewState
from tests.unit.cdc.views.ahead_histories import DOCUMENTS, SHAPES

T = TableName("public", "customers")
STREAMED, WINDOW = Position(1, 80, 1).text(), Position(1, 80, CHUNK_SEQ).text()
BEFORE, RIPE = Fence(1, 90), Fence(1, 200)
WHOLE = RowChange(T, (1,), (1, "new"), WINDOW, RIPE)
SELECTED = RowChange(T, (1,), (1, "new"), STREAMED, RIPE, frozenset([1]))


@pytest.mark.parametrize(
    ("change", "row"),
    [
        (WHOLE, None),
        (WHOLE._replace(sure=False), (1, LOST)),
        (WHOLE._replace(pos=STREAMED), (1, LOST)),
        (WHOLE._replace(row=None, pos=STREAMED), (1, LOST)),
        (SELECTED, (1, KEPT)),
        (SELECTED._replace(sure=False), (1, LOST)),
    ],
)
def test_v25_what_is_newer_than_a_fence_waits(change: RowChange, row: tuple[object, ...] | None) -> None:
    now, later = parted(change, BEFORE, 2)
    assert later is change
    assert (now.row if now is not None else None) == row
    assert parted(change, RIPE, 2) == (change, None)


def test_v25_a_gap_in_an_old_record_is_not_what_is_stored() -> None:
    old = RowChange(T, (1,), (1, KEPT), STREAMED, sure=False)
    assert parted(old, RIPE, 2) == (old._replace(row=(1, LOST)), None)
    assert parted(old._replace(sure=True), RIPE, 2) == (old._replace(sure=True), None)


def test_v25_a_gap_is_filled_by_what_is_known() -> None:
    assert filled((1, KEPT), (1, "a")) == ((1, "a"), frozenset())
    assert filled((1, KEPT), None) == ((1, None), frozenset([1]))
    assert filled((1, KEPT), (1, "a"), frozenset([1])) == ((1, "a"), frozenset([1]))
    assert filled((1, LOST), (1, "a")) == ((1, "a"), frozenset([1]))
    first = RowChange(T, (1,), (1, "a"), Position(1, 72, 1).text())
    second = RowChange(T, (1,), (1, KEPT), STREAMED)
    assert newest([first, second])[T][1,].row == (1, "a")
    assert newest([first._replace(row=None), second])[T][1,].row == (1, LOST)


class _Kept:
    """A state in memory."""

    def __init__(self) -> None:
        plan = planned(DOCUMENTS, SHAPES)
        connection = sqlite3.connect(":memory:", isolation_level=None)
        self.rows = SqliteRows(connection, plan.relations)
        self.unseen = UnseenRows(connection, plan.relations)
        self.state = EmbeddedState(self.rows, self.unseen, plan)

    def apply(self, *changes: RowChange, fence: Fence = BEFORE, **more: object) -> None:
        self.state.apply(changes, fence=fence, **more)  # type: ignore[arg-type]

    @property
    def names(self) -> list[object]:
        return [name for (name,) in self.rows.every(T, ["name"])]


def test_v25_what_waits_is_replaced_swept_or_ripe() -> None:
    kept = _Kept()
    kept.apply(RowChange(T, (1,), (1, "old"), Position(1, 72, 1).text()), WHOLE)
    assert (kept.names, kept.unseen.waits) == (["old"], True)
    kept.apply(fence=RIPE)
    assert (kept.names, kept.unseen.waits) == (["new"], False)
    kept = _Kept()
    kept.apply(WHOLE)
    kept.apply(RowChange(T, (1,), (1, "newer"), Position(1, 88, 1).text()))
    assert (kept.names, kept.unseen.waits) == (["newer"], False)
    kept = _Kept()
    kept.apply(WHOLE)
    kept.apply(floors={T: Position(1, 88, 1).text()})
    kept.apply(fence=RIPE)
    assert (kept.names, kept.unseen.waits) == ([], False)


def test_v25_a_lost_value_blocks_its_documents_until_known() -> None:
    kept = _Kept()
    order = RowChange(TableName("public", "orders"), (7,), (7, 1), Position(1, 72, 1).text())
    kept.apply(order, SELECTED)
    assert kept.state.blocked() == {(7,)}
    assert kept.state.apply([], fence=RIPE) == {(7,)}
    assert (kept.state.blocked(), kept.names) == (set(), ["new"])
    # The value is as it was, and its document was parked meanwhile.
    again = SELECTED._replace(pos=Position(1, 208, 1).text(), ripe=Fence(1, 300), sure=False)
    assert kept.state.apply([again], fence=Fence(1, 210)) == {(7,)}
    assert kept.state.apply([], fence=Fence(1, 300)) == {(7,)}
    assert kept.names == ["new"]


def test_v25_a_claim_stays_below_a_value_that_is_not_known() -> None:
    with closing(ViewState(":memory:", planned(DOCUMENTS, SHAPES), 1)) as state:
        with state.transaction():
            state.note(fence=RIPE)
            state.unseen.note(T, {(1,): (frozenset([1]), BEFORE)})
        assert (state.claim(), state.sizes()) == (BEFORE, (0, 1))
        state.unseen.note(T, {(1,): (frozenset(), BEFORE)})
        assert (state.claim(), state.sizes()) == (RIPE, (0, 0))
