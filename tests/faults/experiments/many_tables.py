"""Five thousand tables in one pipeline: made, captured, each with its changes, in bounded memory."""

from __future__ import annotations

from cdc.process.clock import SYSTEM_CLOCK
from tests.faults.lab import Found, Lab
from tests.faults.readback import Expected, read_back
from tests.faults.rig import fresh_rig
from tests.faults.size import require_lean
from tests.waiting import wait_until

TABLES = 5_000
_AT_ONCE = 200
_ROWS = 3
_DEADLINE_S = 900.0


def run(lab: Lab) -> None:
    """A run for each seed."""
    for _ in lab.seeds():
        one(lab, TABLES)


def one(lab: Lab, tables: int) -> None:
    """A topic of one partition for each, and a change in each."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h", "partitions": 1}) as rig:
        start_s = SYSTEM_CLOCK.monotonic()
        rig.prepare(*(f"create table m{number} (id int primary key, v text)" for number in range(tables)))
        lab.note("made", f"{tables:,} tables and topics in {SYSTEM_CLOCK.monotonic() - start_s:.0f} s")
        start_s = SYSTEM_CLOCK.monotonic()
        life = rig.stream()
        lab.note("started", f"streams {SYSTEM_CLOCK.monotonic() - start_s:.1f} s after the start")
        with rig.session() as session:
            for first in range(0, tables, _AT_ONCE):
                with session.transaction():
                    for number in range(first, min(first + _AT_ONCE, tables)):
                        series = f"generate_series(1, {_ROWS}) g"
                        session.execute(f"insert into m{number} select g, 'm{number} ' || g from {series}".encode())
        rig.settle(_DEADLINE_S)
        require_lean(lab, life)
        again_s = SYSTEM_CLOCK.monotonic()
        life.kill()
        life = rig.start()
        wait_until(lambda: life.said("streaming"), _DEADLINE_S, lambda: life.stderr[-500:])
        lab.note("restarted", f"streams {SYSTEM_CLOCK.monotonic() - again_s:.1f} s after a kill")
        require_lean(lab, life)
        assert life.stop() == 0, life.stderr
        lab.peak(tables=tables)
        found = read_back(
            rig, Expected(dict.fromkeys((f"m{n}" for n in range(tables)), _ROWS), lambda table, n: f"{table} {n}")
        )
        lab.count(rows_compared=found.rows, lost=found.lost, wrong=found.wrong, duplicates=found.duplicates)
        if found.differs:
            raise Found(f"of {tables * _ROWS} rows: {found}")
