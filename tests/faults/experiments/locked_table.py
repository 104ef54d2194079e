"""Ten minutes of ACCESS EXCLUSIVE on a table that changes meanwhile: it waits alone, and nothing is read again (H95).

The lock is on the root of a partitioned table, and its leaf is written to. So a thousand changes a second come of a
table whose rows nobody can read. Every tenth leaves out a value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.state import ReadingState, find_all, requests_of
from cdc.record.tables_aside import asides_of
from cdc.wiring import open_state
from connectors.kafka.clients import reader_config
from tests.faults.lab import Found, Lab
from tests.faults.rig import Rig, fresh_rig
from tests.faults.size import caught_up
from tests.waiting import wait_until

LOCKED_S = 600.0
RATE = 1_000
"""Changes a second of the locked table."""
_ROWS = 5_000
_AT_ONCE = 20
_FREE_S = 0.2
"""The other table changes so often."""
_LATE_S = 2.5
"""No record of the other table takes longer, but for one: the stream waits two seconds for the lock once."""
_BEGUN_S = 5.0
_DEADLINE_S = 900.0
_COLUMNS = "region int, status text, name text, street text, town text, at timestamptz, total numeric(10, 2), n int"
_SCHEMA = (
    f"create table t (id int primary key, {_COLUMNS}, doc text) partition by range (id)",
    # What vacuum or analyze note of the leaf would have the writer read its bounds again, from the root that is locked.
    "create table leaf partition of t for values from (0) to (1000000000)"
    " with (autovacuum_enabled = false, toast.autovacuum_enabled = false)",
    "alter table leaf alter doc set storage external",
    "create table free (id int primary key, at float8)",
)
_ROWS_OF_T = """insert into t select g, g % 50, 'open', repeat('name ', 8), repeat('street ', 8), repeat('town ', 5),
now(), g / 7.0, 0, case when g % 10 = 0 then repeat('x', 3000) end from generate_series(1, {}) g"""
_CHANGE = "update leaf set n = n + 1, status = 'paid', at = clock_timestamp() where id > %s and id <= %s"


def run(lab: Lab) -> None:
    """A run for each seed."""
    for _ in lab.seeds():
        one(lab, LOCKED_S, RATE)


def one(lab: Lab, locked_s: float, rate: int) -> None:
    """The lock for so many seconds, so many changes in each of them."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}, capture={"spill_path": str(lab.folder)}) as rig:
        rig.prepare(*_SCHEMA)
        life = rig.stream()
        rig.execute(_ROWS_OF_T.format(_ROWS))
        rig.settle()
        with _arrivals(rig) as arrived, rig.session() as owner, rig.session() as writer:
            writer.execute("set lock_timeout = '10s'")
            writer.execute(_CHANGE.encode(), [0, _AT_ONCE])
            owner.execute("begin")
            owner.execute("lock table only t in access exclusive mode")
            begun_s, changes, spilled = SYSTEM_CLOCK.monotonic(), _Writer(writer, rate), 0
            with _running(_other(rig)):
                while SYSTEM_CLOCK.monotonic() < begun_s + locked_s:
                    changes.catch_up()
                    spilled = max(spilled, _spilled(life.pid, lab.folder))
            waited = life.said("table_waits")
            owner.execute("rollback")
            took_s = caught_up(lab, rig, life, _ROWS + _AT_ONCE + changes.count, _DEADLINE_S)
        if not waited or life.said("table_aside") or _read_again(rig):
            raise Found(f"it waited: {waited}; set aside: {life.said('table_aside')}; read again: {_read_again(rig)}")
        late = sorted(arrived)
        lab.peak(spilled_mb=round(spilled / 1e6), latest_ms=round(1000 * late[-1]))
        lab.count(changes=changes.count, locked_s=round(locked_s), rereads=0)
        lab.note("the other table", f"{_percent(late, 50)} ms at the median, {_percent(late, 99)} ms for 99 of 100")
        lab.note("written behind the lock", f"{changes.count / took_s:,.0f} changes/s")
        if late[-1] > _LATE_S + _BEGUN_S or _percent(late, 99) > 1000 * _LATE_S:
            raise Found(f"the other table came {late[-1]:.1f} s late")
        rig.judge(lab)
        assert life.stop() == 0, life.stderr


class _Writer:
    """Keeps to the rate, as far as the server lets it."""

    def __init__(self, session: psycopg.Connection[object], rate: int) -> None:
        self._session = session
        self._rate = rate
        self._begun_s = SYSTEM_CLOCK.monotonic()
        self._at = 0
        self.count = 0

    def catch_up(self) -> None:
        due = (SYSTEM_CLOCK.monotonic() - self._begun_s) * self._rate
        if self.count >= due:
            SYSTEM_CLOCK.sleep(_AT_ONCE / self._rate)
        else:
            found = self._session.execute(_CHANGE.encode(), [self._at, self._at + _AT_ONCE])
            self.count += found.rowcount
            self._at = (self._at + _AT_ONCE) % _ROWS


@contextmanager
def _running(turn: Callable[[threading.Event], None]) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=turn, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _other(rig: Rig) -> Callable[[threading.Event], None]:
    def change(over: threading.Event) -> None:
        with rig.session() as session:
            number = 0
            while not over.wait(_FREE_S):
                number += 1
                session.execute("insert into free values (%s, extract(epoch from clock_timestamp()))", [number])

    return change


@contextmanager
def _arrivals(rig: Rig) -> Iterator[list[float]]:
    """How many seconds after its change each record of the other table could be read."""
    found: list[float] = []
    topic = f"{rig.settings.name}.public.free"

    def follow(over: threading.Event) -> None:
        consumer = Consumer(reader_config(rig.settings.log))
        parts = range(rig.settings.log.partitions)
        consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in parts])
        while not over.is_set():
            for message in consumer.consume(100, timeout=0.1):
                value = message.value()
                if message.error() is None and value is not None:
                    found.append(SYSTEM_CLOCK.now_ns() / 1e9 - orjson.loads(value)["after"]["at"])
        consumer.close()

    with _running(follow):
        yield found


def _read_again(rig: Rig) -> bool:
    """Whether a reading was asked for. The note that the table waited goes beside the stream, a moment later."""
    wait_until(lambda: not asides_of(open_state(rig.settings).read()), 60, "no table waits")
    documents = open_state(rig.settings).read()
    readings = [one.table for one in find_all(documents, ReadingState)]
    return "public.t" in [*readings, *(one.table for one in requests_of(documents))]


def _spilled(pid: int, folder: Path) -> int:
    """Bytes of the files without a name that the process has there."""
    size_bytes = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if str(link.readlink()).startswith(str(folder)) and "(deleted)" in str(link.readlink()):
                size_bytes += link.stat().st_size
        except OSError:
            continue
    return size_bytes


def _percent(found: list[float], share: int) -> int:
    return round(1000 * found[min(len(found) - 1, len(found) * share // 100)])
