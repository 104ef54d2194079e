"""The broker stands still for a minute under load, wal_sender_timeout at three seconds: the session stays."""

from __future__ import annotations

import os
import signal

from cdc.process.clock import SYSTEM_CLOCK
from tests.faults.lab import Lab
from tests.faults.rig import fresh_rig
from tests.faults.size import require_lean
from tests.faults.workload import Load
from tests.waiting import wait_until

STALL_S = 60.0


def run(lab: Lab) -> None:
    """A run for each seed."""
    for seed in lab.seeds():
        one(lab, seed, STALL_S)


def one(lab: Lab, seed: int, stall_s: float) -> None:
    """SIGSTOP for so long, with more waiting in the WAL than memory may hold."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        rig.prepare()
        rig.document["source"]["dsn"] += " options='-c wal_sender_timeout=3s'"
        life = rig.stream()
        with Load(rig.dsn, seed, clients=2) as load:
            wait_until(lambda: load.transactions > 100, 60)
            broker = lab.stack.pid_of("kafka")
            os.kill(broker, signal.SIGSTOP)
            try:
                rig.execute(
                    "insert into f select g, 'much', repeat(md5(g::text), 60), g"
                    " from generate_series(90000000, 90100000) g"
                )
                SYSTEM_CLOCK.sleep(stall_s)
                active = rig.one("select active from pg_replication_slots where slot_name = %s", rig.slot)
                assert active, life.stderr
            finally:
                os.kill(broker, signal.SIGCONT)
        rig.settle(300)
        require_lean(lab, life)
        rig.judge(lab)
        assert life.stop() == 0, life.stderr
        lab.count(stalled_s=round(stall_s), transactions=load.transactions)
