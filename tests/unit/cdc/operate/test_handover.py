"""A handover on doubles of its ports: killed at each step and run again, and refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from cdc.operate.handover_rules import LockedSession
from cdc.process.clock import ManualClock
from cdc.process.errors import ActiveError, CdcError, ConfigError, LogError, SlotError, TopicError
from cdc.record.progress import PROGRESS_KEY, Progress, Writer, WriterState, require_turn
from cdc.record.schema import Identity
from cdc.record.state import SlotState, SnapshotState
from tests.killing import Killed, Steps, every_kill
from tests.unit.cdc.operate.handover_world import PLAN, SHAPE, TOPIC, World


def captured_by_debezium() -> World:
    world = World()
    world.native.prepare()
    world.debezium.exists = world.debezium.runs = True
    world.commit(9)
    world.debezium.write()
    world.commit(2)
    return world


def ended(world: World) -> None:
    """The state in which every handover has to end, wherever it was killed."""
    documents = world.state.read()
    require_turn(documents, "native")
    noted, slot, snapshot = WriterState.find(documents), SlotState.find(documents), SnapshotState.find(documents)
    assert noted is not None
    assert slot is not None
    assert snapshot is not None
    assert noted.settled
    assert (slot.epoch, slot.slot, slot.system_identifier) == (1, PLAN.slot, "7")
    assert (snapshot.state, snapshot.epoch) == ("complete", 1)
    assert (world.debezium.exists, world.debezium.runs) == (False, False)
    assert noted.offsets == world.topics.end_offsets({TOPIC: 2}), "Debezium's records end there"
    world.commit(4)
    world.native.write()
    assert set(world.written()) == set(world.rows), "no change is missing"
    twice = [end for end in world.rows if world.written().count(end) > 1]
    assert all(end > noted.lsn for end in twice)


def may_write(world: World) -> list[str]:
    """The writers that would start now."""
    found: list[str] = []
    writers: tuple[Writer, Writer] = ("native", "debezium")
    for writer in writers:
        with suppress(ConfigError):
            require_turn(world.state.read(), writer)
            found.append(writer)
    return found


def whole(steps: Steps) -> object:
    """One handover, in a world of its own."""
    world = captured_by_debezium()
    world.steps = steps
    return world.hand_over()


def test_h91_a_handover_killed_at_any_step_is_run_again() -> None:
    count = 0
    for steps in every_kill(whole):
        world = captured_by_debezium()
        world.steps = steps
        with pytest.raises(Killed):
            world.hand_over()
        begun = WriterState.find(world.state.read())
        if begun is not None:
            assert may_write(world) == (["native"] if begun.settled else [])
        world.commit(3)
        world.debezium.write()
        world.steps = Steps()
        world.hand_over()
        ended(world)
        count += 1
    assert count > 20


def test_a_handover_that_is_done_is_not_repeated() -> None:
    world = captured_by_debezium()
    assert world.hand_over().settled
    assert world.hand_over().settled
    assert world.said[-1] == "nothing to do: the native capture writes already"
    assert may_write(world) == ["native"]


def test_debeziums_records_are_noted_by_their_ends() -> None:
    world = captured_by_debezium()
    done = world.hand_over()
    assert done.lsn == world.confirmed()
    progress = Progress.from_json(world.progress.read()[PROGRESS_KEY])
    assert progress.lsn == done.lsn < world.rows[-1]
    assert (progress.offsets, progress.ahead) == (done.offsets, {})


def test_messages_that_are_carried_no_more_are_named() -> None:
    world = captured_by_debezium()
    world.debezium.messages = "shop.message"
    world.hand_over()
    assert "logical messages are carried no more: shop.message stands still from now on" in world.said


def test_a_reading_that_begins_meanwhile_ends_the_handover() -> None:
    """The connector heard of it between the question and its stop. It goes on."""
    world = captured_by_debezium()
    stop = world.debezium.stop

    def stopping() -> bool:
        world.debezium.reading = "Debezium reads an incremental snapshot just now"
        return stop()

    world.debezium.stop = stopping  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="just now, and nobody would read the rest"):
        world.hand_over()
    assert world.debezium.runs
    assert may_write(world) == ["native", "debezium"], "nothing is under way"
    world.debezium.stop, world.debezium.reading = stop, ""  # type: ignore[method-assign]
    world.hand_over()
    ended(world)


def differs(world: World) -> None:
    world.debezium.differing = ("snapshot.mode",)


def reads_incrementally(world: World) -> None:
    world.debezium.reading = "Debezium reads an incremental snapshot just now"


def reads_its_snapshot(world: World) -> None:
    world.debezium.complete = False


def has_no_slot(world: World) -> None:
    world.slot = None


def has_another_plugin(world: World) -> None:
    assert world.slot is not None
    world.slot = replace(world.slot, plugin="wal2json")


def has_a_read_slot(world: World) -> None:
    assert world.slot is not None
    world.slot = replace(world.slot, active_pid=7)


def has_more_partitions(world: World) -> None:
    world.broker.partitions[TOPIC] = 3


def holds_odd_values(world: World) -> None:
    world.shapes = [replace(SHAPE, columns=(replace(SHAPE.columns[0], kind="numeric"),))]
    world.odd = True


def is_keyed_by_an_index(world: World) -> None:
    world.shapes = [replace(SHAPE, identity=Identity.INDEX)]
    world.primary = {"public.t": ["id"]}


def is_written_natively(world: World) -> None:
    world.writer = LockedSession(7, "cdc run")


REFUSED = [
    (differs, ConfigError, "differs from the settings: snapshot.mode"),
    (reads_incrementally, ConfigError, "an incremental snapshot just now"),
    (reads_its_snapshot, ConfigError, "snapshot is not complete"),
    (has_more_partitions, TopicError, "has 3 partitions, and 2 when"),
    (holds_odd_values, ConfigError, "a value that is written otherwise .D4."),
    (is_keyed_by_an_index, ConfigError, "identity index"),
    (is_written_natively, ActiveError, "session 7 .cdc run. still writes"),
]


@pytest.mark.parametrize(("damage", "error", "words"), REFUSED, ids=lambda value: getattr(value, "__name__", None))
def test_what_cannot_be_handed_over_is_refused_untouched(
    damage: Callable[[World], None], error: type[CdcError], words: str
) -> None:
    world = captured_by_debezium()
    damage(world)
    running = world.debezium.runs
    with pytest.raises(error, match=words):
        world.hand_over()
    assert WriterState.find(world.state.read()) is None
    assert world.debezium.runs == running


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (has_no_slot, SlotError, "is not there, or was given up"),
        (has_another_plugin, SlotError, "made for wal2json"),
        (has_a_read_slot, ActiveError, "still read by Postgres session 7"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_slot_that_cannot_be_read_stops_it_until_the_next_run(
    damage: Callable[[World], None], error: type[CdcError], words: str
) -> None:
    world = captured_by_debezium()
    slot = world.slot
    damage(world)
    # The connector's last write would move a slot, and here there may be none.
    world.debezium.offset, confirm = world.ends[-1], world.confirm
    world.confirm = lambda lsn: None  # type: ignore[method-assign]
    world.rows.clear()
    with pytest.raises(error, match=words):
        world.hand_over()
    begun = WriterState.find(world.state.read())
    assert begun is not None
    assert begun.step == "begun"
    world.slot, world.confirm = slot, confirm  # type: ignore[method-assign]
    assert world.hand_over().step == "done"


def test_h91_topics_that_still_grow_are_waited_for() -> None:
    world = captured_by_debezium()
    late = [world.end(), world.end()]
    world.clock = Waking(lambda: world.append("debezium", late.pop()) if late else None)
    world.hand_over()
    progress = Progress.from_json(world.progress.read()[PROGRESS_KEY])
    assert late == []
    assert progress.offsets == world.topics.end_offsets({TOPIC: 2})


class Waking(ManualClock):
    """Somebody else does something while one sleeps."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def sleep(self, duration_s: float) -> None:
        super().sleep(duration_s)
        self._act()


def test_h91_topics_that_never_rest_have_another_writer() -> None:
    world = captured_by_debezium()
    world.clock = Waking(lambda: world.append("somebody", world.end()))
    with pytest.raises(LogError, match="still grow"):
        world.hand_over()


def test_options_that_shape_the_topics_are_refused() -> None:
    world = captured_by_debezium()
    with pytest.raises(ConfigError, match="transforms: these change"):
        world.hand_over(replace(PLAN, shaping=["transforms"]))
