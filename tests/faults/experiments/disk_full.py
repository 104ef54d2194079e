"""Disks that are full, on a tmpfs of a few MB: what capture spills, the Delta warehouse, what `cdc verify` spools.

Each part says in a sentence that room is missing, loses nothing, and goes on when there is room: capture and sink by
themselves. Where nothing may be mounted there is nothing to try, and the results say so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import Exit
from tests.faults import oracle
from tests.faults.experiments.crash_sinks import follow
from tests.faults.lab import Found, Lab
from tests.faults.lives import Life
from tests.faults.rig import Rig, fresh_rig
from tests.waiting import wait_until

_NETTED_ROWS = 11_000
_WAITING_ROWS = 30_000
_IN_LINE = "select exists (select from pg_locks where relation = 'w'::regclass and not granted)"
_FULL = ("No space left", "no room", "cannot be kept")


class CannotMount(Exception):
    """This account, or this machine, mounts nothing."""


def run(lab: Lab) -> None:
    """A run for each seed."""
    for _ in lab.seeds():
        try:
            one(lab)
        except CannotMount as why:
            lab.note("skipped", f"no tmpfs can be mounted here: {why}")


def one(lab: Lab) -> None:
    """Every disk in turn."""
    spill(lab)
    waiting(lab)
    warehouse(lab)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of that size, mounted at the folder. CannotMount where that is not allowed."""
    folder.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


def grow(folder: Path, size: str) -> None:
    """Make room."""
    _mount("-o", f"remount,size={size}", str(folder))


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotMount(done.stderr.strip())


def spill(lab: Lab) -> None:
    """A netted transaction larger than the disk it is spilled to."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig, small_disk(rig.folder / "spill", "1m") as disk:
        rig.document["capture"]["spill_path"] = str(disk)
        rig.prepare()
        life = rig.stream()
        rig.execute(
            f"insert into d select g, repeat('d', 4000) from generate_series(1, {_NETTED_ROWS}) g",
            "update d set id = -id",
        )
        _full(life, "spill")
        grow(disk, "200m")
        rig.settle(120)
        rig.judge(lab)
        assert life.stop() == 0, life.stderr
        lab.count(disks=1)


def waiting(lab: Lab) -> None:
    """The records of a table that waits for a lock, more than the disk takes: it loses none, the lock is outlived."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig, small_disk(rig.folder / "waiting", "1m") as disk:
        rig.document["capture"] |= {"spill_path": str(disk), "waiting_limit": "1GB"}
        rig.prepare(
            "create table w (id int primary key, v text, n int default 0)",
            "alter table w alter v set storage external",
            "create table free (id int primary key, v text)",
        )
        rig.execute("insert into w select g, repeat('v', 4000) from generate_series(1, 10) g")
        life = rig.stream()
        rig.settle()
        with rig.session() as owner, owner.transaction():
            with rig.session() as writer, writer.transaction():
                writer.execute("update w set n = n + 1")
                writer.execute(
                    f"insert into w select g, repeat('y', 1000) from generate_series(100, {_WAITING_ROWS}) g".encode()
                )
                owner.execute("set lock_timeout = '60s'")
                asked = threading.Thread(target=owner.execute, args=("lock table w in access exclusive mode",))
                asked.start()
                wait_until(lambda: rig.one(_IN_LINE), 30)
            asked.join(60)
            _full(life, "waiting")
            grow(disk, "400m")
        rig.execute("insert into free values (1, 'free')")
        rig.settle(120)
        rig.judge(lab)
        assert life.stop() == 0, life.stderr
        lab.count(disks=1)


def warehouse(lab: Lab) -> None:
    """A Delta warehouse that is full; and the temporary folder of a verification."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig, small_disk(rig.folder / "warehouse", "2m") as disk:
        rig.document["sinks"] = {"delta": {"kind": "delta", "path": str(disk)}}
        rig.prepare()
        running = rig.stream()
        life = follow(rig, "delta")
        try:
            rig.execute(
                "insert into t select g, md5(random()::text), (select string_agg(md5(random()::text || k || g), '')"
                " from generate_series(1, 30) k), g from generate_series(1, 8000) g"
            )
            rig.settle()
            _full(life, "store_away")
            grow(disk, "400m")
            oracle.judge_stores(lab, rig.settings, ["delta"], rig.dsn, 120)
            _verify(rig)
            assert life.stop() == 0, life.stderr
            assert running.stop() == 0, running.stderr
        finally:
            life.kill()
        lab.count(disks=2)


def _verify(rig: Rig) -> None:
    with small_disk(rig.folder / "tmp", "64k") as tmp:
        command = [sys.executable, "-m", "cdc", "--config", str(rig.config), "verify", "delta"]
        env = {**os.environ, "TMPDIR": str(tmp)}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=120)
    sentences = [line for line in done.stderr.splitlines() if line.startswith(("error: ", "hint: "))]
    if done.returncode != Exit.UNAVAILABLE or len(sentences) != 2 or "Traceback" in done.stderr:
        raise Found(f"verify ended with {done.returncode} on a full disk: {done.stderr[-1500:]}")


def _full(life: Life, what: str) -> None:
    """It says so, and lives."""
    wait_until(
        lambda: any(word in life.stderr for word in _FULL) or life.exit is not None, 120, lambda: life.stderr[-500:]
    )
    SYSTEM_CLOCK.sleep(1)
    if life.exit is not None or "Traceback" in life.stderr:
        raise Found(f"{what}: a full disk ended it with {life.exit}: {life.stderr[-1500:]}")
