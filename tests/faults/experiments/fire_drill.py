"""Twelve faults, each told by its alert, and mended by nothing but what the alert's runbook says.

A real Prometheus has the rules of ``compose/monitoring`` and asks both processes. After each fault the alert must
fire. The words that were followed stand in the page that it names, or in one that this page leads to. Then the alert
must end, and the stores must equal the source. One seed is one pipeline, with the faults in an order of its own.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import psycopg
import redis
import requests

from cdc.process.clock import SYSTEM_CLOCK
from cdc.stack.local import free_ports
from sinks.contract.stores import open_store
from tests.faults import oracle
from tests.faults.experiments.crash_sinks import forget
from tests.faults.lab import Found, Lab
from tests.faults.rig import Rig, fresh_rig
from tests.programs import Spawned
from tests.prometheus import Alert, Prometheus
from tests.runbooks import links, section
from tests.waiting import wait_until

PAGES = True  # It asks the processes over HTTP.
_PARTS = ("postgres", "kafka", "redis")
_STORES = ("cache", "delta")
_JOBS = {"cdc-run": "run", "cdc-sink": "sink"}
_START_S = 120.0
_FIRES_S = 90.0
_ENDS_S = 120.0
_SHOWN_S = 120.0
_COMMAND_S = 300.0
_ROWS = 200
_SCHEMA = (
    "create table items (id int primary key, note text, n int not null)",
    f"insert into items select g, 'item ' || g, 0 from generate_series(1, {_ROWS}) g",
    "create table keyed (id int primary key, code int not null, n int not null)",
    f"insert into keyed select g, g + 1000, 0 from generate_series(1, {_ROWS}) g",
    "create table typed (id int primary key, size text)",
    f"insert into typed select g, repeat('x', g % 7) from generate_series(1, {_ROWS}) g",
    "create table parted (id int primary key, n int, doc text) partition by range (id)",
    # What vacuum or analyze note of the leaf would have a writer read its bounds again, from the root that is locked.
    "create table leaf partition of parted for values from (0) to (1000000)"
    " with (autovacuum_enabled = false, toast.autovacuum_enabled = false)",
    "alter table leaf alter doc set storage external",
    f"insert into parted select g, 0, repeat('x', 4000) from generate_series(1, {_ROWS}) g",
)


class Scene:
    """A pipeline with its two processes and a Prometheus."""

    def __init__(self, lab: Lab, rig: Rig, alerts: Prometheus, addresses: Mapping[str, str]) -> None:
        self.lab = lab
        self.rig = rig
        self.alerts = alerts
        self._addresses = addresses
        self.locking: psycopg.Connection[tuple[object, ...]] | None = None
        self.processes: dict[str, Spawned] = {}
        self._started = 0

    def start(self, job: str) -> None:
        """Start a process, as its unit would."""
        self._started += 1
        err = self.rig.folder / f"{job}.{self._started}.err"
        self.processes[job] = Spawned.cold([*self._cdc(), _JOBS[job]], err.with_suffix(".out"), err, os.environ)

    def ended(self, job: str) -> int | None:
        """Its exit code; None while it lives."""
        return self.processes[job].process.poll()

    def start_ended(self) -> None:
        """Start again what has ended with a code of which the manual says so."""
        for job in _JOBS:
            code = self.ended(job)
            if code is not None and code in (69, 83):
                self.start(job)

    def restart(self, job: str) -> None:
        """End it in order if it runs, and start it."""
        if self.ended(job) is None:
            self.processes[job].terminate()
        self.start(job)

    def ready(self, job: str) -> str:
        """What a process says of itself."""
        return requests.get(f"http://{self._addresses[job]}/readyz", timeout=10).text

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        words = [*self._cdc(), *arguments]
        return subprocess.run(words, capture_output=True, text=True, timeout=_COMMAND_S, check=False)

    def cdc(self, *arguments: str) -> None:
        """A command that must end well."""
        done = self.run(*arguments)
        if done.returncode:
            raise Found(f"cdc {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-1500:]}")

    def change(self) -> None:
        """A change in each table that may be written to."""
        self.rig.execute(
            "update items set n = n + 1 where id % 10 = 0", "update keyed set n = n + 1 where id % 10 = 0",
            "update typed set size = size where id % 10 = 0", "update leaf set n = n + 1 where id % 10 = 0",
        )  # fmt: skip

    def close(self) -> None:
        if self.locking is not None:
            self.locking.close()
        for process in self.processes.values():
            if process.process.poll() is None:
                process.kill()

    def _cdc(self) -> list[str]:
        return [sys.executable, "-m", "cdc", "--config", str(self.rig.config)]


@dataclass(frozen=True, kw_only=True)
class Drill:
    """A fault and its cure.

    ``alert`` and ``labels``: what must fire. ``path``: pages behind the alert's own, each led to by the one before it.
    ``lines``: what was followed, word by word, from the last of these pages.
    """

    name: str
    alert: str
    labels: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    lines: tuple[str, ...]
    fault: Callable[[Scene], None]
    cure: Callable[[Scene], None]

    def fits(self, alert: Alert) -> bool:
        return alert.name == self.alert and self.labels.items() <= alert.labels.items()


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for seed in lab.seeds():
        one(lab, seed, DRILLS)


def one(lab: Lab, seed: int, drills: tuple[Drill, ...]) -> None:
    """One pipeline, each of these faults once."""
    at = free_ports(_JOBS)
    addresses = {job: f"127.0.0.1:{port}" for job, port in at.items()}
    sections = {"capture": {"http_address": addresses["cdc-run"]}, "spark": {"http_address": addresses["cdc-sink"]}}
    with fresh_rig(lab, _PARTS, **sections) as rig:
        rig.document["sinks"] = {
            "cache": {"kind": "redis", "url": lab.stack.ensure("redis")["redis"]["url"]},
            "delta": {"kind": "delta", "path": str(rig.folder / "warehouse")},
        }
        rig.document["spark"]["checkpoint"] = str(rig.folder / "checkpoints")
        rig.init(*_SCHEMA)
        with closing(Prometheus(rig.folder, addresses)) as alerts, closing(Scene(lab, rig, alerts, addresses)) as scene:
            try:
                scene.cdc("snapshot")
                for job in _JOBS:
                    scene.start(job)
                _require_well(scene)
                for drill in random.Random(seed).sample(drills, len(drills)):
                    carry_out(scene, drill)
                    lab.count(faults=1)
            finally:
                lab.stack.ensure(*_PARTS)
                forget(rig.document["sinks"], rig.settings.name)


def carry_out(scene: Scene, drill: Drill) -> None:
    """The fault, its alert, its runbook, and all well again."""
    began = SYSTEM_CLOCK.monotonic()
    drill.fault(scene)
    fired = wait_until(partial(_fired, scene, drill), _FIRES_S, lambda: f"{drill.name}: {_state(scene)}")
    scene.lab.peak(alert_after_s=round(SYSTEM_CLOCK.monotonic() - began))
    require_told(drill, fired[0].runbook)
    drill.cure(scene)
    wait_until(partial(_over, scene, drill), _ENDS_S, lambda: f"{drill.name}, cured: {_state(scene)}")
    _require_well(scene)
    scene.lab.say(f"  {drill.name}: {drill.alert}, {SYSTEM_CLOCK.monotonic() - began:.0f} s")


def require_told(drill: Drill, runbook: str) -> None:
    """Found where the runbook does not lead to what was done."""
    page = runbook
    for following in drill.path:
        if following not in links(page):
            raise Found(f"{drill.name}: {page} does not lead to {following}")
        page = following
    missing = [line for line in drill.lines if " ".join(line.split()) not in section(page)]
    if missing:
        raise Found(f"{drill.name}: {page} does not say {missing}")


def _fired(scene: Scene, drill: Drill) -> list[Alert]:
    return [alert for alert in scene.alerts.firing() if drill.fits(alert)]


def _over(scene: Scene, drill: Drill) -> bool:
    scene.start_ended()
    return not _fired(scene, drill)


def _state(scene: Scene) -> str:
    """What is known of the processes and their alerts."""
    ended = {job: (scene.ended(job), scene.processes[job].stderr[-1500:]) for job in _JOBS}
    return f"{[(one.name, *one.labels.values()) for one in scene.alerts.firing()]}, ended: {ended}"


def _require_well(scene: Scene) -> None:
    """Both live, and each store shows what is committed now and equals the source."""
    scene.change()
    settings = scene.rig.settings

    def well() -> bool:
        scene.start_ended()
        oracle.judge_stores(scene.lab, settings, _STORES, scene.rig.dsn, 1)
        return all(scene.ended(job) is None for job in _JOBS)

    oracle.require_shown(settings, _STORES, scene.rig.dsn, _SHOWN_S)
    wait_until(well, _SHOWN_S, lambda: _state(scene))


def _end_kafka(scene: Scene) -> None:
    """While the source is written to."""
    scene.lab.stack.stop_part("kafka", kill=True)
    scene.change()


def _drop_slot(scene: Scene) -> None:
    """Somebody ends the session that reads it, and drops it."""
    with scene.rig.session() as session:
        name = [scene.rig.slot]
        end = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s"
        drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s"
        drop += " and not active"
        wait_until(lambda: [session.execute(end, name), session.execute(drop, name).rowcount][1], _START_S)
    wait_until(lambda: scene.ended("cdc-run") is not None, _START_S, lambda: _state(scene))
    assert scene.ended("cdc-run") == 80, _state(scene)


def _begin_epoch(scene: Scene) -> None:
    scene.cdc("init", "--new-epoch", "--yes")
    scene.cdc("snapshot")
    scene.start("cdc-run")


def _lock(scene: Scene) -> None:
    """A forgotten ``begin; lock table``, on the root, while rows of its leaf leave out a value."""
    with scene.rig.session() as writer:
        writer.execute("set lock_timeout = '10s'")
        # A session that has written to the leaf knows its bounds, and asks the root no more.
        writer.execute("update leaf set n = n + 1 where id = 1")
        scene.locking = psycopg.connect(scene.rig.dsn)
        scene.locking.execute("lock table only parted in access exclusive mode")
        writer.execute("update leaf set n = n + 1 where id = 1")


def _unlock(scene: Scene) -> None:
    """As the page says: ask who blocks capture, and end that session."""
    blocking = """select pg_terminate_backend(blocker) from pg_stat_activity,
        unnest(pg_blocking_pids(pid)) as blocker where application_name = 'cdc capture'"""
    with scene.rig.session() as session:
        wait_until(lambda: session.execute(blocking.encode()).rowcount, _START_S, "a blocked capture")


def _change_key(scene: Scene) -> None:
    scene.rig.execute(
        "begin; alter table keyed drop constraint keyed_pkey; alter table keyed add primary key (code); commit",
        "update keyed set n = n + 1 where id = 1",
    )


def _change_type(scene: Scene) -> None:
    """Text, which Delta has, to a number, which its column of text cannot hold."""
    scene.rig.execute(
        "alter table typed alter column size type int using length(size)", "update typed set size = 9 where id = 1"
    )


def _put_something_else(scene: Scene) -> None:
    """Somebody's own value under a key of ours, and a change of that row."""
    settings = scene.rig.settings
    with redis.Redis.from_url(scene.rig.document["sinks"]["cache"]["url"]) as cache:
        cache.set(f"{settings.name}:public.items:7", "mine")
    scene.rig.execute("update items set n = n + 1 where id = 7")


