"""Rows of a grouped view that nothing can be computed from: no LSN is claimed before their groups are out (V8)."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from cdc.record.schema import TableSchema
from cdc.views.log_cut import Fence
from cdc.views.view_plan import planned
from cdc.views.view_state import ViewState
from tests.memory_views import MemoryViewInput
from tests.unit.cdc.views.view_histories import SHAPES, History, Runner, shown, table_of, whole_at

NARROW = (table_of("lines", {"id": "int4", "order_id": "int4", "qty": "int4"}),)
WIDE = (table_of("lines", {"id": "int4", "order_id": "int4", "qty": "int8"}),)
SQL = """select l.order_id, count(*) as n, sum((l.qty * 2)::numeric) as total from lines l group by l.order_id"""
GREAT = 2**31 - 1


@dataclass
class Lines(History):
    """``shapes``: of the tables as of now."""

    shapes: tuple[TableSchema, ...] = NARROW
    input: MemoryViewInput = field(default_factory=lambda: MemoryViewInput({one.topic: one for one in SHAPES}))

    def __post_init__(self) -> None:
        self.input.shapes = {one.topic: one for one in (*SHAPES, *self.shapes)}

    def line(self, key: int, order: int, qty: int) -> None:
        """One row, below the fence."""
        self.write("lines", key, {"id": key, "order_id": order, "qty": qty})
        self.progress_now()


def claims_of(runner: Runner, turns: int = 6) -> list[tuple[Fence, dict[bytes, object]]]:
    """Each claim of some turns, with what the topic shows behind the turn that it was made in."""
    found = []
    for _ in range(turns):
        before = len(runner.topic.claims)
        runner.turn()
        found += [(claim, shown(runner.topic)) for claim in runner.topic.claims[before:]]
    return found


def failing(tmp_path: Path) -> tuple[Lines, Runner]:
    """Rows of three orders of which nothing can be computed, each in a cut of its own, behind a claim."""
    history = Lines(random.Random(1))
    runner = Runner(SQL, history, tmp_path, shapes=NARROW)
    history.line(1, 1, 5)
    runner.until_level()
    for key in (1, 2, 3):
        history.line(key, key, GREAT)
        assert claims_of(runner, 2) == [], "they are below no claim"
    return history, runner


def test_h547_a_row_that_fails_leaves_its_former_part(tmp_path: Path) -> None:
    history, runner = failing(tmp_path)
    former = {b'{"order_id":1}': {"order_id": 1, "n": 1, "total": "10"}}
    assert shown(runner.topic) == former
    history.line(4, 1, 1)
    claims_of(runner, 3)
    assert shown(runner.topic) == {b'{"order_id":1}': {"order_id": 1, "n": 2, "total": "12"}}
    history.delete("lines", 1)
    history.progress_now()
    claims_of(runner, 3)
    assert shown(runner.topic) == {b'{"order_id":1}': {"order_id": 1, "n": 1, "total": "2"}}
    runner.end()


def test_h487_wider_types_claim_what_is_out(tmp_path: Path) -> None:
    history, runner = failing(tmp_path)
    runner.end()
    # The source rests. What waits is more than one piece.
    runner.shapes = history.input.shapes = WIDE  # type: ignore[assignment]
    history.input.shapes = {one.topic: one for one in WIDE}
    claims = claims_of(runner)
    assert [claim for claim, _ in claims][-1:] == [Fence(1, history.lsn + 4)]
    whole = {b'{"order_id":%d}' % key for key in (1, 2, 3)}
    assert all(there.keys() == whole for claim, there in claims if claim == whole_at(runner.topic))
    runner.end()


def test_h487_a_row_that_fails_again_stays_where_it_was(tmp_path: Path) -> None:
    history, runner = failing(tmp_path)
    claimed = runner.topic.claims[-1]
    history.line(1, 1, GREAT - 1)
    claims_of(runner, 3)
    assert runner.opened[1].claim() == claimed
    runner.end()


def test_h487_what_is_computed_again_is_out_before_the_claim(tmp_path: Path) -> None:
    history, runner = failing(tmp_path)
    for key in (2, 3, 1):
        history.write("lines", key, {"id": key, "order_id": key, "qty": 7})
    history.progress_now()
    for claim, there in claims_of(runner):
        totals = {key: row["total"] for key, row in there.items()}  # type: ignore[index]
        assert totals == {b'{"order_id":%d}' % key: "14" for key in (1, 2, 3)}, f"at {claim}"
    assert runner.level
    runner.end()


def test_h487_a_build_claims_nothing_below_a_row_that_fails(tmp_path: Path) -> None:
    history, runner = failing(tmp_path)
    claimed = runner.topic.claims[-1]
    runner.end()
    (tmp_path / "state").unlink()
    # The cleaner may have taken something of the first cut, so the second one ends the build.
    history.clock.advance(60)
    history.write("lines", 4, {"id": 4, "order_id": 4, "qty": 1})
    assert claims_of(runner, 2) == []
    reached = runner.opened[1].reached
    assert not reached.built
    history.progress_now()
    assert claims_of(runner) == []
    reached = runner.opened[1].reached
    assert reached.built
    assert b'{"order_id":4}' in shown(runner.topic)
    assert runner.topic.claims[-1] == claimed
    runner.end()


def test_h487_a_key_that_waits_keeps_the_lesser_fence() -> None:
    with closing(ViewState(":memory:", planned(SQL, NARROW), 1)) as state:
        for found, kept in ((Fence(1, 44), 44), (Fence(1, 20), 20), (Fence(1, 36), 20), (Fence(1, 20), 20)):
            with state.transaction():
                state.note(fence=Fence(1, 52))
                state.queue([(1,)], found)
            assert state.claim() == Fence(1, kept)
