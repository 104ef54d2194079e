"""Tables that are read while capture streams: ten million narrow rows, and a row of 300 MB, in bounded memory (H117).

The narrow rows are all in the log, each as the source has it. The row that no topic takes fails its reading in a
sentence, at the cost of three times its size, and the stream goes on beside it.
"""

from __future__ import annotations

from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.state import ReadingState, find_all
from cdc.wiring import open_state
from tests.faults.lab import Found, Lab
from tests.faults.lives import Life, command
from tests.faults.readback import Expected, read_back
from tests.faults.rig import Rig, fresh_rig
from tests.faults.size import LIMIT_MB, peak_mb, require_lean
from tests.waiting import wait_until

ROWS = 10_000_000
SIZE_MB = 300
_AT_ONCE = 200_000
_COPIES = 3
"""Of a row that is refused: Postgres's client has it whole, in a buffer that it doubles, before we can look at it."""
_DEADLINE_S = 3_600.0


def run(lab: Lab) -> None:
    """A run for each seed."""
    for _ in lab.seeds():
        one(lab, ROWS, SIZE_MB)


def one(lab: Lab, rows: int, size_mb: int) -> None:
    """Both tables, one after the other."""
    narrow(lab, rows)
    large(lab, size_mb)


def narrow(lab: Lab, rows: int) -> None:
    """Rows that were there before the slot was, read by a later snapshot."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        statements = ["create table n (id bigint primary key, v text)"]
        for first in range(1, rows + 1, _AT_ONCE):
            numbers = f"generate_series({first}, {min(rows, first + _AT_ONCE - 1)})"
            statements.append(f"insert into n select g, 'n' || g from {numbers} g")
        rig.prepare(*statements)
        life = rig.stream()
        begun_s = SYSTEM_CLOCK.monotonic()
        reading = read_again(rig, life, "n")
        if reading.state != "done" or reading.rows != rows:
            raise Found(f"the reading is {reading.state} with {reading.rows} rows: {reading.detail}")
        lab.note("read", f"{rows:,} rows in {SYSTEM_CLOCK.monotonic() - begun_s:.0f} s")
        require_lean(lab, life)
        found = read_back(rig, Expected({"n": rows}, lambda _table, number: f"n{number}"))
        lab.count(rows_compared=found.rows, lost=found.lost, wrong=found.wrong, duplicates=found.duplicates)
        if found.differs:
            raise Found(f"of {rows} rows: {found}")
        assert life.stop() == 0, life.stderr


def large(lab: Lab, size_mb: int) -> None:
    """A row that no topic takes and that may not be put aside; a change of another table meanwhile."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h", "oversized": "stop"}) as rig:
        rig.prepare(
            "create table g (id int primary key, v text)",
            "create table free (id int primary key)",
            "insert into g select n, 'small' from generate_series(1, 1000) n",
            f"insert into g values (5000, repeat('0123456789', {size_mb * 100_000}))",
        )
        life = rig.stream()
        before_mb = peak_mb(life)
        reading = read_again(rig, life, "g")
        if reading.state != "failed" or "g" not in reading.table:
            raise Found(f"the reading is {reading.state}: {reading.detail}")
        rig.execute("insert into free values (1)")
        rig.settle()
        if rig.count("free") != 1:
            raise Found("the stream did not go on")
        lab.peak(row_mb=size_mb, memory_mb=round(peak_mb(life)), grown_mb=round(peak_mb(life) - before_mb, 1))
        lab.note("failed", reading.detail)
        if peak_mb(life) > LIMIT_MB + _COPIES * size_mb:
            raise Found(f"{peak_mb(life):.0f} MB, which is more than {_COPIES} times the row beside {LIMIT_MB} MB")
        assert life.stop() == 0, life.stderr
        lab.count(rows_refused=1)


def read_again(rig: Rig, life: Life, table: str) -> ReadingState:
    """Ask for a later snapshot, and wait until it is over."""
    asked = Life(
        command, ["--config", str(rig.config), "snapshot", f"public.{table}", "--detach"], rig.folder / "ask.err"
    )
    if asked.wait(60) != 0:
        raise Found(f"cdc snapshot --detach ended with {asked.exit}: {asked.stderr}")

    def over() -> ReadingState | None:
        if life.exit is not None:
            raise Found(f"the capture ended with {life.exit}: {life.stderr[-2000:]}")
        found = [one for one in find_all(open_state(rig.settings).read(), ReadingState) if one.over]
        return found[0] if found else None

    reading = wait_until(over, _DEADLINE_S, lambda: life.stderr[-500:])
    assert reading is not None
    return reading
