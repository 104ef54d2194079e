"""Windows that close, over random histories with kills and states that are lost or copied back, beside a model."""

from __future__ import annotations

import random
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc.errors import ConfigError
from cdc.progress import Progress
from cdc.state import RequestState
from cdc.views.closing import Closing
from cdc.views.view_plan import planned
from cdc.views.view_state import ViewState
from cdc.views.window_keys import window_key
from tests.examples import examples
from tests.unit.cdc.views.view_histories import interfere
from tests.unit.cdc.views.window_histories import (
    CLOSE_S,
    HOPS,
    SESSIONS,
    SHAPES,
    SQL,
    ShownWindows,
    Window,
    WindowHistory,
    WindowRunner,
    late_of,
    minute_of,
    rows_in,
    runner_over,
    shown_windows,
    text_of,
    windows_of,
)

_ABSENT = "absent"


def _agree(
    runner: WindowRunner, history: WindowHistory, lsn: int, before: ShownWindows, went_back: bool
) -> ShownWindows:
    """What is shown at a claim: closed windows as they were at their closing and ever since, others as now."""
    shown, closed = shown_windows(runner), runner.topic.closed
    bound = None if closed is None else closed.us // 60_000_000
    late = late_of(runner)
    now, counted = windows_of(history.at(lsn), runner.sql), rows_in(history.at(lsn), runner.sql)
    newest = rows_in(history.rows, runner.sql)
    for window, at in before.closed.items():
        assert shown.closed[window] == at
        assert shown.rows[window] == before.rows[window]
    for window, at in shown.closed.items():
        assert window[1] is not None
        assert shown.rows[window] == windows_of(history.at(at), runner.sql)[window] | {"final": True}
        then, today = rows_in(history.at(at), runner.sql)[window], counted.get(window, {})
        for key in range(1, 7):
            # What left while there was no state of it is not known to have been there. Nor is what a state without it
            # cannot read any more: a newer record of the key, beyond the claim, has let it be compacted away. Nor what
            # was brought there by another row.
            gone = key not in today or newest.get(window, {}).get(key, _ABSENT) != today[key]
            brought = history.at(at)["lines"].get(key) == history.at(lsn)["lines"].get(key)
            if then.get(key, _ABSENT) != today.get(key, _ABSENT) and not ((gone or brought) and went_back):
                assert (window, key) in late
                # A state that was copied back tells of what it finds, not of what was told since.
                assert late[window, key]["op"] in ("d" if key not in today else "cu") or went_back
    for window, row in now.items():
        if window not in shown.closed and (window[1] is None or bound is None or minute_of(window[1]) > bound):
            assert shown.rows[window] == row
        elif window[1] is not None and window not in shown.closed:
            # It closed without rows. All that came is late.
            assert window not in shown.rows
            assert all((window, key) in late for key in counted[window])
    assert shown.rows.keys() <= now.keys() | shown.closed.keys()
    return shown


