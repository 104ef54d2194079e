"""Records that progress records refute, and floors that wait until one has come to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.progress import Progress
from cdc.wire.records import sweep_key, truncate_key
from sinks.contract.batch import Event, events_of
from sinks.contract.port import Applied, CannotCarry, Schemas
from spark.records.foreign_records import FOREIGN, JudgedSink, LogReach, WaitFor, told_apart
from spark.stores.watermark import LogView
from tests.contract.orders import SHAPES
from tests.contract.topics import ORDERS

TOPIC = ORDERS.topic


def pos(lsn: int, seq: int = 1, epoch: int = 1) -> str:
    return Position(epoch, lsn, seq).text()


def progress(lsn: int, offset: int, epoch: int = 1, ahead: Mapping[int, str] | None = None) -> Progress:
    return Progress(epoch=epoch, lsn=lsn, offsets={TOPIC: {0: offset}}, ahead={TOPIC: ahead} if ahead else {})


def event(offset: int, at: str, op: str = "c", partition: int = 0, key: bytes = b'{"id":1}') -> Event:
    return Event(TOPIC, partition, offset, key, b"{}", at, op, ORDERS.version)


def truncate(offset: int, at: str) -> Event:
    return event(offset, at, "t", key=truncate_key(str(ORDERS.table)))


def test_h158_a_record_between_offsets_and_lsn_is_foreign() -> None:
    reach = LogReach(progress(80, 10))
    events = events_of([event(3, pos(72)), event(4, pos(88)), event(9, pos(80, CHUNK_SEQ)), event(10, pos(88))])
    own, foreign = told_apart(events, reach)
    assert own["offset"].to_pylist() == [3, 9, 10]
    assert [(one.offset, one.reason) for one in foreign] == [(4, FOREIGN)]
    assert dict(foreign[0].headers) == {"pos": pos(88).encode(), "op": b"c", "ver": b"%d" % ORDERS.version}


def test_h158_what_was_ahead_of_progress_is_ours() -> None:
    reach = LogReach(progress(80, 10, ahead={0: pos(96)}))
    events = events_of([event(4, pos(96)), event(5, pos(96, 2)), event(6, pos(88)), event(4, pos(88), partition=1)])
    own, foreign = told_apart(events, reach)
    assert (own.num_rows, [one.offset for one in foreign]) == (3, [5])


def test_h158_nothing_is_judged_without_progress() -> None:
    events = events_of([event(4, pos(88))])
    assert told_apart(events, None) == (events, [])


def test_h158_an_earlier_epochs_records_lie_below_progress() -> None:
    own, foreign = told_apart(
        events_of([event(1, pos(1 << 40)), event(2, pos(8, epoch=3))]), LogReach(progress(80, 10, 2))
    )
    assert (own["offset"].to_pylist(), [one.offset for one in foreign]) == ([1], [2])


class Taking:
    """A sink that notes what it is given."""

    def __init__(self) -> None:
        self.taken: list[Any] = []

    def prepare(self, schema: object, *, older: bool = False) -> None: ...

    def apply(self, events: pa.Table, schemas: Schemas) -> Applied:
        self.taken += events["offset"].to_pylist()
        return Applied()

    def show(self) -> None: ...

    def close(self) -> None: ...


def standing(reach: LogReach | None) -> WaitFor:
    """What is known, and will not change in time."""

    def wait_for(enough: Callable[[LogReach], bool], timeout_s: float) -> LogReach | None:
        return reach

    return wait_for


def applied(reach: LogReach | None, *events: Event) -> tuple[list[int], list[int]]:
    """Offsets that the sink got, and those that were refused."""
    sink = Taking()
    done = JudgedSink(sink, standing(reach)).apply(events_of(events), SHAPES)
    return sorted(sink.taken), [one.offset for one in done.refused]


def test_h158_a_floor_that_progress_refutes_empties_nothing() -> None:
    assert applied(LogReach(progress(80, 10)), truncate(4, pos(88)), event(5, pos(72))) == ([5], [4])


def test_h158_a_floor_that_progress_has_passed_counts() -> None:
    assert applied(LogReach(progress(80, 10)), truncate(4, pos(72))) == ([4], [])
    assert applied(LogReach(progress(80, 10, ahead={0: pos(96)})), truncate(4, pos(96))) == ([4], [])
    assert applied(LogReach(progress(80, 3)), truncate(4, pos(72))) == ([4], [])


def test_h158_a_floor_that_nothing_confirms_holds_its_table() -> None:
    with pytest.raises(CannotCarry, match="not confirmed") as held:
        applied(LogReach(progress(80, 4)), truncate(4, pos(88)), event(5, pos(72)))
    assert held.value.table == ORDERS.table


def test_h158_before_any_progress_a_floor_is_waited_for_once() -> None:
    waits: list[float] = []

    def wait_for(enough: Callable[[LogReach], bool], timeout_s: float) -> None:
        waits.append(timeout_s)

    sink = Taking()
    JudgedSink(sink, wait_for, timeout_s=7).apply(events_of([truncate(n, pos(88)) for n in range(3)]), SHAPES)
    assert (sink.taken, waits) == ([0, 1, 2], [7, 0, 0])


def sweep(offset: int, at: str, floor: str) -> Event:
    value = b'{"sweep":{"floor":"%b","partitions":1}}' % floor.encode()
    return event(offset, at, "t", key=sweep_key(str(ORDERS.table)))._replace(value=value)


def test_h158_a_sweep_is_judged_by_its_floor_too() -> None:
    assert applied(LogReach(progress(80, 10)), sweep(4, pos(72), pos(88))) == ([], [4])
    assert applied(LogReach(progress(80, 10)), sweep(4, pos(72), pos(64))) == ([4], [])


def test_h158_a_new_epochs_sweep_comes_before_its_progress() -> None:
    reach = LogReach(progress(80, 4))
    assert applied(reach, sweep(4, pos(8, epoch=2), pos(8, epoch=2))) == ([4], [])
    with pytest.raises(CannotCarry):
        applied(reach, truncate(4, pos(8, epoch=2)))


def test_h158_a_view_keeps_the_greatest_progress_that_it_saw() -> None:
    view = LogView(judges=True)
    assert view.wait_for(lambda _: True, 0) is None
    view.note_progress([progress(80, 10), progress(72, 20)])
    view.note_progress([progress(64, 30)])
    assert view.reach == LogReach(progress(80, 10))
    assert view.wait_for(lambda reach: reach.covers(TOPIC, 0, 9), 0) == view.reach


def test_h158_a_view_of_other_writers_judges_nothing() -> None:
    view = LogView()
    view.note_progress([progress(80, 10)])
    assert (view.reach, view.wait_for(lambda _: False, 60)) == (None, None)
