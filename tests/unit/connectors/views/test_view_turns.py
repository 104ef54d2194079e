"""The views of one process: each is opened by itself, and one that is away or stopped lets the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cdc.figures.view_metrics import ViewHealth
from cdc.process.clock import ManualClock
from cdc.process.errors import CdcError, ConfigError, Exit, LogError, TopicError
from cdc.views.log_cut import BEFORE_ALL, Fence
from cdc.views.state_reach import Reached, StateAway, StateForbidden
from cdc.views.view_plan import planned
from cdc.views.view_runner import Turn
from cdc.views.view_state import ViewState
from connectors.views.view_ending import sole_keeper
from connectors.views.view_turns import AGAIN_S, OpenedView, ViewTurns
from tests.unit.cdc.views.oracles import DOCUMENTS
from tests.unit.cdc.views.view_histories import SHAPES

AWAY = StateAway("the state is away", hint="look at its disk")


@dataclass
class Double:
    """A view that does nothing. ``at_open``, ``at_turn``: what it raises there, while that is set."""

    at_open: Exception | None = None
    at_turn: Exception | None = None
    tries: int = 0
    turns: int = 0
    open: int = 0
    path: Path = Path("/nowhere")
    level: bool = True
    claimed: Fence = BEFORE_ALL
    reached: Reached = field(default_factory=lambda: Reached(plan="p", generation=1))

    @contextmanager
    def opens(self) -> Iterator[OpenedView]:
        """Opens it."""
        self.tries += 1
        if self.at_open is not None:
            raise self.at_open
        self.open += 1
        yield OpenedView(self, self.path)
        self.open -= 1

    def turn(self) -> Turn:
        """A turn of nothing."""
        self.turns += 1
        if self.at_turn is not None:
            raise self.at_turn
        return Turn()

    def sizes(self) -> tuple[int, int]:
        """Nothing waits."""
        return 0, 0


def turns_of(clock: ManualClock, **views: Double) -> ViewTurns:
    return ViewTurns({name: view.opens for name, view in views.items()}, clock)


@pytest.mark.parametrize("place", ["at_open", "at_turn"])
def test_h452_an_exception_over_one_view_ends_no_other(place: str) -> None:
    clock, failing, other = ManualClock(), Double(), Double()
    setattr(failing, place, UnicodeEncodeError("utf-8", "the value of a row", 0, 1, "surrogates"))
    turns = turns_of(clock, failing=failing, other=other)
    for _ in range(5):
        turns.turned()
    assert (failing.tries, failing.open, other.turns) == (1, 0, 5)
    fault = turns.fault()
    assert fault is not None and "failing failed: UnicodeEncodeError at " in fault.message
    assert "the value" not in fault.message and fault.exit == Exit.BUG
    setattr(failing, place, None)
    clock.advance(AGAIN_S)
    turns.turned()
    assert failing.turns and turns.fault() is None
    alone = Double(at_turn=ValueError("x"))
    with pytest.raises(CdcError, match="alone failed: ValueError"):
        turns_of(clock, alone=alone).turned()


@pytest.mark.parametrize("place", ["at_open", "at_turn"])
def test_h469_a_view_that_fails_for_ever_is_tried_less_often(place: str) -> None:
    clock, failing, other = ManualClock(), Double(), Double()
    setattr(failing, place, ValueError("x"))
    turns = turns_of(clock, failing=failing, other=other)
    for _ in range(1_000):
        turns.turned()
        clock.advance(AGAIN_S)
    assert 30 < failing.tries < 45, "every five minutes at last"
    setattr(failing, place, None)
    clock.advance(600)
    turns.turned()
    assert (failing.open, turns.fault()) == (1, None)
    clock.advance(600)
    failing.at_turn = ValueError("y")
    turns.turned()
    tries = failing.tries
    clock.advance(AGAIN_S)
    turns.turned()
    assert failing.tries == tries + 1, "it has held, so it is tried as at first"


def test_h469_a_state_that_is_away_is_tried_as_often_as_ever() -> None:
    clock, away, other = ManualClock(), Double(AWAY), Double()
    turns = turns_of(clock, away=away, other=other)
    for _ in range(50):
        turns.turned()
        clock.advance(AGAIN_S)
    assert away.tries == 50


@pytest.mark.parametrize("place", ["at_open", "at_turn"])
def test_h259_a_view_that_is_away_lets_the_others_go_on(place: str) -> None:
    clock, away, other = ManualClock(), Double(), Double()
    setattr(away, place, AWAY)
    turns = turns_of(clock, away=away, other=other)
    health = ViewHealth(clock, 60.0, "shop", turns.figures)
    moved = [turns.turned() for _ in range(5)]
    assert moved[1:] == [True] * 4, "nothing moves, so nobody turns in haste"
    assert (away.tries, away.open, other.turns) == (1, 0, 5), "not tried again before its time"
    figures = turns.figures[0]
    assert (figures.away, figures.stopped, figures.known(clock.monotonic())) == (AWAY.message, "", False)
    assert health.ready() == (False, "away is away: the state is away")
    assert health.document()["views"]["away"]["away"] == "the state is away"
    clock.advance(AGAIN_S)
    turns.turned()
    assert (away.tries, away.open) == (2, 0)
    setattr(away, place, None)
    clock.advance(AGAIN_S)
    turns.turned()
    assert (away.open, figures.away, turns.fault()) == (1, "", None)
    assert figures.known(clock.monotonic())
    turns.close()
    assert (away.open, other.open) == (0, 0)


def test_h259_a_view_that_is_refused_at_its_start_stops_alone() -> None:
    clock, other = ManualClock(), Double()
    changed, anew = Double(ConfigError("another text")), Double(TopicError("its topic was made anew"))
    turns = turns_of(clock, changed=changed, anew=anew, other=other)
    for _ in range(3):
        turns.turned()
        clock.advance(AGAIN_S)
    assert (changed.tries, anew.tries, other.turns) == (1, 1, 3)
    assert [one.stopped for one in turns.figures] == ["another text", "its topic was made anew", ""]
    assert turns.fault() is changed.at_open, "the command ends with its exit code"


def test_h259_a_start_is_asked_for_where_it_helps() -> None:
    clock, stopped = ManualClock(), Double(ConfigError("another text"))
    away, other = Double(AWAY), Double()
    turns = turns_of(clock, stopped=stopped, away=away, other=other)
    turns.turned()
    other.at_turn = ConfigError("its key is not unique")
    with pytest.raises(StateAway) as ended:
        turns.turned()
    assert ended.value.exit is Exit.UNAVAILABLE, "a service manager starts it again"
    alone = turns_of(clock, stopped=stopped)
    with pytest.raises(ConfigError) as refused:
        alone.turned()
    assert refused.value.exit is Exit.CONFIG


def test_h259_a_broker_that_is_away_is_away_for_all() -> None:
    clock, broken, other = ManualClock(), Double(LogError("no broker answers")), Double()
    with pytest.raises(LogError):
        turns_of(clock, broken=broken, other=other).turned()


def test_h259_a_forbidden_folder_that_was_a_state_is_away() -> None:
    clock, other, mounted = ManualClock(), Double(), Double()
    turns = turns_of(clock, mounted=mounted, other=other)
    turns.turned()
    mounted.at_turn, mounted.at_open = AWAY, StateForbidden("permission denied")
    turns.turned()
    clock.advance(AGAIN_S)
    turns.turned()
    assert (turns.figures[0].away, turns.figures[0].stopped) == ("permission denied", "")
    never = turns_of(clock, never=mounted, other=other)
    never.turned()
    assert never.figures[0].stopped == "permission denied"


def test_h259_a_state_that_cannot_be_counted_is_away() -> None:
    clock, other, lost = ManualClock(), Double(), Double(path=Path("/" + "x" * 300))
    turns = turns_of(clock, lost=lost, other=other)
    turns.turned()
    assert "cannot be looked at: [Errno 36]" in turns.figures[0].away
    assert (lost.open, other.open) == (0, 1)


def test_h259_a_state_below_a_link_that_leads_nowhere_is_away(tmp_path: Path) -> None:
    (tmp_path / "mount").symlink_to(tmp_path / "disk")
    plan = planned(DOCUMENTS, SHAPES)
    with pytest.raises(StateAway, match="cannot be kept in"):
        ViewState(tmp_path / "mount" / "state", plan, 1)
    with pytest.raises(StateAway, match="cannot be kept in"), sole_keeper(tmp_path / "mount" / "state"):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be kept in"):
        ViewState(tmp_path / "file" / "state", plan, 1)
    with pytest.raises(ConfigError, match="cannot be kept in"):
        ViewState(tmp_path, plan, 1)
    with pytest.raises(ConfigError, match="cannot be kept in"), sole_keeper(tmp_path / "file" / "state"):
        pass
