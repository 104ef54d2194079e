"""Ten minutes of as many changes as capture carries: what it holds of memory and descriptors does not grow.

A client inserts whenever the slot is less than some WAL behind, so that capture never rests. Every row is read back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc.process.clock import SYSTEM_CLOCK
from tests.faults.lab import Found, Lab
from tests.faults.lives import Life
from tests.faults.readback import Expected, read_back
from tests.faults.rig import Rig, fresh_rig
from tests.faults.size import held, require_lean

LOADED_S = 600.0
_AT_ONCE = 2_000
"""Rows of a transaction."""
_BEHIND_BYTES = 32 * 1024**2
_SAMPLE_S = 0.5
_WARM = 0.2
"""The share of the time until buffers and caches have their size."""
_GROWTH_MB = 24.0
_GROWTH_FDS = 4
_DEADLINE_S = 300.0
_BEHIND = "select pg_current_wal_lsn() - confirmed_flush_lsn from pg_replication_slots where slot_name = %s"


@dataclass
class Samples:
    """What the capture held, and when."""

    begun_s: float = field(default_factory=SYSTEM_CLOCK.monotonic)
    taken: list[tuple[float, float, int]] = field(default_factory=list)

    def look(self, life: Life) -> None:
        """Take one, if the last is old enough."""
        now_s = SYSTEM_CLOCK.monotonic() - self.begun_s
        if not self.taken or now_s - self.taken[-1][0] >= _SAMPLE_S:
            self.taken.append((now_s, *held(life)))

    def most(self, first: float, last: float) -> tuple[float, int]:
        """The most memory and descriptors between two shares of the time."""
        ends_s = self.taken[-1][0]
        some = [(mb, fds) for at_s, mb, fds in self.taken if first * ends_s <= at_s <= last * ends_s]
        return max(mb for mb, _ in some), max(fds for _, fds in some)


def run(lab: Lab) -> None:
    """A run for each seed."""
    for _ in lab.seeds():
        one(lab, LOADED_S)


def one(lab: Lab, loaded_s: float) -> None:
    """So many seconds of load."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        rig.prepare("create table f (id bigint primary key, v text)")
        life = rig.stream()
        samples = Samples()
        rows = load(rig, life, samples, loaded_s)
        rig.settle(_DEADLINE_S)
        require_lean(lab, life)
        first, last = samples.most(_WARM, 2 * _WARM), samples.most(1 - _WARM, 1)
        lab.peak(grown_mb=round(last[0] - first[0], 1), grown_fds=last[1] - first[1])
        lab.count(loaded_s=round(loaded_s), samples=len(samples.taken))
        found = read_back(rig, Expected({"f": rows}, lambda _table, number: f"row {number}"))
        lab.count(rows_compared=found.rows, lost=found.lost, wrong=found.wrong, duplicates=found.duplicates)
        if found.differs:
            raise Found(f"of {rows} rows: {found}")
        if last[0] - first[0] > _GROWTH_MB or last[1] - first[1] > _GROWTH_FDS:
            raise Found(f"{first} MB and descriptors became {last}")
        assert life.stop() == 0, life.stderr


def load(rig: Rig, life: Life, samples: Samples, loaded_s: float) -> int:
    """Insert rows as fast as capture takes them; how many."""
    rows = 0
    ends_s = SYSTEM_CLOCK.monotonic() + loaded_s
    with rig.session() as session:
        while SYSTEM_CLOCK.monotonic() < ends_s:
            if life.exit is not None:
                raise Found(f"the capture ended with {life.exit}: {life.stderr[-2000:]}")
            samples.look(life)
            behind = session.execute(_BEHIND, [rig.slot]).fetchone()
            if behind is not None and behind[0] > _BEHIND_BYTES:
                SYSTEM_CLOCK.sleep(_SAMPLE_S / 10)
                continue
            numbers = f"generate_series({rows + 1}, {rows + _AT_ONCE})"
            session.execute(f"insert into f select g, 'row ' || g from {numbers} g".encode())
            rows += _AT_ONCE
    return rows
