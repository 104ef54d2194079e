"""From where on a table with a history is written again."""

from __future__ import annotations

from cdc.record.position import Position
from connectors.session.histories import seen_in_both

TABLE, HISTORY = 0, 1
LANES = {"t": (TABLE, 1), "t.history": (HISTORY, 1)}


def at(lsn: int) -> Position:
    return Position(1, lsn, 1)


def seen(held: dict[int, Position], left_out: dict[int, Position] | None = None) -> dict[int, Position]:
    return seen_in_both(held, {**held, **(left_out or {})}, {"t": "t.history"}, LANES.__getitem__)


def test_e1_the_lower_of_the_two_counts() -> None:
    assert seen({TABLE: at(9), HISTORY: at(7)})[TABLE] == at(7)
    assert seen({TABLE: at(7), HISTORY: at(9)})[TABLE] == at(7)
    assert TABLE not in seen({TABLE: at(9)})
    assert TABLE not in seen({HISTORY: at(9)})


def test_what_a_table_set_aside_leaves_out_stays_left_out() -> None:
    assert seen({TABLE: at(9), HISTORY: at(7)}, {TABLE: at(20)})[TABLE] == at(20)
    assert seen({}, {TABLE: at(20)})[TABLE] == at(20)
