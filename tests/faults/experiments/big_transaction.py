"""One transaction of ten million rows, with wal_sender_timeout at three seconds, in bounded memory; read back."""

from __future__ import annotations

from tests.faults.lab import Found, Lab
from tests.faults.readback import Expected, read_back
from tests.faults.rig import fresh_rig
from tests.faults.size import caught_up

ROWS = 10_000_000
_DEADLINE_S = 3_000.0


def run(lab: Lab) -> None:
    """A run for each seed."""
    for _ in lab.seeds():
        one(lab, ROWS)


def one(lab: Lab, rows: int) -> None:
    """One transaction of so many rows, committed before the capture starts."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        rig.prepare("create table t (id int primary key, v text)")
        rig.document["source"]["dsn"] += " options='-c wal_sender_timeout=3s'"
        rig.execute(f"insert into t select g, 'value of row ' || g from generate_series(1, {rows}) g")
        life = rig.stream()
        took_s = caught_up(lab, rig, life, rows, _DEADLINE_S)
        found = read_back(rig, Expected({"t": rows}, lambda _, number: f"value of row {number}"))
        lab.count(rows_compared=found.rows, lost=found.lost, wrong=found.wrong, duplicates=found.duplicates)
        if found.differs:
            raise Found(f"of {rows} rows: {found}")
        assert life.stop() == 0, life.stderr
        lab.note("rate", f"{rows / took_s:,.0f} rows/s")
