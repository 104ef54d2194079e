"""SIGKILL of the capture at random moments, under load of every kind; then the log must give the source's rows.

One seed is one pipeline and twenty kills: some while it starts, most while it streams, some while it is paused or
stopping in order.
"""

from __future__ import annotations

import random

from cdc.process.clock import SYSTEM_CLOCK
from tests.faults.lab import Lab
from tests.faults.lives import Life
from tests.faults.rig import Rig, fresh_rig
from tests.faults.workload import Load
from tests.waiting import wait_until

KILLS = 20


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for seed in lab.seeds():
        one(lab, seed, KILLS)


def one(lab: Lab, seed: int, kills: int) -> None:
    """One pipeline, killed so many times."""
    pick = random.Random(seed)
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        rig.prepare()
        with Load(rig.dsn, seed) as load:
            for _ in range(kills):
                _die(rig, pick, lab)
            last = rig.stream()
        rig.settle()
        rig.judge(lab)
        assert last.stop() == 0, last.stderr
        lab.count(transactions=load.transactions)


def _die(rig: Rig, pick: random.Random, lab: Lab) -> None:
    """A life and its end."""
    way = pick.choices(("opening", "streaming", "paused", "stopping"), (2, 10, 1, 1))[0]
    if way == "opening":
        life = rig.start()
        SYSTEM_CLOCK.sleep(pick.uniform(0, 1.5))
    else:
        life = rig.stream()
        SYSTEM_CLOCK.sleep(pick.expovariate(2.0))
    if way == "paused":
        _pause(life, pick)
    elif way == "stopping":
        life.stop(timeout_s=pick.uniform(0, 0.3))
    if life.exit is None:
        life.kill()
        lab.count(kills=1, **{way: 1})
    elif way != "stopping":
        wait_until(lambda: False, 0, f"it ended by itself: {rig.last_words()}")
    lab.count(starts_with_a_tail=int(any(life.events("tails_read"))))


def _pause(life: Life, pick: random.Random) -> None:
    """As a machine that was suspended; it wakes for a moment before it dies."""
    life.pause()
    SYSTEM_CLOCK.sleep(pick.uniform(0.1, 3))
    life.go_on()
    SYSTEM_CLOCK.sleep(pick.uniform(0, 0.5))