@pytest.mark.parametrize("sql", [SQL, HOPS, SESSIONS], ids=["tumbling", "hopping", "sessions"])
@settings(max_examples=examples(30))
@example(seed=1881159)
@example(seed=14574893)
@given(seed=st.integers(0, 2**32 - 1))
def test_v19_v21_closed_windows_stay_and_late_rows_show(
    sql: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    history = WindowHistory(chance)
    runner = runner_over(sql, history, tmp_path_factory.mktemp("view"), chance)
    shown, went_back = ShownWindows({}, {}), False
    for _ in range(12):
        for _ in range(chance.randint(0, 3)):
            history.transaction()
        if chance.random() < 0.7:
            history.progress()
        runner.kill_chance = 0.2
        for _ in range(chance.randint(0, 5)):
            runner.turn()
            if runner.level:
                shown = _agree(runner, history, runner.topic.claims[-1].lsn, shown, went_back)
        went_back = interfere(runner, chance) or went_back
        history.clock.advance(chance.choice([1, 20, 70]))
        if chance.random() < 0.3:
            history.compact()
        if chance.random() < 0.4 and history.input.newest is not None:
            shown = _agree(runner, history, runner.until_level().lsn, shown, went_back)
    runner.end()


def _closed_one(tmp_path: Path) -> tuple[WindowHistory, WindowRunner, Window]:
    """A window of one row, closed by another row's commit."""
    history = WindowHistory(random.Random(1))
    runner = WindowRunner(SQL, history, tmp_path)
    window = None, text_of(history.minute)
    history.write("lines", 1, {"id": 1, "at": window[1], "qty": 5})  # type: ignore[dict-item]
    history.progress_now()
    runner.until_level()
    history.clock.advance(CLOSE_S + 100)
    history.write("lines", 2, {"id": 2, "at": text_of(history.minute), "qty": 1})  # type: ignore[dict-item]
    history.progress_now()
    runner.until_level()
    return history, runner, window


def test_v19_late_rows_are_counted_and_kept(tmp_path: Path) -> None:
    history, runner, window = _closed_one(tmp_path)
    assert shown_windows(runner).rows[window]["final"] is True
    history.write("lines", 3, {"id": 3, "at": window[1], "qty": 7})  # type: ignore[dict-item]
    history.progress_now()
    runner.until_level()
    history.write("lines", 3, {"id": 3, "at": window[1], "qty": 8})  # type: ignore[dict-item]
    del history.rows["lines"][1]
    history._write("lines", 1, None, 2)
    history.progress_now()
    runner.until_level()
    assert shown_windows(runner).rows[window]["total"] == 5
    late = late_of(runner)
    assert {key: (value["op"], value["after"] and value["after"]["qty"]) for key, value in late.items()} == {
        (window, 3): ("u", 8),
        (window, 1): ("d", None),
    }
    reached = runner.opened[1].reached
    assert (reached.late, reached.left) == (2, 1)
    runner.end()


def test_v19_many_late_rows_are_out_before_the_claim(tmp_path: Path) -> None:
    history, runner, window = _closed_one(tmp_path)
    for key in range(10, 17):
        history.write("lines", key, {"id": key, "at": window[1], "qty": 1})  # type: ignore[dict-item]
    history.progress_now()
    newest = history.input.newest
    assert newest is not None
    while runner.topic.claims[-1].lsn < newest.lsn:
        runner.turn()
    assert len(late_of(runner)) == 7
    runner.end()


def test_v19_a_row_that_comes_as_it_was_is_not_late(tmp_path: Path) -> None:
    history, runner, window = _closed_one(tmp_path)
    history.write("lines", 1, {"id": 1, "at": window[1], "qty": 5})  # type: ignore[dict-item]
    history.progress_now()
    runner.until_level()
    assert late_of(runner) == {}
    runner.end()
    # Everything is computed anew.
    runner.bulk = 0
    history.write("lines", 2, {"id": 2, "at": text_of(history.minute), "qty": 2})  # type: ignore[dict-item]
    history.progress_now()
    runner.until_level()
    assert late_of(runner) == {}
    runner.end()
    (tmp_path / "state").unlink()
    runner.until_level()
    assert shown_windows(runner).rows[window]["final"] is True
    runner.end()


def test_h492_a_split_session_tells_of_rows_that_it_moved(tmp_path: Path) -> None:
    """The second part begins before the time up to which windows are closed, and nothing of it is shown."""
    history = WindowHistory(random.Random(1))
    runner = WindowRunner(SESSIONS, history, tmp_path)
    begin = history.minute
    for key in (1, 2, 3):
        row = {"id": key, "at": text_of(begin + key), "qty": key, "who": 1}
        history.write("lines", key, row)  # type: ignore[arg-type]
    history.progress_now()
    runner.until_level()
    history.clock.advance(5 * CLOSE_S)
    history.write("lines", 4, {"id": 4, "at": text_of(history.minute), "qty": 1, "who": 1})  # type: ignore[dict-item]
    history.progress_now()
    runner.until_level()
    assert set(shown_windows(runner).closed) == {(1, text_of(begin + 1))}
    runner.end()
    (tmp_path / "state").unlink()
    del history.rows["lines"][2]
    history.lsn += 8
    history._write("lines", 2, None, 1)
    history.progress_now()
    runner.until_level()
    assert {of: value["op"] for of, value in late_of(runner).items()} == {((1, text_of(begin + 3)), 3): "c"}
    runner.end()


def test_h492_a_copied_state_does_not_know_what_was_closed(tmp_path: Path) -> None:
    """It has a row that had left before the windows closed, and came again, otherwise."""
    history = WindowHistory(random.Random(1))
    runner = WindowRunner(HOPS, history, tmp_path)
    begin = history.minute
    for key in (1, 2):
        history.write("lines", key, {"id": key, "at": text_of(begin), "qty": key})  # type: ignore[dict-item]
    history.progress_now()
    runner.until_level()
    runner.end()
    shutil.copy(tmp_path / "state", tmp_path / "kept")
    history.lsn += 8
    history._write("lines", 2, None, 1)
    history.clock.advance(CLOSE_S + 100)
    history.write("lines", 3, {"id": 3, "at": text_of(history.minute), "qty": 1})  # type: ignore[dict-item]
    history.progress_now()
    runner.until_level()
    assert shown_windows(runner).rows[None, text_of(begin - 1)]["n"] == 1
    runner.end()
    shutil.copy(tmp_path / "kept", tmp_path / "state")
    # The deletion is taken for the sake of what is beyond the next cut.
    history.progress_now()
    history.write("lines", 2, {"id": 2, "at": text_of(begin - 1), "qty": 2})  # type: ignore[dict-item]
    history.clock.advance(70)
    history.compact()
    runner.turn()
    assert not runner.opened[1].reached.proven
    history.progress_now()
    runner.until_level()
    assert {((None, text_of(begin - back)), 2) for back in (1, 2, 3)} <= set(late_of(runner))
    runner.end()


def test_v19_no_window_closes_while_the_source_is_behind(tmp_path: Path) -> None:
    history = WindowHistory(random.Random(1))
    runner = WindowRunner(SQL, history, tmp_path)
    window = text_of(history.minute)
    history.write("lines", 1, {"id": 1, "at": window, "qty": 5})  # type: ignore[dict-item]
    # Capture writes its progress long after the commit: more of that time may come.
    history.clock.advance(CLOSE_S * 5)
    history.progress_now()
    runner.until_level()
    assert shown_windows(runner).closed == {}
    newest = history.input.newest
    assert newest is not None
    # It has heard that there is nothing.
    heard_ms = history.clock.now_ns() // 1_000_000
    history.input.newest = Progress(epoch=1, lsn=newest.lsn + 8, offsets=newest.offsets, heartbeat_ms=heard_ms)
    runner.until_level()
    assert (None, window) in shown_windows(runner).closed
    runner.end()


def test_v19_a_view_that_closed_windows_needs_its_close(tmp_path: Path) -> None:
    _, runner, _ = _closed_one(tmp_path)
    runner.end()
    plan = planned(SQL, SHAPES)
    state = ViewState(tmp_path / "state", plan, 1)
    with pytest.raises(ConfigError, match=r"windows of the view in .* are closed, and it has no close any more"):
        Closing(plan, state, None, "t.view.v.late")
    state.close()


@pytest.mark.parametrize(
    ("sql", "column", "said"),
    [
        ("select l.id, l.qty from lines l", "", "the view has no groups"),
        ("select l.qty, count(*) as n from lines l group by 1", "", "no column of the view's key has a time"),
        ("select l.at, l.at::date as day, count(*) as n from lines l group by 1, 2", "", "several columns"),
        ("select l.at, count(*) as n from lines l group by 1", "n", "n is no date or timestamp in the view's key"),
    ],
)
def test_v19_a_view_without_a_window_has_no_close(sql: str, column: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        window_key("v", planned(sql, SHAPES), timedelta(days=7), column)


def test_h467_no_window_closes_while_rows_are_awaited(tmp_path: Path) -> None:
    history = WindowHistory(random.Random(1))
    runner = runner_over(SQL, history, tmp_path, random.Random(1))
    for _ in range(4):
        history.transaction()
    history.progress_now()
    runner.until_level()
    request = RequestState(id="snapshot:public.lines", table="public.lines", after_lsn=8, reason="rewritten", serial=1)
    history.input.state[request.key()] = request.to_json()
    before = runner.topic.closed
    history.clock.advance(20 * CLOSE_S)
    history.transaction()
    history.progress_now()
    for _ in range(4):
        runner.turn()
    assert runner.topic.closed == before, "its last figure would be one of rows that are to be read again"
    del history.input.state[request.key()]
    history.transaction()
    history.progress_now()
    runner.until_level()
    assert runner.topic.closed != before
    runner.end()
