"""The first snapshot dies at each of its crash points, parent and workers, while the application writes.

One seed is one pipeline: the parent dies at every point in turn, and at the points of the workers each worker dies at
its first chunk until the run gives up with a sentence. The last run ends it; then the log must give the source's rows.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence

from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Exit
from tests.faults.lab import Found, Lab
from tests.faults.points import SNAPSHOT, SNAPSHOT_WORKER
from tests.faults.rig import Rig, fresh_rig
from tests.faults.workload import Load
from tests.programs import Spawned

_S = 120.0


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for seed in lab.seeds():
        one(lab, seed, SNAPSHOT, SNAPSHOT_WORKER)


def one(lab: Lab, seed: int, parent: Sequence[str], workers: Sequence[str]) -> None:
    """One pipeline, its snapshot dying at these points: the parent's in order, the workers' among them."""
    pick = random.Random(seed)
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}, snapshot={"chunk_bytes": "64kB"}) as rig:
        rig.init()
        with Load(rig.dsn, seed, clients=2) as load:
            rig.execute("insert into t select g, 'old', repeat('o', 100), g from generate_series(100000, 106000) g")
            left = sorted(workers, key=lambda _: pick.random())
            for number, point in enumerate(parent):
                _expect(rig, point, CRASH_EXIT)
                lab.count(crashes=1)
                # Between the slot and the last chunk the workers have something to do.
                if 3 <= number <= 6:
                    for _ in range(-(-len(left) // (7 - number))):
                        worker_point = left.pop()
                        _expect(rig, worker_point, Exit.UNAVAILABLE)
                        lab.count(crashes=1)
            _expect(rig, "", Exit.OK)
            last = rig.stream()
        rig.settle()
        rig.judge(lab)
        assert last.stop() == 0, last.stderr
        lab.count(transactions=load.transactions)


def _expect(rig: Rig, point: str, code: int) -> None:
    env = {**os.environ, "CDC_CRASH_AT": point}
    out, err = rig.folder / "snapshot.out", rig.folder / "snapshot.err"
    run = Spawned.cold([sys.executable, "-m", "cdc", "--config", str(rig.config), "snapshot"], out, err, env)
    try:
        got = run.wait(_S)
    finally:
        if run.process.poll() is None:
            run.kill()
    if got != code:
        raise Found(f"{point or 'the last run'}: the snapshot ended with {got}, not {code}: {run.stderr[-2000:]}")
    if "Traceback" in run.stderr:
        raise Found(f"{point}: a traceback: {run.stderr[-2000:]}")