def _take_it_away(scene: Scene) -> None:
    with redis.Redis.from_url(scene.rig.document["sinks"]["cache"]["url"]) as cache:
        cache.delete(f"{scene.rig.settings.name}:public.items:7")
    scene.cdc("dead", "retry", "--sink", "cache")


def _set_ahead(scene: Scene) -> None:
    """Somebody writes a watermark that is far above the log."""
    with closing(open_store("cache", scene.rig.settings)) as store:
        mark = store.watermarks.read()
        assert mark is not None
        store.watermarks.write(replace(mark, lsn=mark.lsn + (1 << 40)))
    scene.change()


def _forget_watermark(scene: Scene) -> None:
    with redis.Redis.from_url(scene.rig.document["sinks"]["cache"]["url"]) as cache:
        cache.delete(f"{scene.rig.settings.name}:_watermark")
    scene.restart("cdc-sink")


def _start_kafka(scene: Scene) -> None:
    """``cdc status`` names it, and so do both processes."""
    done = scene.run("status")
    for place, said in {"cdc status": done.stdout + done.stderr, **{job: scene.ready(job) for job in _JOBS}}.items():
        if not {"Kafka", "broker"} & set(re.findall(r"\w+", said)):
            raise Found(f"{place} does not name Kafka: {said}")
    _start_server(scene, "kafka")


