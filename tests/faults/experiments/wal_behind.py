"""A gigabyte of WAL behind: the capture was away and catches up, in bounded memory, with nothing lost or twice."""

from __future__ import annotations

from tests.faults.lab import Lab
from tests.faults.rig import fresh_rig
from tests.faults.size import caught_up

BYTES = 1024**3
_ROWS = 20_000
_DEADLINE_S = 1_200.0


def run(lab: Lab) -> None:
    """A run for each seed."""
    for _ in lab.seeds():
        one(lab, BYTES)


def one(lab: Lab, size: int) -> None:
    """So many bytes of WAL, in transactions of thousands of wide updates, before the capture starts."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        rig.prepare("create table t (id int primary key, n int, v text)")
        kept = "select pg_current_wal_insert_lsn() - confirmed_flush_lsn from pg_replication_slots where slot_name = %s"
        rig.execute(f"insert into t select g, 0, repeat(md5(g::text), 20) from generate_series(1, {_ROWS}) g")
        records = _ROWS
        while rig.one(kept, rig.slot) < size:
            rig.execute("update t set n = n + 1, v = reverse(v) where id % 4 = 0", "update t set n = n + 1")
            records += _ROWS + _ROWS // 4
        behind = int(rig.one(kept, rig.slot))
        life = rig.stream()
        took_s = caught_up(lab, rig, life, records, _DEADLINE_S)
        rig.judge(lab)
        assert life.stop() == 0, life.stderr
        lab.count(wal_bytes=behind)
        lab.note("rate", f"{behind / took_s / 1e6:,.1f} MB of WAL/s, {records / took_s:,.0f} records/s")
