"""The positions of what a view publishes at one fence, when another state has published there before."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cdc.record.position import Position
from cdc.views.log_cut import BEFORE_ALL, NEVER, Fence
from cdc.views.runner_rules import published_before
from cdc.views.state_reach import Reached
from cdc.views.view_plan import planned
from cdc.views.view_records import ViewRecords
from tests.unit.cdc.views.view_histories import SHAPES

RECORDS = ViewRecords(planned("select id from orders", SHAPES), "v", "t.view.v.1", 2, name="t", database="d")
FENCE = Fence(2, 800)
fences = st.builds(Fence, st.integers(1, 3), st.integers(1, 5).map(lambda n: n * 8))


def positions(above: Position) -> list[Position]:
    """Of a document, a deletion and its tombstone."""
    records = [
        *RECORDS.document((1,), '{"id":1}', above, known=False, now_ns=0),
        *RECORDS.deletion((1,), above, 0),
    ]
    return [Position.parse(dict(record.headers)["pos"].decode()) for record in records]


def opened(reached: Reached, newest: Position | None, *, anew: bool = False, above: Fence = BEFORE_ALL) -> Reached:
    return Reached(plan="", generation=1, **published_before(reached, reached.published, newest, above, anew=anew))


@given(fences, fences, st.integers(1, 3))
def test_v19_a_new_state_is_heard_above_what_it_finds(found: Fence, fence: Fence, number: int) -> None:
    newest = Position(*found, number)
    reached = opened(Reached(plan="", generation=1), newest)
    assert reached.published == found
    made = positions(reached.numbered_above(max(found, fence)))
    assert all(before < after for before, after in pairwise([newest, *made]))
    assert {Fence(pos.epoch, pos.commit_lsn) for pos in made} == {max(found, fence)}


@given(st.lists(st.booleans(), max_size=5))
def test_v19_a_state_thrown_away_again_and_again_is_heard(known: list[bool]) -> None:
    """``known``: whether the next one is the state that published last, or one that knows of nothing."""
    newest, reached = Position(*FENCE, 3), Reached(plan="", generation=1)
    for same in known:
        reached = opened(reached if same else Reached(plan="", generation=1), None if same else newest)
        made = positions(reached.numbered_above(FENCE))
        assert min(made) > newest or same
        newest = max(newest, *made)


def test_h466_what_other_types_give_is_heard_at_the_same_fence() -> None:
    before = Reached(plan="", generation=1, published=FENCE)
    own = positions(before.numbered_above(FENCE))
    after = positions(opened(before, None, anew=True).numbered_above(FENCE))
    assert max(own) < min(after)
    again = opened(opened(before, None, anew=True), None, anew=True)
    assert max(after) < min(positions(again.numbered_above(FENCE)))


def test_v19_the_numbers_of_one_fence_are_not_those_of_the_next() -> None:
    reached = opened(Reached(plan="", generation=1), Position(*FENCE, 6))
    assert reached.numbered_above(Fence(2, 808)) == Position(2, 808, 0)
    assert Reached.from_json(reached.to_json()) == reached


def test_h244_other_generations_say_how_new_a_build_is() -> None:
    reached = Reached(plan="", generation=1, sweep=Fence(1, 8))
    assert opened(reached, None, above=FENCE).sweep == FENCE
    assert opened(reached, None, above=NEVER).sweep == Fence(1, 8)
    assert opened(Reached(plan="", generation=1), None, above=FENCE).sweep is None
