"""The capture dies at each of its crash points under load; then the log must give the source's rows.

One seed is one pipeline that dies at every point once, in an order of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.faults.crashes import LOG, capture_dies
from tests.faults.lab import Lab
from tests.faults.points import CAPTURE
from tests.faults.rig import fresh_rig
from tests.faults.workload import Load


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for seed in lab.seeds():
        one(lab, seed, CAPTURE)


def one(lab: Lab, seed: int, points: Sequence[str]) -> None:
    """One pipeline, dying at these points."""
    pick = random.Random(seed)
    # Only a pipeline's very first start writes the first progress record.
    order = sorted(points, key=lambda point: (point != "first_progress_written", pick.random()))
    with fresh_rig(lab, log=LOG) as rig:
        rig.prepare()
        with Load(rig.dsn, seed, clients=2) as load:
            for point in order:
                capture_dies(rig, point, pick)
                lab.count(crashes=1)
            last = rig.stream()
        rig.settle()
        rig.judge(lab)
        assert last.stop() == 0, last.stderr
        lab.count(transactions=load.transactions)
