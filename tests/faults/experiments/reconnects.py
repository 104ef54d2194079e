"""Two hundred sessions are ended by the server, one after the other: no memory and no descriptor stays behind."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tests.faults.lab import Found, Lab
from tests.faults.lives import Life
from tests.faults.rig import Rig, fresh_rig
from tests.waiting import wait_until

RECONNECTS = 200
_WARM = 10
"""Sessions until buffers and caches have their size."""
_GROWTH_MB = 16.0
_GROWTH_FDS = 4
_END = (
    "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s and active_pid is not null"
)


def run(lab: Lab) -> None:
    """A run for each seed."""
    for _ in lab.seeds():
        one(lab, RECONNECTS)


def one(lab: Lab, reconnects: int) -> None:
    """So many sessions, with a change in each."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        rig.prepare("create table t (id int primary key, v text)")
        life = rig.stream()
        first = (0.0, 0)
        for number in range(reconnects):
            rig.execute(f"insert into t values ({number}, 'v')")
            _reconnect(rig, life, number)
            if number == min(_WARM, reconnects // 2):
                first = _held(life)
        rig.settle(120)
        last = _settled(life, first[1] + _GROWTH_FDS)
        lab.peak(grown_mb=round(last[0] - first[0], 1), grown_fds=last[1] - first[1])
        if last[0] - first[0] > _GROWTH_MB or last[1] - first[1] > _GROWTH_FDS:
            raise Found(f"{first} MB and descriptors became {last}")
        rig.judge(lab)
        lab.count(reconnects=reconnects)
        assert life.stop() == 0, life.stderr


def _reconnect(rig: Rig, life: Life, number: int) -> None:
    """End the walsender, and return when the next one streams."""
    before = rig.one("select active_pid from pg_replication_slots where slot_name = %s", rig.slot)
    if not rig.one(_END, rig.slot):
        raise Found(f"session {number} did not stream: {rig.last_words()}")

    def again() -> bool:
        if life.exit is not None:
            raise Found(f"the capture ended with {life.exit}: {life.stderr[-2000:]}")
        pid = rig.one("select active_pid from pg_replication_slots where slot_name = %s", rig.slot)
        return pid is not None and pid != before

    wait_until(again, 90, rig.last_words)


def _settled(life: Life, most_fds: int) -> tuple[float, int]:
    """What is held once the looks that are under way have let go of their sessions. 30 s at most."""
    with suppress(AssertionError):
        wait_until(lambda: _held(life)[1] <= most_fds, 30)
    return _held(life)


def _held(life: Life) -> tuple[float, int]:
    """(MB resident, open descriptors)"""
    pages = int(Path(f"/proc/{life.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2, len(os.listdir(f"/proc/{life.pid}/fd"))
