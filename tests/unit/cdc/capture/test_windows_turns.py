"""What a window has to do at each turn, who is told, and which rows a TRUNCATE leaves out."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread

import pytest

from cdc.capture import windows as module
from cdc.capture.transaction_visibility import Visibility, VisibilityGate
from cdc.capture.windows import Closed, Moment, Overrun, Window, WindowPairs, Windows, Written
from cdc.process.errors import SourceError
from cdc.record.ports import Headers
from cdc.record.position import CHUNK_SEQ, Position
from tests.unit.cdc.capture.test_windows import FIRST_XID, World

READ: Headers = [("pos", b""), ("op", b"r")]
TIMEOUT_S = 20
MOMENT_S = 0.1
"""How long an answer stays away that must not come."""


def world() -> World:
    return World(VisibilityGate(Visibility(FIRST_XID, frozenset())))


def busy(windows: Windows) -> bool:
    return windows.busy


def granted(there: World) -> Window:
    window = there.windows.ask("t")
    there.windows.turn(Moment(80, 0, 0))
    assert window.position == Position(1, 72, CHUNK_SEQ)
    return window


def told(call: Callable[[], object]) -> SimpleQueue[object]:
    """What a call in a thread of its own returns or raises."""
    answers: SimpleQueue[object] = SimpleQueue()

    def work() -> None:
        try:
            answers.put(call())
        except Closed as closed:
            answers.put(closed)

    Thread(target=work, daemon=True).start()
    with pytest.raises(Empty):
        answers.get(timeout=MOMENT_S)
    return answers


def test_work_is_left_until_the_broker_has_the_rows() -> None:
    windows = (there := world()).windows
    windows.after_lsn = 50
    assert not busy(windows)
    window = windows.ask("t")
    assert busy(windows)
    windows.turn(Moment(50, 0, 0))
    assert busy(windows), "it waits for the stream to pass what the log holds"
    windows.turn(Moment(80, 0, 0))
    assert not busy(windows), "its reader reads"
    windows.offer(window, WindowPairs(pairs=[(b"\0", b"v")], headers=READ))
    assert busy(windows)
    windows.turn(Moment(80, 72, 0))
    assert busy(windows), "its changes are not surely held yet"
    windows.turn(Moment(80, 73, 0))
    assert busy(windows), "the broker has not answered"
    assert len(there.log) == 1
    windows.turn(Moment(80, 73, 1))
    assert not busy(windows)
    assert window.outcome == Written(1, 0)


def test_what_is_reached_is_kept_inside_a_transaction() -> None:
    windows = world().windows
    assert windows.reached == 0
    windows.turn(Moment(None, 0, 0))
    assert windows.reached == 0
    windows.turn(Moment(80, 0, 0))
    windows.turn(Moment(None, 0, 0))
    assert windows.reached == 80


def test_the_first_failure_is_the_one_raised() -> None:
    there = world()
    there.windows.fail(SourceError("first"))
    there.windows.fail(SourceError("second"))
    with pytest.raises(SourceError, match="first"):
        there.turn()


@pytest.mark.parametrize(("reached", "commit_lsn"), [(80, 72), (81, 80), (87, 80), (88, 80)])
def test_a_windows_rows_are_above_the_last_streamed_commit(reached: int, commit_lsn: int) -> None:
    windows = world().windows
    window = windows.ask("t")
    windows.turn(Moment(reached, 0, 0))
    assert window.position == Position(1, commit_lsn, CHUNK_SEQ)


def test_who_waits_is_told_when_it_is_so() -> None:
    windows = world().windows
    window = windows.ask("t")
    position = told(lambda: windows.granted(window))
    windows.turn(Moment(80, 0, 0))
    assert position.get(timeout=TIMEOUT_S) == Position(1, 72, CHUNK_SEQ)
    outcome = told(lambda: windows.outcome(window))
    windows.offer(window, WindowPairs(pairs=[(b"\0", b"v")], headers=READ))
    windows.turn(Moment(80, 80, 1))
    assert outcome.get(timeout=TIMEOUT_S) == Written(1, 0)


@pytest.mark.parametrize("wait", [Windows.granted, Windows.outcome])
def test_who_waits_is_told_that_the_session_is_over(wait: Callable[[Windows, Window], object]) -> None:
    windows = world().windows
    window = windows.ask("t")
    answer = told(lambda: wait(windows, window))
    windows.close()
    assert isinstance(answer.get(timeout=TIMEOUT_S), Closed)


def test_h74_a_truncate_leaves_every_row_of_an_open_window_out() -> None:
    there = world()
    window = granted(there)
    there.windows.offer(window, WindowPairs(pairs=[(b"\0", b"v"), (b"\1", b"v")], headers=READ))
    there.windows.touch([(10, b"", b"", [("pos", b"u"), ("op", b"t")])])
    there.windows.turn(Moment(80, 80, 0))
    assert there.log == []
    assert there.windows.outcome(window) == Written(0, 2)
    assert window.touched == set()


def test_an_update_leaves_one_key_out_whatever_its_position_says() -> None:
    there = world()
    window = granted(there)
    there.windows.touch([(10, b"\0", b"", [("pos", b"t"), ("op", b"u")])])
    there.windows.offer(window, WindowPairs(pairs=[(b"\0", b"v"), (b"\1", b"v")], headers=READ))
    there.windows.turn(Moment(80, 80, 1))
    assert [(lane, key) for lane, key, _, _ in there.log] == [(11, b"\1")]
    assert there.windows.outcome(window) == Written(1, 1)


def test_as_many_changes_as_can_be_noted_are_no_overrun() -> None:
    there = world()
    window = granted(there)
    records = [(10, n.to_bytes(4), b"", [("pos", b""), ("op", b"u")]) for n in range(module.TOUCHED_KEYS)]
    there.windows.touch(records)
    assert not window.overrun
    assert len(window.touched) == module.TOUCHED_KEYS


MARK: Headers = [("pos", b""), ("op", b"t")]


def rows(*keys: bytes, headers: Headers = READ) -> WindowPairs:
    return WindowPairs(pairs=[(key, b"v") for key in keys], headers=headers)


def pair(there: World) -> tuple[Window, Window]:
    """Two windows of one table; the second stands above the first."""
    low = granted(there)
    high = there.windows.ask("t")
    there.windows.turn(Moment(160, 0, 0))
    return low, high


def test_h99_a_lower_window_leaves_out_what_a_higher_one_writes() -> None:
    there = world()
    low, high = pair(there)
    there.windows.offer(high, rows(b"\0"))
    there.windows.turn(Moment(160, 160, 0))
    there.windows.offer(low, rows(b"\0", b"\1"))
    there.windows.turn(Moment(160, 160, 0))
    assert [key for _, key, _, _ in there.log] == [b"\0", b"\1"]
    there.windows.turn(Moment(160, 160, 9))
    assert (low.outcome, high.outcome) == (Written(1, 1), Written(1, 0))


def test_h99_a_mark_of_a_higher_window_leaves_nothing_out() -> None:
    there = world()
    low, high = pair(there)
    there.windows.offer(high, rows(b"mark", headers=MARK))
    there.windows.turn(Moment(160, 160, 0))
    there.windows.offer(low, rows(b"\0", b"mark"))
    there.windows.turn(Moment(160, 160, 9))
    assert low.outcome == Written(2, 0)


def test_each_window_is_settled_when_its_own_rows_are_stored() -> None:
    there = world()
    low, high = pair(there)
    there.windows.offer(low, rows(b"\0"))
    there.windows.offer(high, rows(b"\1"))
    there.windows.turn(Moment(160, 160, 0))
    there.windows.turn(Moment(160, 160, 1))
    assert (low.outcome, high.outcome) == (Written(1, 0), None)


def test_a_window_that_is_over_notes_no_more_keys() -> None:
    there = world()
    written, given_up = pair(there)
    there.windows.offer(written, rows(b"\0"))
    there.windows.turn(Moment(160, 160, 9))
    there.windows.give_up(given_up)
    there.windows.turn(Moment(160, 160, 9))
    there.windows.touch([(10, b"\0", b"", [("pos", b"u"), ("op", b"u")])])
    assert (written.touched, given_up.touched) == (set(), set())


def test_h121_a_waiting_tables_window_ends_and_stops_no_other() -> None:
    there = world()
    one, other = pair(there)
    there.windows.offer(one, rows(b"\0"))
    there.windows.turn(Moment(160, 160, 0, waiting=frozenset({10})))
    assert isinstance(one.outcome, Overrun)
    there.windows.touch([(10, b"\0", b"", [("pos", b"u"), ("op", b"u")])])
    assert one.touched == set()
    there.windows.offer(other, rows(b"\1"))
    there.windows.turn(Moment(160, 160, 9))
    assert other.outcome == Written(1, 0)
