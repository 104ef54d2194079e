"""Two hundred sessions are ended by the server, one after the other: no memory and no descriptor stays behind."""

from __future__ import annotations

from cdc.process.clock import SYSTEM_CLOCK
from tests.faults.lab import Found, Lab
from tests.faults.lives import Life
from tests.faults.rig import Rig, fresh_rig
from tests.faults.size import held
from tests.waiting import wait_until

RECONNECTS = 200
_WARM = 10
"""Sessions until buffers and caches have their size."""
_GROWTH_MB = 16.0
_GROWTH_FDS = 4
_REST_S, _SAMPLE_S = 15.0, 0.05
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
                first = at_rest(life)
        rig.settle(120)
        last = at_rest(life)
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


def at_rest(life: Life) -> tuple[float, int]:
    """The least that is held within some seconds: the looks beside the stream open sessions and let go of them."""
    ends_s = SYSTEM_CLOCK.monotonic() + _REST_S
    found = [held(life)]
    while SYSTEM_CLOCK.monotonic() < ends_s:
        SYSTEM_CLOCK.sleep(_SAMPLE_S)
        found.append(held(life))
    return min(memory for memory, _ in found), min(descriptors for _, descriptors in found)
