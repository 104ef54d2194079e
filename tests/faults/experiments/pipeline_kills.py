"""SIGKILL and SIGSTOP of every part, alone and in pairs: capture, Spark, Kafka, Postgres, Redis, OpenSearch.

One seed is one pipeline with three stores, fed by a real ``cdc sink``, and ten faults at random moments under load.
Whatever was killed is started again; then the stores must equal the source. It kills servers: give it none that
others use.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from cdc.process.clock import SYSTEM_CLOCK
from tests.faults import oracle
from tests.faults.experiments.crash_sinks import PARTS, forget, stores
from tests.faults.lab import Found, Lab
from tests.faults.lives import Life
from tests.faults.rig import Rig, fresh_rig
from tests.faults.workload import Load
from tests.programs import Spawned
from tests.waiting import wait_until

KILLS = 10
SERVERS = ("kafka", "postgres", "redis", "opensearch")
STORES = ("cache", "search", "delta")
_SETTLE_S = 180.0
_START_S = 120.0


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for seed in lab.seeds():
        one(lab, seed, KILLS)


def one(lab: Lab, seed: int, kills: int) -> None:
    """One pipeline, so many faults."""
    pick = random.Random(seed)
    with fresh_rig(lab, PARTS, log={"min_compaction_lag": "1h"}, spark={"http_address": ""}) as rig:
        rig.document["sinks"] = stores(lab, rig.folder, rig.settings.name, STORES)
        rig.document["spark"]["checkpoint"] = str(rig.folder / "checkpoints")
        rig.prepare()
        whole = Whole(lab, rig)
        try:
            whole.start("capture")
            whole.start("spark")
            with Load(rig.dsn, seed, clients=2, pause_s=0.1) as load:
                for _ in range(kills):
                    SYSTEM_CLOCK.sleep(pick.uniform(0.2, 3))
                    whole.strike(pick)
            whole.all_up()
            rig.settle(_SETTLE_S)
            rig.judge(lab)
            oracle.judge_stores(lab, rig.settings, STORES, rig.dsn, _SETTLE_S)
            lab.count(transactions=load.transactions)
        finally:
            whole.end()
            lab.stack.ensure(*PARTS)
            forget(rig.document["sinks"], rig.settings.name)


class Whole:
    """All parts of a pipeline."""

    def __init__(self, lab: Lab, rig: Rig) -> None:
        self._lab = lab
        self._rig = rig
        self._capture: Life | None = None
        self._spark: Spawned | None = None
        self._sparks = 0

    def strike(self, pick: random.Random) -> None:
        """Kill one part, or two at once, or let one stand still for a while; then start what was killed."""
        names = ("capture", "spark", *SERVERS)
        if pick.random() < 0.2:
            name = pick.choice(names)
            self._pause(name, pick.uniform(0.5, 6))
            self._lab.count(pauses=1, **{f"{name}_paused": 1})
            return
        chosen = pick.sample(names, pick.choice((1, 1, 2)))
        for name in chosen:
            self._kill(name)
            self._lab.count(kills=1, **{f"{name}_killed": 1})
        self._lab.count(pairs=int(len(chosen) > 1))
        SYSTEM_CLOCK.sleep(pick.uniform(0, 2))
        for name in sorted(chosen, key=lambda name: name in ("capture", "spark")):
            self.start(name)

    def start(self, name: str) -> None:
        """Start a part; a server has to answer, capture and Spark only have to live on."""
        if name == "capture":
            self._capture = self._rig.start()
        elif name == "spark":
            folder, self._sparks = self._rig.folder, self._sparks + 1
            argv = [sys.executable, "-m", "cdc", "--config", str(self._rig.config), "sink"]
            self._spark = Spawned.cold(argv, folder / "sink.out", folder / f"sink.{self._sparks}.err", os.environ)
            wait_until(self._fed, _START_S, lambda: self._spark and self._spark.stderr[-2000:])
        else:
            self._lab.stack.start_part(name)
            self._lab.stack.ensure(name)

    def all_up(self) -> None:
        """Start again what ended for a reason that passes, as a service's keeper would; Found for any other."""
        self._lab.stack.ensure(*PARTS)
        life, spark = self._capture, self._spark
        assert life is not None and spark is not None
        if life.exit is not None:
            self._again("capture", life.exit, life.stderr)
        code = spark.process.poll()
        if code is not None:
            self._again("spark", code, spark.stderr)

    def end(self) -> None:
        if self._capture is not None:
            self._capture.kill()
        if self._spark is not None and self._spark.process.poll() is None:
            self._spark.kill()

    def _again(self, name: str, code: int, said: str) -> None:
        if code not in (69, 83):
            raise Found(f"{name} ended with {code}: {said[-2000:]}")
        self._lab.count(**{f"{name}_ended_by_itself": 1})
        self.start(name)

    def _fed(self) -> bool:
        spark = self._spark
        assert spark is not None
        code = spark.process.poll()
        if code is not None:
            self._again("spark", code, spark.stderr)
        return spark.stderr.count("sink_started") >= len(STORES)

    def _kill(self, name: str) -> None:
        if name == "capture":
            assert self._capture is not None
            self._capture.kill()
        elif name == "spark":
            assert self._spark is not None
            self._spark.kill()
        else:
            self._lab.stack.stop_part(name, kill=True)

    def _pause(self, name: str, seconds: float) -> None:
        ends: Mapping[str, Callable[[], Sequence[int]]] = {
            "capture": lambda: [self._capture.pid] if self._capture and self._capture.exit is None else [],
            "spark": lambda: [self._spark.process.pid] if self._spark and self._spark.process.poll() is None else [],
        }
        pids = ends.get(name, lambda: [self._lab.stack.pid_of(name)])()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        SYSTEM_CLOCK.sleep(seconds)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
