"""A table of 1,600 columns, the most that Postgres has, through the log and back."""

from __future__ import annotations

from tests.faults.lab import Lab
from tests.faults.rig import fresh_rig
from tests.faults.size import caught_up

COLUMNS = 1_600
_ROWS = 300
_DEADLINE_S = 300.0


def run(lab: Lab) -> None:
    """A run for each seed."""
    for _ in lab.seeds():
        one(lab, COLUMNS)


def one(lab: Lab, columns: int) -> None:
    """Insert, update of one column, delete; each row with all columns."""
    names = [f"c{number}" for number in range(1, columns)]
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        rig.prepare(f"create table t (id int primary key, {', '.join(f'{name} int' for name in names)})")
        life = rig.stream()
        values = ", ".join(f"g + {number}" for number in range(len(names)))
        rig.execute(
            f"insert into t select g, {values} from generate_series(1, {_ROWS}) g",
            "update t set c7 = null where id % 2 = 0",
            "delete from t where id % 3 = 0",
        )
        caught_up(lab, rig, life, _ROWS + _ROWS // 2 + 2 * (_ROWS // 3), _DEADLINE_S)
        rig.judge(lab)
        assert life.stop() == 0, life.stderr
        lab.peak(columns=columns)
