"""A handover on doubles of its ports: killed at each step and run again, and refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from cdc.clock import ManualClock
from cdc.errors import ActiveError, CdcError, ConfigError, LogError, SlotError, TopicError
from cdc.handover.ports import LockedSession
from cdc.position import Position
from cdc.progress import PROGRESS_KEY, Progress
from cdc.schema import Identity
from cdc.state import SlotState, SnapshotState
from cdc.turn import Writer, WriterState, require_turn
from tests.killing import Killed, Steps, every_kill
from tests.unit.cdc.handover.world import PLAN, SHAPE, TOPIC, World


def captured_by_debezium() -> World:
    world = World()
    world.native.prepare()
    world.debezium.exists = world.debezium.runs = True
    world.commit(9)
    world.debezium.write()
    world.commit(2)
    return world


def captured_natively() -> World:
    world = World()
    world.native.begin()
    world.commit(9)
    world.native.write_up_to(world.ends[-3])
    return world


def beginning(to: Writer) -> World:
    return captured_by_debezium() if to == "native" else captured_natively()


def writes(world: World) -> None:
    """Whoever's turn it is writes everything, up to here."""
    world.commit(4)
    if world.debezium.runs:
        world.debezium.write()
    else:
        world.native.write_up_to(world.end() - 1)


def ended(world: World, to: Writer) -> None:
    """The state in which every handover has to end, wherever it was killed."""
    documents = world.state.read()
    require_turn(documents, to)
    writer, slot, snapshot = WriterState.find(documents), SlotState.find(documents), SnapshotState.find(documents)
    assert writer is not None
    assert slot is not None
    assert snapshot is not None
    assert (writer.writer, writer.step) == (to, "done")
    assert (slot.epoch, slot.slot, slot.system_identifier) == (1, PLAN.slot, "7")
    assert (snapshot.state, snapshot.epoch) == ("complete", 1)
    assert (world.debezium.exists, world.debezium.runs) == (to == "debezium", to == "debezium")
    writes(world)
    assert world.written() == world.rows, "each change once"


def may_write(world: World) -> list[str]:
    """The writers that would start now."""
    found: list[str] = []
    writers: tuple[Writer, Writer] = ("native", "debezium")
    for writer in writers:
        with suppress(ConfigError):
            require_turn(world.state.read(), writer)
            found.append(writer)
    return found


def turn(to: Writer) -> Callable[[Steps], object]:
    """One handover, whole, in a world of its own."""

    def run(steps: Steps) -> object:
        world = beginning(to)
        world.steps = steps
        return world.hand_over(to)

    return run


@pytest.mark.parametrize("to", ["native", "debezium"])
def test_h91_a_handover_killed_at_any_step_is_run_again(to: Writer) -> None:
    count = 0
    for steps in every_kill(turn(to)):
        world = beginning(to)
        world.steps = steps
        with pytest.raises(Killed):
            world.hand_over(to)
        begun = WriterState.find(world.state.read())
        if begun is not None:
            assert may_write(world) == ([to] if begun.settled else [])
        world.commit(3)
        world.debezium.write()
        world.steps = Steps()
        world.hand_over(to)
        ended(world, to)
        count += 1
    assert count > 40


def test_h91_forth_and_back_writes_each_change_once() -> None:
    world = captured_by_debezium()
    for to in ("native", "debezium", "native"):
        world.hand_over(to)
        ended(world, to)
    assert world.hand_over("native").step == "done"
    assert world.said[-1] == "nothing to do: it writes already"


def test_debeziums_records_above_the_slot_are_noted_by_partition() -> None:
    world = captured_by_debezium()
    done = world.hand_over("native")
    assert done.lsn == world.confirmed()
    progress = Progress.from_json(world.progress.read()[PROGRESS_KEY])
    assert progress.lsn == done.lsn < world.rows[-1]
    newest = [Position(1, end - 0x10, 1).text() for end in world.rows[-2:]]
    assert sorted(progress.ahead[TOPIC].values()) == newest


@pytest.mark.parametrize("step", ["begun", "stopped", "placed"])
def test_the_other_direction_waits_for_the_one_begun(step: str) -> None:
    world = captured_natively()
    noted = WriterState(writer="debezium", step=step)
    world.state.write([(noted.key(), noted.to_json())])
    with pytest.raises(ConfigError, match="handover to debezium was begun"):
        world.hand_over("native")


def differs(world: World) -> None:
    world.debezium.differing = ("snapshot.mode",)


def reads_incrementally(world: World) -> None:
    world.debezium.incremental = True


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


def has_no_snapshot(world: World) -> None:
    snapshot = SnapshotState(epoch=1, state="running", consistent_point=0, last_cut_lsn=0)
    world.state.write([(snapshot.key(), snapshot.to_json())])


REFUSED = [
    ("native", differs, ConfigError, "differs from the settings: snapshot.mode"),
    ("native", reads_incrementally, ConfigError, "an incremental snapshot just now"),
    ("native", reads_its_snapshot, ConfigError, "snapshot is not complete"),
    ("native", has_more_partitions, TopicError, "has 3 partitions, and 2 when"),
    ("native", holds_odd_values, ConfigError, "a value that is written otherwise .D4."),
    ("native", is_keyed_by_an_index, ConfigError, "identity index"),
    ("debezium", is_keyed_by_an_index, ConfigError, "identity index"),
    ("debezium", is_written_natively, ActiveError, "session 7 .cdc run. still writes"),
    ("debezium", has_no_snapshot, ConfigError, "no complete snapshot"),
]


@pytest.mark.parametrize(
    ("to", "damage", "error", "words"), REFUSED, ids=lambda value: getattr(value, "__name__", None)
)
def test_what_cannot_be_handed_over_is_refused_untouched(
    to: Writer, damage: Callable[[World], None], error: type[CdcError], words: str
) -> None:
    world = beginning(to)
    damage(world)
    running = world.debezium.runs
    with pytest.raises(error, match=words):
        world.hand_over(to)
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
        world.hand_over("native")
    begun = WriterState.find(world.state.read())
    assert begun is not None
    assert begun.step == "begun"
    world.slot, world.confirm = slot, confirm  # type: ignore[method-assign]
    assert world.hand_over("native").step == "done"


def test_h91_a_slot_beyond_what_was_written_is_somebody_else_s() -> None:
    world = captured_natively()
    ported = world.native.write_up_to

    def advanced(mark: int) -> int:
        lsn = ported(mark)
        world.confirm(lsn + 8)
        return lsn

    world.native.write_up_to = advanced  # type: ignore[method-assign]
    with pytest.raises(SlotError, match="stands beyond"):
        world.hand_over("debezium")
    assert not world.debezium.exists


def test_h91_topics_that_still_grow_are_waited_for() -> None:
    world = captured_by_debezium()
    late = [world.end(), world.end()]
    world.clock = Waking(lambda: world.append("debezium", late.pop()) if late else None)
    world.hand_over("native")
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
        world.hand_over("native")


def test_options_that_shape_the_topics_are_refused() -> None:
    world = captured_by_debezium()
    with pytest.raises(ConfigError, match="transforms: these change"):
        world.hand_over("native", replace(PLAN, shaping=["transforms"]))
