"""Letting a program die at a named crash point while there is work, and starting it again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.crash_points import CRASH_EXIT
from tests.faults.lab import Found
from tests.faults.lives import Life
from tests.faults.points import CAPTURE
from tests.faults.rig import Rig
from tests.waiting import TIME_SCALE

CRASH_S = 120.0
_LARGE_TEXT = 295_500
"""With its envelope more than what is sent without waiting, less than what the topic takes."""
LOG = {"max_message_bytes": "300kB", "min_compaction_lag": "1h"}
_ONCE = (
    "first_progress_written",
    "lane_introduced",
    "large_carried",
    "netting_spilled",
    "shape_registered",
    "while_draining",
)
_TRIES = 8
_AGAIN_S = 1.0


def die_at(point: str, start: Callable[[str], Life], provoke: Callable[[], object], *, nth: int = 1) -> Life:
    """Start a program that ends at the point; ``provoke`` is called again and again until it has. Found if it ends
    otherwise, or never."""
    life = start(f"{point}:{nth}")
    deadline = SYSTEM_CLOCK.monotonic() + CRASH_S * TIME_SCALE
    while life.exit is None:
        if SYSTEM_CLOCK.monotonic() > deadline:
            raise Found(f"nothing passed {point} in {CRASH_S:g} s: {life.stderr[-2000:]}")
        provoke()
        life.wait(_AGAIN_S)
    if life.exit != CRASH_EXIT:
        raise Found(f"{point}: it ended with {life.exit} instead: {life.stderr[-2000:]}")
    return life


def capture_dies(rig: Rig, point: str, pick: random.Random) -> None:
    """A life of ``cdc run`` that ends at the point, with what it takes to pass there."""
    if point == "while_draining":
        _die_draining(rig, pick)
        return
    nth = 1 if point in _ONCE or point in CAPTURE[:5] else pick.randint(1, 4)
    provocations = iter(_provocations(point))
    die_at(point, rig.start, lambda: rig.execute(*next(provocations, ())), nth=nth)
    if point == "netting_spilled":
        rig.execute("delete from d where id > 1000")


def _provocations(point: str) -> Sequence[Sequence[str]]:
    """What has to happen so that it is passed, once; the load does the rest."""
    match point:
        case "large_carried":
            return [[f"insert into t values (77777, 'large', repeat('L', {_LARGE_TEXT}), 0) on conflict do nothing"]]
        case "shape_registered":
            return [["alter table w add column crashed text", "insert into w (id, crashed) values (500, 'yes')"]]
        case "netting_spilled":
            return [["insert into d select g, repeat('d', 4000) from generate_series(2000, 11500) g"]]
    return []


def _die_draining(rig: Rig, pick: random.Random) -> None:
    for _ in range(_TRIES):
        life = rig.start("while_draining")
        deadline = SYSTEM_CLOCK.monotonic() + CRASH_S * TIME_SCALE
        while not life.said("streaming") and life.exit is None and SYSTEM_CLOCK.monotonic() < deadline:
            life.wait(0.05)
        rig.execute(
            "insert into t select g, 'drain', 'd', 0 from generate_series(60000, 62000) g on conflict do nothing"
        )
        rig.execute("delete from t where id between 60000 and 62000")
        # Soon, yet not before it has read some of it.
        SYSTEM_CLOCK.sleep(pick.uniform(0, 1))
        if life.stop() == CRASH_EXIT:
            return
    raise Found(f"it had nothing to drain {_TRIES} times: {rig.last_words()}")