def _start_server(scene: Scene, part: str) -> None:
    scene.lab.stack.start_part(part)
    scene.lab.stack.ensure(part)


_POSTGRES = "connectors/postgres/README.md"
_KILLED = "killed from outside"

DRILLS = (
    Drill(
        name="capture is killed", alert="HeadraceProcessGone", labels={"job": "cdc-run"}, lines=(_KILLED,),
        fault=lambda scene: scene.processes["cdc-run"].kill(), cure=lambda scene: scene.start("cdc-run"),
    ),
    Drill(
        name="the sinks are killed", alert="HeadraceProcessGone", labels={"job": "cdc-sink"}, lines=(_KILLED,),
        fault=lambda scene: scene.processes["cdc-sink"].kill(), cure=lambda scene: scene.start("cdc-sink"),
    ),
    Drill(
        name="Postgres is away", alert="HeadraceCaptureDown", lines=("Start Postgres or Kafka",),
        fault=lambda scene: scene.lab.stack.stop_part("postgres", kill=True),
        cure=lambda scene: _start_server(scene, "postgres"),
    ),
    Drill(
        name="Kafka is away", alert="HeadraceCaptureLag",
        lines=("A part that does not answer hides no other: it is named",),
        fault=_end_kafka,
        cure=_start_kafka,
    ),
    Drill(
        name="the cache is away", alert="HeadraceStoreDown", labels={"sink": "cache"},
        lines=("start it. `cdc sink` goes on by itself",),
        fault=lambda scene: scene.lab.stack.stop_part("redis"), cure=lambda scene: _start_server(scene, "redis"),
    ),
    Drill(
        name="the slot is dropped", alert="HeadraceProcessGone", labels={"job": "cdc-run"},
        path=(f"{_POSTGRES}#slot-lost",), lines=("`cdc init --new-epoch`", "`cdc snapshot`", "`cdc run`"),
        fault=_drop_slot, cure=_begin_epoch,
    ),
    Drill(
        name="a table is locked", alert="HeadraceTableNotFollowed", labels={"state": "waiting"},
        path=(f"{_POSTGRES}#a-table-waits",), lines=("Find the session that holds the lock", "pg_blocking_pids"),
        fault=_lock, cure=_unlock,
    ),
    Drill(
        name="a table is not published", alert="HeadraceTableNotFollowed",
        labels={"state": "aside", "cause": "not_followed"}, lines=("by itself, when it is published under its name",),
        fault=lambda scene: scene.rig.execute(f'alter publication "{scene.rig.settings.publication}" drop table items'),
        cure=lambda scene: scene.rig.execute(f'alter publication "{scene.rig.settings.publication}" add table items'),
    ),
    Drill(
        name="a key changes", alert="HeadraceTableNotFollowed", labels={"state": "aside", "cause": "changed"},
        lines=("With the new key by `cdc snapshot TABLE`",), fault=_change_key,
        cure=lambda scene: scene.cdc("snapshot", "public.keyed"),
    ),
    Drill(
        name="a warehouse cannot take a type", alert="HeadraceStoreHoldsTables", labels={"sink": "delta"},
        lines=("`cdc rebuild SINK` makes them anew in today's shape",), fault=_change_type,
        cure=lambda scene: scene.cdc("rebuild", "delta"),
    ),
    Drill(
        name="a key of the cache is somebody else's", alert="HeadraceDeadLetters", labels={"sink": "cache"},
        lines=("Once the cause is removed", "`cdc dead retry` applies what waits"),
        fault=_put_something_else, cure=_take_it_away,
    ),
    Drill(
        name="a watermark is set ahead", alert="HeadraceStoreStopped", labels={"sink": "cache"},
        lines=("in a cache `DEL shop:_watermark`", "start `cdc sink` again"),
        fault=_set_ahead, cure=_forget_watermark,
    ),
)  # fmt: skip
