"""Postgres is ended by ``-m immediate`` again and again under load, and recovers; the capture lives through it.

Ten ends a seed, at random moments, some while it still recovers from the one before. Nothing is acknowledged that the
recovered server has forgotten, and nothing stands in the log twice.
"""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import CdcError
from tests.faults.lab import Found, Lab
from tests.faults.rig import fresh_rig
from tests.faults.workload import Load
from tests.waiting import wait_until

ENDS = 10


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for seed in lab.seeds():
        one(lab, seed, ENDS)


def one(lab: Lab, seed: int, ends: int) -> None:
    """One pipeline, its server ended so many times."""
    pick = random.Random(seed)
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        rig.prepare()
        life = rig.stream()
        with Load(rig.dsn, seed, clients=2, pause_s=0.05) as load:
            for _ in range(ends):
                SYSTEM_CLOCK.sleep(pick.uniform(0.1, 3))
                _end(lab)
                if pick.random() < 0.3:
                    # Again, while the recovery may still run.
                    with suppress(CdcError, ProcessLookupError):
                        lab.stack.start_part("postgres")
                        SYSTEM_CLOCK.sleep(pick.uniform(0, 0.3))
                        _end(lab)
                lab.stack.ensure("postgres")
                lab.count(ends=1)
        if life.exit is not None:
            raise Found(f"the capture ended with {life.exit}: {life.stderr[-2000:]}")
        rig.settle(120)
        rig.judge(lab)
        lab.count(reconnects=sum(1 for _ in life.events("reconnecting")), transactions=load.transactions)
        assert life.stop() == 0, life.stderr


def _end(lab: Lab) -> None:
    """As ``pg_ctl stop -m immediate``: SIGQUIT, no checkpoint."""
    os.kill(lab.stack.pid_of("postgres"), signal.SIGQUIT)
    wait_until(lambda: _state(lab) in ("stopped", "failed"), 60, lambda: _state(lab))


def _state(lab: Lab) -> str:
    return str(lab.stack.status()["parts"]["postgres"]["state"])
