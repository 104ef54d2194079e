"""A field of 200 MB: refused in one sentence, by policy, with everything before it in the log; never a crash."""

from __future__ import annotations

import re

from cdc.errors import Exit
from tests.faults.lab import Found, Lab
from tests.faults.rig import fresh_rig
from tests.faults.size import peak_mb
from tests.waiting import wait_until

SIZE_MB = 200
_DEADLINE_S = 180.0


def run(lab: Lab) -> None:
    """A run for each seed."""
    for _ in lab.seeds():
        one(lab, SIZE_MB)


def one(lab: Lab, size_mb: int) -> None:
    """A row that no topic takes, between rows that it does."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        rig.prepare("create table t (id int primary key, v text)")
        life = rig.stream()
        rig.execute(
            "insert into t select g, 'before' from generate_series(1, 1000) g",
            f"insert into t values (5000, repeat('0123456789', {size_mb * 100_000}))",
            "insert into t select g, 'behind' from generate_series(6000, 7000) g",
        )
        most = 0.0

        def ended() -> bool:
            nonlocal most
            if life.exit is None:
                most = max(most, peak_mb(life))
            return life.exit is not None

        wait_until(ended, _DEADLINE_S, lambda: life.stderr[-500:])
        said = life.stderr
        if (
            life.exit != Exit.POISON
            or not re.search("^error: .*larger than", said, re.MULTILINE)
            or "Traceback" in said
        ):
            raise Found(f"it ended with {life.exit}: {said[-1500:]}")
        if rig.count("t") != 1000:
            raise Found(f"{rig.count('t')} records: those before it are in the log, none behind it")
        lab.count(refused=1)
        lab.peak(field_mb=size_mb, memory_mb=round(most))
