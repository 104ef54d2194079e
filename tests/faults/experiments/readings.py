"""Several readings of one table at once, any order of commit, grant, read and write: compaction leaves the source."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

from cdc.capture.windows import Written
from tests.faults.lab import Found
from tests.unit.cdc.capture.test_windows import KEYS
from tests.unit.cdc.capture.test_windows_beside import beside

AT_ONCE = 200
"""Schedules of one seed."""
_STEPS = ("commit", "commit", "vanish", "ask", "ask", "show", "stream", "stream", "act", "act", "act")


def trial(seed: int) -> Mapping[str, int]:
    """Two hundred schedules."""
    counted: Counter[str] = Counter()
    for number in range(seed * AT_ONCE, (seed + 1) * AT_ONCE):
        counted += schedule(number)
    return counted


def schedule(number: int) -> Counter[str]:
    """One schedule, by its number."""
    rng = random.Random(f"readings {number}")
    script = [_step(rng) for _ in range(rng.randrange(60))]
    parts = [_keys(rng) for _ in range(rng.randrange(3))]
    try:
        world = beside(script, _choices(rng), parts, _choices(rng))
    except Exception as error:
        raise Found(f"readings {number}: {type(error).__name__}: {error}") from error
    source = world.rows(all_of=True)
    for by_offset in (True, False):
        if world.left(by_offset=by_offset) != source:
            raise Found(f"readings {number}: by {'offset' if by_offset else 'position'} other rows than the source's")
    written = [window.outcome for window in world.open if isinstance(window.outcome, Written)]
    return Counter(
        schedules=1, windows=len(written), rows_compared=2 * len(source), left_out=sum(one.left_out for one in written)
    )


def _step(rng: random.Random) -> tuple[str, object]:
    match name := rng.choice(_STEPS):
        case "commit":
            return name, {key: rng.choice([None, rng.randbytes(2)]) for key in map(_key, _keys(rng))}
        case "ask":
            return name, _keys(rng)
        case "vanish":
            return name, rng.randrange(KEYS)
    return name, rng.randrange(64)


def _key(number: int) -> bytes:
    return bytes([number])


def _keys(rng: random.Random) -> frozenset[int]:
    return frozenset(rng.sample(range(KEYS), rng.randint(1, KEYS)))


def _choices(rng: random.Random) -> list[int]:
    return [rng.randrange(64) for _ in range(rng.randrange(30))]
