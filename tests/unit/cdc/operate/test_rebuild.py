"""A rebuild on doubles of its ports: killed at each step and run again, stopped, and taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cdc.operate.rebuild import (
    RebuildState,
    Step,
    apart,
    behind_claim,
    find_rebuild,
    level,
    level_with_log,
    share,
)
from cdc.process.errors import SinkError, TopicError, UsageError
from cdc.record.progress import Offsets, Progress, Watermark
from cdc.wire.dead_letter import Why
from tests.killing import Killed, Steps, every_kill
from tests.unit.cdc.operate.rebuild_world import SINK, TOPIC, World, letter

KINDS = pytest.mark.parametrize("separate", [True, False], ids=["separate", "replaced"])


def fed(separate: bool) -> World:
    """A store that its sink has fed: it has lost row ``a``, and ``b`` waits."""
    world = World(separate=separate)
    world.put("abcdefc")
    world.feed()
    del world.tables.rows[b"a"]
    return world


def state(world: World) -> RebuildState:
    found = find_rebuild(world.state.read(), SINK)
    assert found is not None
    return found


def whole(world: World) -> None:
    """The state in which every rebuild has to end, wherever it was killed."""
    assert state(world).step == Step.DONE
    world.put("fg")
    world.feed()
    assert world.tables.rows == world.wanted()
    assert world.letters.waiting(SINK) == [b"e"]
    assert world.letters.waiting(apart(state(world))) == []
    kept = {state(world).previous} | ({world.used} if world.separate else set())
    assert set(world.places) == kept


def run(separate: bool) -> Callable[[Steps], object]:
    def rebuild(steps: Steps) -> object:
        world = fed(separate)
        world.steps = steps
        return world.run()

    return rebuild


@KINDS
def test_h541_a_rebuild_killed_anywhere_is_run_again(separate: bool) -> None:
    count = 0
    for steps in every_kill(run(separate)):
        world = fed(separate)
        damaged = dict(world.tables.rows)
        world.steps = steps
        with pytest.raises(Killed):
            world.run()
        assert world.tables.rows in (damaged, world.wanted()), "readers see all of one generation"
        noted = find_rebuild(world.state.read(), SINK)
        world.steps = Steps()
        world.put("hc")
        world.feed()
        world.run()
        assert world.tables.rows == world.wanted(), "level when it is switched to, also behind a kill (hazard H541)"
        assert state(world).generation == (3 if noted is not None and noted.step == Step.DONE else 2)
        whole(world)
        count += 1
    assert count > 30


@KINDS
def test_h543_a_rollback_killed_anywhere_is_run_again(separate: bool) -> None:
    def rolled_back(steps: Steps) -> World:
        world = fed(separate)
        world.run()
        world.steps = steps
        world.rebuild().roll_back()
        return world

    for steps in every_kill(rolled_back):
        world = fed(separate)
        old = dict(world.tables.rows)
        world.run()
        world.steps = steps
        with pytest.raises(Killed):
            world.rebuild().roll_back()
        assert world.tables.rows in (old, world.wanted())
        world.steps = Steps()
        assert world.rebuild().roll_back().previous == 1
        assert world.tables.rows == old
        assert state(world).step == Step.ROLLED_BACK
        world.run()
        assert state(world).generation == 3
        whole(world)


def test_y13_a_rebuild_notes_how_far_it_is() -> None:
    """For cdc status, which reads the notes."""
    world = fed(separate=True)
    noted: list[float] = []
    world.rebuild().run(lambda words, share: noted.append(state(world).share))
    assert noted[0] == 0.0
    assert 0 < noted[-2] < 1, "in the middle of the log"
    assert state(world).share == 1.0


@KINDS
def test_letters_of_the_old_generation_are_tried_on_the_new_one(separate: bool) -> None:
    world = fed(separate)
    assert world.letters.waiting(SINK) == [b"b"]
    done = world.run()
    assert (done.generation, done.previous) == (2, 1)
    whole(world)
    assert b"b" in world.tables.rows


@KINDS
def test_a_second_rebuild_removes_what_the_first_one_kept(separate: bool) -> None:
    world = fed(separate)
    world.run()
    done = world.run()
    assert (done.generation, done.previous) == (3, 2)
    whole(world)


def test_a_stopped_rebuild_says_that_it_is_not_whole_and_goes_on() -> None:
    world = fed(separate=True)
    world.stops = True
    with pytest.raises(SinkError, match="generation 2 is not whole yet"):
        world.run()
    assert world.used == 1
    world.stops = False
    world.run()
    whole(world)


def test_there_is_no_rollback_before_a_rebuild_nor_a_second_one() -> None:
    world = fed(separate=True)
    with pytest.raises(UsageError, match="no rebuild of cache"):
        world.rebuild().roll_back()
    world.run()
    world.rebuild().roll_back()
    world.put("h")
    world.feed()
    rows = dict(world.tables.rows)
    assert world.rebuild().roll_back().previous == 1
    assert world.tables.rows == rows, "it is done: what was written since stays"


@KINDS
def test_h542_a_generation_left_for_too_long_is_another_one(separate: bool) -> None:
    """Its own store is behind what the topics keep, and the command that mends that went on with it for ever."""
    for steps in every_kill(run(separate)):
        world = fed(separate)
        world.steps = steps
        with pytest.raises(Killed):
            world.run()
        world.steps = Steps()
        noted = find_rebuild(world.state.read(), SINK)
        world.outdated = {2} if noted is not None and world.used == 1 else set()
        world.run()
        again = noted is not None and (noted.step == Step.DONE or (noted.unfinished and world.outdated))
        assert state(world).generation == (3 if again else 2), noted
        assert world.letters.waiting(f"{SINK}@2") == [], "nothing waits for a generation that is gone"
        whole(world)


def test_h542_a_new_rebuild_says_what_the_log_lacks() -> None:
    world = fed(separate=True)
    world.outdated = {2, 3}
    with pytest.raises(TopicError, match="deletes"):
        world.run()


def test_the_share_of_the_log_that_was_read_is_told() -> None:
    world = fed(separate=True)
    world.run()
    shares = [share for words, share in world.told if words == "generation 2 of cache"]
    assert shares == [0.0, 3 / 7, 6 / 7, 1.0]


@KINDS
def test_h125_what_a_rebuild_could_not_read_is_told(separate: bool) -> None:
    world = fed(separate)
    one = replace(letter(f"{SINK}@2", b"c", 2), why=Why.UNREADABLE, reason="it lacks the value of doc")
    world.letters.write([one, replace(one, sink=SINK, offset=3)])
    world.run()
    assert [words for words, _ in world.told if "not read" in words] == [
        "not read (cdc dead list), so lacking until a later record of the key: 1"
    ]
    assert world.letters.waiting(SINK) == [b"b", b"c", b"e"]


def mark(epoch: int, lsn: int, **offsets: int) -> Watermark:
    return Watermark(epoch=epoch, lsn=lsn, offsets={topic: {0: offset} for topic, offset in offsets.items()})


@pytest.mark.parametrize(
    ("new", "old", "is_level"),
    [
        (None, None, False),
        (mark(1, 9, a=7), None, True),
        (mark(1, 9, a=6), None, False),
        (mark(1, 9, a=5), mark(1, 9, a=5), True),
        (mark(1, 8, a=5), mark(1, 9, a=5), False),
        (mark(2, 8, a=5), mark(1, 9, a=5), True),
        (mark(1, 9, a=4), mark(1, 9, a=5), False),
        (mark(1, 9, a=5), mark(1, 9, a=5, gone=3), True),
    ],
)
def test_a_generation_is_level_when_it_shows_all_of_the_old_one(
    new: Watermark | None, old: Watermark | None, is_level: bool
) -> None:
    assert level(new, old, {"a": {0: 7}}) is is_level


@KINDS
@pytest.mark.parametrize(
    "claim",
    [
        Watermark(epoch=1, lsn=8, offsets={TOPIC: {0: 7}}),
        Watermark(epoch=2, lsn=1, offsets={TOPIC: {0: 7}}),
        Watermark(epoch=1, lsn=7, offsets={TOPIC: {0: 8}}),
        Watermark(epoch=3, lsn=99, offsets={TOPIC: {0: 99, 1: 5}, "gone": {0: 5}}),
    ],
    ids=["lsn", "epoch", "offset", "another log"],
)
def test_h191_a_rebuild_ends_beside_a_claim_beyond_the_log(separate: bool, claim: Watermark) -> None:
    """As of a watermark that was set ahead by hand, or of a log that was begun anew under the store."""
    world = fed(separate)
    world.claim = claim
    world.run()
    whole(world)


@pytest.mark.parametrize(
    ("new", "old", "written", "is_level"),
    [
        (mark(1, 8, a=7), mark(1, 9, a=5), (1, 8), True),
        (mark(1, 7, a=7), mark(1, 9, a=5), (1, 8), False),
        (mark(1, 8, a=4), mark(1, 9, a=5), (1, 8), False),
        (mark(1, 8, a=7), mark(1, 9, a=5), (1, 9), False),
        (mark(1, 9, a=7), mark(2, 3, a=5), (1, 9), True),
        (mark(1, 9, a=7), mark(1, 7, a=5), (1, 8), False),
        (mark(1, 8, a=7), mark(1, 8, a=5), (1, 8), False),
        (mark(1, 8, a=7), mark(1, 9, a=5), None, False),
        (mark(1, 8, a=7), None, (1, 8), False),
        (None, mark(1, 9, a=5), (1, 0), False),
    ],
)
def test_h191_a_claim_that_the_log_holds_is_waited_for(
    new: Watermark | None, old: Watermark | None, written: tuple[int, int] | None, is_level: bool
) -> None:
    """A progress record that is unknown, or is at the claim, says nothing against the claim."""
    newest = Progress(epoch=written[0], lsn=written[1]) if written else None
    assert level_with_log(new, old, {"a": {0: 7}}, newest) is is_level


@pytest.mark.parametrize(
    ("new", "old", "asked"),
    [
        (mark(1, 8, a=7), mark(1, 9, a=7), True),
        (mark(1, 9, a=7), mark(1, 9, a=7), False),
        (mark(1, 8, a=6), mark(1, 9, a=7), False),
        (mark(1, 8, a=7), None, False),
        (None, mark(1, 9), False),
    ],
)
def test_the_log_is_asked_only_when_all_is_read(new: Watermark | None, old: Watermark | None, asked: bool) -> None:
    assert behind_claim(new, old, {"a": {0: 7}}) is asked


def test_an_empty_log_is_read() -> None:
    assert share(None, {TOPIC: {0: 0}}) == 1.0


@KINDS
def test_a_snapshot_of_debeziums_is_waited_for(separate: bool) -> None:
    """Its connector says when it is over. Until then the former generation is served, however little it has."""
    world = fed(separate)
    asked: list[int] = []

    def snapshot() -> Offsets | None:
        asked.append(len(world.log))
        if len(asked) < 3:
            world.put("x")
            return None
        return {TOPIC: {0: len(world.log)}, "another sink's": {0: 9}}

    world.snapshot = snapshot
    world.run()
    assert len(asked) == 3, "once it is over nobody asks again"
    assert world.tables.rows == world.wanted()
