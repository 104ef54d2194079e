"""Each sink dies at each of its crash points while changes flow; then its store must equal the source.

After each death what the store's watermark claims is compared with what the store holds. One seed is one pipeline
with four stores, each dying at every point once; ``cdc verify`` dies at its own at the end.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
import requests

from tests.faults import oracle
from tests.faults.crashes import LOG, die_at
from tests.faults.follower import follow_sink
from tests.faults.lab import Lab
from tests.faults.lives import Life, command
from tests.faults.points import OF_STORE, SINK, VERIFY
from tests.faults.rig import Rig, fresh_rig
from tests.faults.workload import Load

PARTS = ("postgres", "kafka", "redis", "opensearch")
_FLOORS = ("floor_noted", "floor_enforced", "search_page_swept")
_FIRST = ("search_index_made", "delta_table_made")
"""Passed when a place for the rows is made, so before all others."""


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for seed in lab.seeds():
        one(lab, seed, {store: (*SINK, *own) for store, own in OF_STORE.items()}, VERIFY)


def one(lab: Lab, seed: int, points: Mapping[str, Sequence[str]], verify: Sequence[str] = ()) -> None:
    """One pipeline, its stores dying at these points."""
    pick = random.Random(seed)
    with fresh_rig(lab, PARTS, log=LOG) as rig:
        rig.document["sinks"] = stores(lab, rig.folder, rig.settings.name, list(points))
        rig.prepare()
        running = rig.stream()
        last: list[Life] = []
        try:
            with Load(rig.dsn, seed, clients=1, pause_s=0.25) as load:
                for store, some in points.items():
                    order = sorted(some, key=lambda point: (point not in _FIRST, pick.random()))
                    for point in order:
                        die_at(point, partial(follow, rig, store), partial(_provoke, rig, point))
                        lab.count(crashes=1)
                        rig.settle()
                        log = oracle.read_log(rig.settings)
                        lab.count(watermarks_proven=oracle.require_watermark_true(rig.settings, store, log))
                    last.append(follow(rig, store))
            rig.settle()
            oracle.judge_stores(lab, rig.settings, list(points), rig.dsn)
            for point in verify:
                arguments = ["--config", str(rig.config), "verify", next(iter(points))]
                die_at(point, lambda at: Life(command, arguments, rig.folder / "verify.err", crash_at=at), lambda: None)  # noqa: B023 - started at once
                lab.count(crashes=1)
            for life in last:
                assert life.stop() == 0, life.stderr
            assert running.stop() == 0, running.stderr
            lab.count(transactions=load.transactions)
        finally:
            for life in last:
                life.kill()
            forget(rig.document["sinks"], rig.settings.name)


def follow(rig: Rig, store: str, crash_at: str = "") -> Life:
    """A life of one store's sink."""
    return Life(follow_sink, [str(rig.config), store], rig.folder / f"{store}.err", crash_at=crash_at)


def stores(lab: Lab, folder: Path, name: str, kinds: Sequence[str]) -> dict[str, Any]:
    """Settings of a store of each kind, of this pipeline's own."""
    at = lab.stack.ensure(*PARTS)
    every = {
        "cache": {"kind": "redis", "url": at["redis"]["url"]},
        "search": {"kind": "opensearch", "url": at["opensearch"]["url"], "prefix": name},
        "delta": {"kind": "delta", "path": str(folder / "warehouse")},
        "sql": {"kind": "sql", "url": f"sqlite:///{folder / 'warehouse.db'}"},
    }
    return {kind: every[kind] for kind in kinds}


def forget(sinks: Mapping[str, Any], name: str) -> None:
    """Remove what a pipeline left in shared servers."""
    if "cache" in sinks:
        with redis.Redis.from_url(sinks["cache"]["url"]) as cache:
            for key in cache.scan_iter(f"{name}:*", count=1000):
                cache.delete(key)
    if "search" in sinks:
        url = sinks["search"]["url"]
        found = requests.get(f"{url}/{name}*", params={"expand_wildcards": "all"}, timeout=30).json()
        for index in found:
            requests.delete(f"{url}/{quote(index, safe='')}", timeout=30)


def _provoke(rig: Rig, point: str) -> None:
    """What has to happen so that the point is passed; the load does the rest."""
    if point in _FLOORS:
        rig.execute("insert into x (id) select g from generate_series(300, 330) g on conflict do nothing")
        rig.settle()
        rig.execute("truncate x")
    elif point == "delta_columns_added":
        number = rig.one("select max(attnum) from pg_attribute where attrelid = 'w'::regclass")
        if number < 60:
            rig.execute(f"alter table w add column more{number} text", f"insert into w (id, more{number})"
                        f" values (600, 'yes') on conflict (id) do update set more{number} = 'again'")  # fmt: skip
