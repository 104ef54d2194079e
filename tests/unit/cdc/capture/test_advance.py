"""What may be acknowledged: never beyond what the broker surely holds, and always in the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.capture.advance import BUSY_S, IDLE_S, QUICK_S, ProgressMarks

STEPS = st.lists(
    st.tuples(st.sampled_from(["commit", "keepalive", "ack", "write"]), st.integers(1, 5), st.integers(0, 3)),
    max_size=60,
)


@given(STEPS)
def test_h1_h2_h3b_h79_position_never_passes_what_is_held(steps: list[tuple[str, int, int]]) -> None:
    advance = ProgressMarks(100, now_s=0.0)
    lsn, group, acked, now_s = 100, 0, 0, 0.0
    marks: list[tuple[int, int]] = []
    records: list[tuple[int, int]] = []
    before = advance.position
    for what, step, size in steps:
        now_s += 0.3
        match what:
            case "commit":
                lsn, group = lsn + 8 * step, group + size
                advance.commit(lsn, group, rows=size)
                marks.append((group, lsn))
            case "keepalive":
                lsn += 8 * step
                advance.keepalive(lsn, group)
                marks.append((group, lsn))
            case "ack":
                acked = min(group, acked + step)
                advance.acked(acked)
            case "write" if advance.due_s(now_s) == 0:
                group += 1
                records.append((group, advance.durable))
                advance.writing(group, size_bytes=100, now_s=now_s)
        unacked = [at for number, at in marks if number > acked]
        assert advance.durable < min(unacked, default=1 << 62)
        held_records = [at for number, at in records if number <= acked]
        assert advance.position <= max(held_records, default=100)
        assert advance.position >= before
        before = advance.position


def test_quiet_is_counted_from_a_record_with_nothing_left_to_say() -> None:
    """Heartbeats are for a source with nothing new: one is never taken for another's news."""
    advance = ProgressMarks(100, now_s=10.0)
    assert (advance.idle, advance.quiet_s(14.0)) == (True, BUSY_S + 4)
    advance.commit(200, group=1, rows=1)
    assert (advance.idle, advance.quiet_s(14.0)) == (False, 0), "the broker owes an answer"
    advance.acked(1)
    assert (advance.waiting, advance.quiet_s(14.0)) == (False, 0), "the record that says it is not written"
    advance.writing(2, size_bytes=100, now_s=14.0)
    assert (advance.idle, advance.quiet_s(15.0)) == (True, 0), "the record is on its way"
    advance.acked(2)
    assert advance.quiet_s(17.0) == 3


@given(STEPS)
def test_everything_is_acknowledged_in_the_end(steps: list[tuple[str, int, int]]) -> None:
    advance = ProgressMarks(0, now_s=0.0)
    lsn = group = 0
    for what, step, size in steps:
        lsn, group = lsn + 8 * step, group + size
        if what == "commit":
            advance.commit(lsn, group, rows=1)
        else:
            advance.keepalive(lsn, group)
    now_s = 0.0
    while not advance.settled:
        now_s += BUSY_S
        advance.acked(group)
        if advance.due_s(now_s) == 0:
            group += 1
            advance.writing(group, size_bytes=10, now_s=now_s)
    assert advance.position == lsn


def test_h81_a_progress_record_is_stored_before_the_mark_moves() -> None:
    advance = ProgressMarks(0, now_s=0.0)
    advance.commit(80, group=1, rows=1)
    advance.acked(1)
    assert (advance.durable, advance.position) == (80, 0)
    advance.writing(2, size_bytes=10, now_s=0.0)
    assert advance.position == 0
    advance.acked(2)
    assert advance.position == 80


def test_h3_keepalive_waits_for_what_came_before_it() -> None:
    advance = ProgressMarks(0, now_s=0.0)
    advance.commit(80, group=1, rows=1)
    advance.keepalive(400, group=1)
    assert advance.durable == 0
    advance.acked(1)
    assert advance.durable == 400


def test_progress_is_quick_at_rest_and_slower_under_load() -> None:
    def due_s(rows: int, size_bytes: int = 100) -> float | None:
        advance = ProgressMarks(0, now_s=-10.0)
        advance.keepalive(8, group=0)
        advance.acked(0)
        advance.writing(1, size_bytes=size_bytes, now_s=0.0)
        advance.acked(1)
        if rows:
            advance.commit(16, group=2, rows=rows)
        else:
            advance.keepalive(16, group=2)
        advance.acked(2)
        return advance.due_s(0.0)

    assert due_s(rows=1) == QUICK_S
    assert due_s(rows=5000) == BUSY_S
    assert due_s(rows=0) == IDLE_S
    assert due_s(rows=1, size_bytes=2_000_000) == 10.0


