"""Two looks at a slot and the stored offsets: what they show of a connector that says RUNNING."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc.process.clock import ManualClock
from connectors.debezium.offsets import SlotSample, Streaming, judge, watch


def look(pid: int | None = 7, age_s: float | None = 60.0, writes: int = 5, offsets: int = 1) -> SlotSample:
    return SlotSample(pid=pid, age_s=age_s, writes=writes, offsets=offsets)


@pytest.mark.parametrize(
    ("first", "last", "between_s", "found"),
    [
        (look(), look(age_s=61.0), 1.0, Streaming.IDLE),
        (look(), look(writes=9, offsets=2), 1.0, Streaming.READS),
        # It may read, and Kafka takes nothing of it.
        (look(), look(writes=9), 15.0, Streaming.UNSTORED),
        (look(), look(pid=None, age_s=None), 16.0, Streaming.RESTARTS),
        (look(age_s=8.0), look(age_s=9.0), 1.0, Streaming.RESTARTS),
        (look(age_s=2.0), look(pid=8, age_s=6.0), 16.0, Streaming.RESTARTS),
        # Our role may not see others' sessions: what was watched counts, and the offsets.
        (look(age_s=None), look(age_s=None), 14.9, Streaming.RESTARTS),
        (look(age_s=None), look(age_s=None, writes=9), 15.0, Streaming.UNSTORED),
        (look(age_s=None), look(age_s=None, writes=9, offsets=2), 15.0, Streaming.READS),
        (look(age_s=None), look(pid=8, age_s=None), 16.0, Streaming.RESTARTS),
    ],
)
def test_h116_a_connector_that_begins_anew_does_not_read(
    first: SlotSample, last: SlotSample, between_s: float, found: Streaming
) -> None:
    assert judge(first, last, between_s) is found
    assert found.good is (found in (Streaming.IDLE, Streaming.READS))


class SlotOverTime:
    """A connector over time: a look each second. Stored offsets move at ``stored_s``."""

    def __init__(self, clock: ManualClock, stored_s: float) -> None:
        self._clock = clock
        self._began_s = clock.monotonic()
        self._stored_s = stored_s

    def __call__(self) -> SlotSample:
        passed_s = self._clock.monotonic() - self._began_s
        return look(writes=int(passed_s), offsets=int(passed_s >= self._stored_s))


@pytest.mark.parametrize(
    ("stored_s", "found", "within_s"),
    [
        (0.5, Streaming.READS, 1),
        # A worker stores offsets once a minute, unless it is told otherwise.
        (60, Streaming.READS, 60),
        (10**9, Streaming.UNSTORED, 66),
    ],
)
def test_h116_offsets_have_a_minute_to_move(stored_s: float, found: Streaming, within_s: float) -> None:
    clock = ManualClock()
    began_s = clock.monotonic()
    assert watch(SlotOverTime(clock, stored_s), clock) is found
    assert clock.monotonic() - began_s == within_s


def test_h116_an_idle_connector_is_known_within_a_second() -> None:
    clock = ManualClock()
    looks: Iterator[SlotSample] = iter([look(), look(age_s=61.0)])
    assert watch(lambda: next(looks), clock) is Streaming.IDLE


def test_h116_what_is_counted_late_is_no_reason_to_blame_it() -> None:
    clock = ManualClock()
    began_s = clock.monotonic()

    def once_counted() -> SlotSample:
        passed = int(clock.monotonic() - began_s)
        return look(writes=5 + (passed >= 3))

    assert watch(once_counted, clock) is Streaming.IDLE
    began_s = clock.monotonic()

    def counted_within_a_second() -> SlotSample:
        passed = int(clock.monotonic() - began_s)
        return look(writes=5 + (passed >= 1))

    assert watch(counted_within_a_second, clock) is Streaming.IDLE
    assert clock.monotonic() - began_s == 16


def test_h116_writes_every_other_second_are_enough_to_know() -> None:
    clock = ManualClock()
    began_s = clock.monotonic()

    def slowly_written() -> SlotSample:
        passed = int(clock.monotonic() - began_s)
        return look(writes=5 + (passed + 1) // 2)

    assert watch(slowly_written, clock) is Streaming.UNSTORED
    assert clock.monotonic() - began_s == 66
