"""A store behind the log of each schedule: any batches, kills while it writes, compaction; its watermark never lies."""

from __future__ import annotations

import gc
import logging
import random
from collections import Counter
from collections.abc import Mapping

from tests.faults.lab import Found
from tests.faults.pipeline import World, expected_of
from tests.faults.source import make
from tests.faults.stores import Follower

AT_ONCE = 20
"""Schedules of one seed."""


def trial(seed: int) -> Mapping[str, int]:
    """Twenty schedules, from the source's commits to the store's rows."""
    counted: Counter[str] = Counter()
    logging.disable(logging.WARNING)
    gc.freeze()
    try:
        for number in range(seed * AT_ONCE, (seed + 1) * AT_ONCE):
            counted += schedule(number)
    finally:
        gc.unfreeze()
        logging.disable(logging.NOTSET)
    return counted


def schedule(number: int) -> Counter[str]:
    """One schedule, by its number."""
    rng = random.Random(f"store {number}")
    source = make(rng)
    world = World(rng, source, expected_of(source))
    try:
        world.run()
        follower = Follower(world, rng)
        follower.run()
    except Exception as error:
        raise Found(f"schedule {number}: {type(error).__name__}: {error}") from error
    return Counter({"schedules": 1, "batches": follower.batches, "kills": follower.kills + world.lives - 1})
