"""Capture in memory, every order of commit, read, arrival, report, kill and restart: the log is exact after each."""

from __future__ import annotations

import gc
import logging
import random
from collections import Counter
from collections.abc import Mapping

from tests.faults.lab import Found
from tests.faults.pipeline import World, expected_of
from tests.faults.source import make

HISTORIES = 25
"""Of one seed."""
ORDERS = 16
"""Schedules of one history."""


def trial(seed: int) -> Mapping[str, int]:
    """Four hundred schedules."""
    counted: Counter[str] = Counter()
    logging.disable(logging.WARNING)
    gc.freeze()
    try:
        for number in range(seed * HISTORIES, (seed + 1) * HISTORIES):
            counted += history(number)
    finally:
        gc.unfreeze()
        logging.disable(logging.NOTSET)
    return counted


def history(number: int) -> Counter[str]:
    """Some schedules of one history, which is made from its number."""
    rng = random.Random(number)
    source = make(rng)
    expected = expected_of(source)
    counted: Counter[str] = Counter()
    for order in range(ORDERS):
        world = World(random.Random(f"{number}/{order}"), source, expected)
        try:
            world.run()
        except Exception as error:
            raise Found(f"history {number}, order {order}: {type(error).__name__}: {error}") from error
        counted += Counter(
            {
                "schedules": 1,
                "kills": world.lives - 1,
                "sessions": world.sessions,
                "records": sum(map(len, world.broker.lanes.values())),
            }
        )
    return counted
