"""A field of 200 MB: by policy refused in one sentence, or put aside, also where an update left it untouched; no crash.

What stands before it is in the log when capture refuses it, and what stands behind it when it was put aside.
"""

from __future__ import annotations

import re

from cdc.process.errors import Exit
from cdc.record.topic_names import dead_topic
from cdc.wire.dead_letter import Why
from connectors.kafka.dead_letters import DeadLetterTopic
from tests.faults.lab import Found, Lab
from tests.faults.lives import Life
from tests.faults.rig import Rig, fresh_rig
from tests.faults.size import LIMIT_MB, peak_mb
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
        rig.prepare("create table t (id int primary key, v text, n int)")
        life = rig.stream()
        rig.execute(
            "insert into t select g, 'before' from generate_series(1, 1000) g",
            f"insert into t values (5000, repeat('0123456789', {size_mb * 100_000}))",
            "insert into t select g, 'behind' from generate_series(6000, 7000) g",
        )
        most = _refused(rig, life)
        rig.document["log"]["oversized"] = "dead-letter"
        life = rig.stream()
        rig.execute("update t set n = 1 where id = 5000", "insert into t values (8000, 'last')")
        rig.settle(_DEADLINE_S)
        most = max(most, peak_mb(life))
        if rig.count("t") != 1000 + 1001 + 1:
            raise Found(f"{rig.count('t')} records: all are in the log but the large row's")
        letters = list(DeadLetterTopic(rig.settings.log, dead_topic(rig.settings.name)).read())
        if [(letter.why, letter.key) for letter in letters] != [(Why.OVERSIZED, b'{"id":5000}')] * 2:
            raise Found(f"the letters are {letters}")
        lab.count(refused=1, put_aside=len(letters))
        lab.peak(field_mb=size_mb, memory_mb=round(most))
        if most > LIMIT_MB:
            raise Found(f"{most:.0f} MB, and {LIMIT_MB} MB is the limit")


def _refused(rig: Rig, life: Life) -> float:
    """Wait until the capture has ended as it should; the most memory it had, in MB."""
    most = 0.0

    def ended() -> bool:
        nonlocal most
        if life.exit is None:
            most = max(most, peak_mb(life))
        return life.exit is not None

    wait_until(ended, _DEADLINE_S, lambda: life.stderr[-500:])
    said = life.stderr
    if life.exit != Exit.POISON or not re.search("^error: .*larger than", said, re.MULTILINE) or "Traceback" in said:
        raise Found(f"it ended with {life.exit}: {said[-1500:]}")
    if rig.count("t") != 1000:
        raise Found(f"{rig.count('t')} records: those before it are in the log, none behind it")
    return most
