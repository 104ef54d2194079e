"""SIGKILL of each part of a standalone cluster of Spark in the middle of large batches, which executors apply.

One seed is one pipeline with a cache, a search index and a warehouse, fed by ``cdc sink`` on a master whose notes are
in files and two workers. Ten times a part is killed at a random moment: a worker, an executor, a Python worker of one,
the driver with all its processes, or the master, alone or together with another part. Whatever ended is started again,
and each store has to go on. At the end the stores are compared with the newest record of each key, as the topics have
it.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from cdc.process.clock import SYSTEM_CLOCK
from connectors.kafka.compacted_topic import read_range
from sinks.contract.port import OpenSink
from sinks.contract.stores import open_store
from tests.faults.experiments.crash_sinks import forget, stores
from tests.faults.lab import Found, Lab
from tests.integration.spark.family import below, named
from tests.integration.spark.handmade import HandMadeLog
from tests.programs import Spawned
from tests.standalone_cluster import LIGHT_JVM, Cluster, bare_cluster
from tests.waiting import wait_until

KILLS = 10
STORES = ("cache", "search", "delta")
_PARTS = ("worker", "executor", "python", "driver", "master")
_KEYS = 4_000
_ROWS = 6_000
"""Of each batch. Executors read them in slices of :data:`_SLICE_BYTES`, so that there is a middle of it."""
_SLICE_BYTES = 128 * 1024
_RECOVERS_S = 240.0


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for seed in lab.seeds():
        one(lab, seed, KILLS)


def one(lab: Lab, seed: int, kills: int) -> None:
    """One pipeline on a cluster of its own, so many kills."""
    pick = random.Random(seed)
    with _filled(lab) as (log, folder, sinks), bare_cluster(folder, recovers=True) as cluster:
        for _ in range(2):
            cluster.add_worker()
        whole = _Whole(lab, log, cluster, folder, sinks)
        try:
            whole.start()
            whole.change(pick)
            whole.level()
            for part in _turns(pick, kills):
                whole.change(pick)
                SYSTEM_CLOCK.sleep(pick.uniform(0, 3))
                whole.kill(part, pick)
                whole.level()
            whole.end()
            whole.judge()
        finally:
            whole.close()


def _turns(pick: random.Random, kills: int) -> list[str]:
    """The part of each kill: all of them as often, in any order."""
    turns = [_PARTS[number % len(_PARTS)] for number in range(kills)]
    pick.shuffle(turns)
    return turns


@contextmanager
def _filled(lab: Lab) -> Iterator[tuple[HandMadeLog, Path, Mapping[str, Any]]]:
    """Topics of a pipeline, and its stores, which are gone afterwards."""
    name = f"f{secrets.token_hex(4)}"
    folder = lab.folder / name
    folder.mkdir(parents=True)
    sinks = stores(lab, folder, name, STORES)
    log = HandMadeLog(name, lab.stack.ensure("kafka")["kafka"]["bootstrap_servers"], partitions=4, compaction_lag="1h")
    log.init()
    try:
        yield log, folder, sinks
    finally:
        forget(sinks, name)
        log.admin.delete([topic for topic in log.admin.names() if topic.startswith(f"{name}.")])


class _Whole:
    """The application on its cluster."""

    def __init__(
        self, lab: Lab, log: HandMadeLog, cluster: Cluster, folder: Path, sinks: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._lab, self._log, self._cluster, self._folder = lab, log, cluster, folder
        spark = {
            "master": cluster.url,
            "checkpoint": str(folder / "checkpoints"),
            "driver_batch_rows": 100,
            "slice_bytes": _SLICE_BYTES,
            "conf": {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"},
        }
        self._config = folder / "cdc.toml"
        self._config.write_text(log.toml(sinks, **spark), encoding="utf-8")
        self._settings = log.settings(sinks, **spark)
        self._at_end = ExitStack()
        self._stores = {name: self._opened(name) for name in sinks}
        self._driver: Spawned | None = None
        self._drivers = 0
        self._lsn = 0

    def start(self) -> None:
        """The driver."""
        argv = [sys.executable, "-m", "cdc", "--config", str(self._config), "sink"]
        self._drivers += 1
        err = self._folder / f"sink.{self._drivers}.err"
        self._driver = Spawned.cold(argv, self._folder / "sink.out", err, {**os.environ, **LIGHT_JVM})

    def change(self, pick: random.Random) -> None:
        """Rows of a large batch: new ones, changes and deletes."""
        some = [pick.randrange(_KEYS) for _ in range(_ROWS)]
        gone = {n for n in some if n % 11 == 0}
        self._log.put({"id": n, "status": f"s{pick.randrange(1000)}", "total": f"{n}.25"} for n in some)
        self._log.put({"id": n} for n in sorted(gone))
        self._lsn = self._log.progress()
        self._lab.count(records=len(some) + 2 * len(gone))

    def kill(self, part: str, pick: random.Random) -> None:
        """One part, now and then another one with it; what keepers of services would start again is started."""
        others = [one for one in _PARTS if one != part]
        chosen = [part, *([pick.choice(others)] if pick.random() < 0.2 else [])]
        behind = sum(not self._shows(name) for name in self._stores)
        for name in chosen:
            self._kill(name, pick)
            self._lab.count(kills=1, **{f"{name}_killed": 1})
        self._lab.count(pairs=int(len(chosen) > 1), in_a_batch=int(behind > 0))
        SYSTEM_CLOCK.sleep(pick.uniform(0, 2))
        for name in sorted(chosen, key=_PARTS.index, reverse=True):
            if name == "master":
                self._cluster.start_master()
            elif name == "worker":
                self._cluster.add_worker()
            elif name == "driver":
                self.start()

    def level(self) -> None:
        """Return when each store says that it shows all."""
        wait_until(self._level, _RECOVERS_S, self._words)

    def end(self) -> None:
        """The application ends in order."""
        assert self._driver is not None
        code = self._driver.terminate(90)
        if code != 0:
            raise Found(f"cdc sink ended with {code}: {self._driver.stderr[-2000:]}")

    def judge(self) -> None:
        """Compare each store with the topics."""
        wanted = newest_rows(self._log)
        for name, store in self._stores.items():
            shown = self._log.shown(store)
            lost = [key for key in wanted if key not in shown]
            wrong = [key for key, row in shown.items() if wanted.get(key) != row]
            self._lab.count(rows_compared=len(wanted), lost=len(lost), wrong=len(wrong))
            if lost or wrong:
                raise Found(f"{name}: lacks {sorted(lost)[:5]}, has otherwise {sorted(wrong)[:5]}")

    def close(self) -> None:
        if self._driver is not None and self._driver.process.poll() is None:
            self._strike_driver()
        self._at_end.close()

    def _opened(self, name: str) -> OpenSink:
        return self._at_end.enter_context(closing(open_store(name, self._settings)))

    def _shows(self, name: str) -> bool:
        mark = self._stores[name].watermarks.read()
        return mark is not None and mark.lsn >= self._lsn

    def _level(self) -> bool:
        assert self._driver is not None
        code = self._driver.process.poll()
        if code is not None:
            if code != 69:
                raise Found(f"cdc sink ended with {code}: {self._driver.stderr[-2000:]}")
            self._lab.count(driver_ended_by_itself=1)
            self.start()
        return all(map(self._shows, self._stores))

    def _words(self) -> str:
        marks = {name: store.watermarks.read() for name, store in self._stores.items()}
        return f"{self._lsn:x} {marks} {self._driver and self._driver.stderr[-3000:]}"

    def _kill(self, name: str, pick: random.Random) -> None:
        if name == "worker":
            self._cluster.kill_worker(pick.randrange(len(self._cluster.started)))
        elif name == "master":
            self._cluster.kill_master()
        elif name == "driver":
            self._strike_driver()
        else:
            executors = self._cluster.executors()
            pids = executors if name == "executor" else _pythons(executors)
            # The one that was there may have ended with a part that was killed before.
            if pids:
                with suppress(ProcessLookupError):
                    os.kill(pick.choice(pids), signal.SIGKILL)

    def _strike_driver(self) -> None:
        assert self._driver is not None
        family = below(self._driver.process.pid)
        self._driver.kill()
        for process in family:
            # A service's keeper ends the whole group.
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def _pythons(executors: Sequence[int]) -> list[int]:
    return [one.pid for pid in executors for one in below(pid) if named(one.pid) != "java"]


def newest_rows(log: HandMadeLog) -> dict[str, dict[str, Any]]:
    """What a store has to show of the orders, by the topic alone: key -> row of the newest record."""
    rows: dict[str, dict[str, Any]] = {}
    for partition in range(log.partitions):
        for message in read_range(log.log, log.topic(), partition):
            key, value = orjson.loads(_bytes(message.key())), message.value()
            after = orjson.loads(value)["after"] if isinstance(value, bytes) else None
            if after is None:
                rows.pop(str(key["id"]), None)
            else:
                rows[str(key["id"])] = after
    return rows


def _bytes(key: object) -> bytes:
    assert isinstance(key, bytes)
    return key
