"""A store is away for ten minutes: its sink waits, the others go on, and it catches up."""

from __future__ import annotations

from cdc.process.clock import SYSTEM_CLOCK
from tests.faults import oracle
from tests.faults.experiments.crash_sinks import PARTS, follow, forget, stores
from tests.faults.lab import Found, Lab
from tests.faults.rig import fresh_rig
from tests.faults.workload import Load

DOWN_S = 600.0


def run(lab: Lab) -> None:
    """A run for each seed."""
    for seed in lab.seeds():
        one(lab, seed, DOWN_S)


def one(lab: Lab, seed: int, down_s: float) -> None:
    """Redis is stopped in order, so that it keeps what it has, and started again."""
    with fresh_rig(lab, PARTS, log={"min_compaction_lag": "1h"}) as rig:
        names = ["cache", "sql"]
        rig.document["sinks"] = stores(lab, rig.folder, rig.settings.name, names)
        rig.prepare()
        running = rig.stream()
        lives = {name: follow(rig, name) for name in names}
        try:
            with Load(rig.dsn, seed, clients=2, pause_s=0.1) as load:
                SYSTEM_CLOCK.sleep(5)
                lab.stack.stop_part("redis")
                SYSTEM_CLOCK.sleep(down_s)
                rig.settle()
                oracle.require_shown(rig.settings, ["sql"], rig.dsn, 30)
                lab.stack.start_part("redis")
                lab.stack.ensure("redis")
            rig.settle()
            oracle.judge_stores(lab, rig.settings, names, rig.dsn, 240)
            for name, life in lives.items():
                if life.stop() != 0:
                    raise Found(f"{name} ended with {life.exit}: {life.stderr[-2000:]}")
            assert running.stop() == 0, running.stderr
            lab.count(down_s=round(down_s), transactions=load.transactions)
        finally:
            for life in lives.values():
                life.kill()
            lab.stack.ensure("redis")
            forget(rig.document["sinks"], rig.settings.name)