def test_nothing_is_due_without_news_or_while_one_is_on_its_way() -> None:
    advance = ProgressMarks(0, now_s=0.0)
    assert advance.due_s(100.0) is None
    advance.keepalive(8, group=0)
    advance.acked(0)
    assert advance.due_s(100.0) == 0
    advance.writing(1, size_bytes=10, now_s=100.0)
    assert advance.due_s(200.0) is None
    assert not advance.settled


@given(
    st.lists(st.tuples(st.sampled_from(["commit", "wait", "follow", "ack", "write"]), st.integers(1, 3)), max_size=60)
)
def test_h95_the_mark_never_passes_what_waits_or_is_not_stored(steps: list[tuple[str, int]]) -> None:
    """Waiting records lie at commit LSNs; those that follow go out in a group of their own."""
    advance = ProgressMarks(96, now_s=0.0)
    lsn, group, acked, now_s = 96, 0, 0, 0.0
    waiting: list[int] = []
    sent: list[tuple[int, int]] = []
    for what, step in steps:
        now_s += 0.6
        match what:
            case "commit" | "wait":
                lsn += 8 * step
                group += 1
                if what == "wait":
                    waiting.append(lsn)
                advance.waits(min(waiting, default=None), group)
                advance.commit(lsn + 4, group, rows=1)
            case "follow" if waiting:
                group += 1
                sent += [(group, waiting.pop(0)) for _ in range(min(step, len(waiting)))]
                advance.waits(min(waiting, default=None), group)
            case "ack":
                acked = min(group, acked + step)
                advance.acked(acked)
            case "write" if advance.due_s(now_s) == 0:
                group += 1
                advance.writing(group, size_bytes=100, now_s=now_s)
        missing = waiting + [at for number, at in sent if number > acked]
        assert advance.durable <= min(missing, default=1 << 62)
    advance.waits(None, group)
    advance.acked(group)
    assert advance.durable == max(96, lsn + 4 if lsn > 96 else 96)


def paced(rows: int | None) -> float | None:
    """Seconds between records in a session that has written none, after so many rows; None for a keepalive."""
    advance = ProgressMarks(0, now_s=BUSY_S)
    if rows is None:
        advance.keepalive(8, group=1)
    else:
        advance.commit(8, group=1, rows=rows)
    advance.acked(1)
    return advance.due_s(0.0)


def test_the_pace_is_that_of_what_came_since_the_last_record() -> None:
    assert [paced(None), paced(1), paced(1000), paced(1001)] == [IDLE_S, QUICK_S, QUICK_S, BUSY_S]
    assert 0 < QUICK_S < IDLE_S < BUSY_S <= 1, "who waits for his own write waits a second at most"
    advance = ProgressMarks(0, now_s=0.0)
    for lsn, rows in ((8, 1001), (16, 1000)):
        advance.commit(lsn, group=lsn, rows=rows)
        advance.acked(lsn)
        assert advance.due_s(0.0) == (0 if lsn == 8 else QUICK_S)
        advance.writing(lsn + 1, size_bytes=10, now_s=0.0)
        advance.acked(lsn + 1)
    advance.keepalive(24, group=17)
    advance.acked(17)
    assert advance.due_s(0.0) == IDLE_S


def test_each_stored_group_moves_the_mark_to_its_transactions() -> None:
    advance = ProgressMarks(0, now_s=0.0)
    advance.commit(80, group=1, rows=1)
    advance.commit(120, group=1, rows=1)
    advance.commit(160, group=3, rows=1)
    assert (advance.reached, advance.durable) == (160, 0)
    advance.acked(1)
    assert (advance.durable, advance.waiting, advance.settled) == (120, True, False)
    advance.acked(3)
    assert (advance.durable, advance.waiting) == (160, False)
    assert not advance.settled, "no progress record says it yet"
    advance.keepalive(160, group=5)
    assert not advance.waiting, "what was said before is not waited for"


def test_h121_what_is_stored_of_the_others_passes_what_waits() -> None:
    advance = ProgressMarks(0, now_s=0.0)
    assert (advance.stored, advance.reached) == (0, 0)
    advance.waits(56, group=1)
    assert advance.waiting
    advance.commit(80, group=1, rows=1)
    advance.acked(1)
    assert (advance.durable, advance.stored, advance.waiting) == (56, 80, False)


def test_h95_each_acknowledged_waiting_part_moves_the_mark() -> None:
    advance = ProgressMarks(0, now_s=0.0)
    advance.waits(16, group=1)
    advance.waits(24, group=2)
    advance.commit(80, group=2, rows=1)
    advance.waits(32, group=5)
    advance.acked(2)
    assert advance.durable == 24
    advance.acked(5)
    assert advance.durable == 32


def test_the_highest_lsn_passes_where_nothing_waits() -> None:
    advance = ProgressMarks(0, now_s=0.0)
    advance.commit(2**64 - 8, group=1, rows=1)
    advance.acked(1)
    assert advance.durable == 2**64 - 8
