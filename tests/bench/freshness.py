"""From commit to visible in three stores of one application, at 200 single-row transactions a second for 60 s.

A table of seven columns on a real Postgres, ``cdc run`` and one ``cdc sink`` for cache, search and warehouse, all on
this machine. A row's time starts when its COMMIT has returned. It ends, in the cache, when its hash is there; in
search, when a search finds it; in the warehouse, when the Delta version that added it is committed. Cache and
warehouse are looked at every 10 ms, search every 50 ms (its searches would take a core of two otherwise); all that
counts as ours. Run with small batches applied by the driver, as the settings have it, and with all of them by tasks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import psycopg
import redis
import requests
from pyarrow import parquet

from tests.bench.setting import Bench, Pipeline
from tests.waiting import wait_until

RATE_S = 200
SECONDS = 60
WARM_UP_S = 15
TABLE = """
create table orders (
    id bigint primary key, customer int not null, status text not null, total numeric(12,2), note text,
    paid boolean, placed timestamptz not null default now())
"""
INSERT = "insert into orders values (%s, %s, 'open', %s, %s, true)"
_LOOK_S = 0.01
_GOALS = "goal p50 <= 0.35 s, p99 <= 0.8 s"


def bench(bench: Bench) -> None:
    for way, driver_rows in (("the driver applies small batches", 20_000), ("tasks apply all", 0)):
        figures = _measure(bench, driver_rows)
        for store, (middle, most) in figures.items():
            bench.say(f"{way}, {store}: p50 {middle:.3f} s, p99 {most:.3f} s   ({_GOALS})")


def _measure(bench: Bench, driver_rows: int) -> dict[str, tuple[float, float]]:
    """Store -> p50 and p99 in seconds."""
    servers = bench.stack.ensure("postgres", "kafka", "redis", "opensearch")
    with ExitStack() as stack:
        dsn = stack.enter_context(bench.database())
        source = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        source.execute(TABLE)
        pipeline = stack.enter_context(bench.pipeline(dsn, ["public.orders"]))
        name = pipeline.settings.name
        folder = bench.folder / name
        folder.mkdir()
        with pipeline.config.open("a", encoding="utf-8") as config:
            config.write(_sinks(servers, folder, driver_rows))
        pipeline.cdc("init")
        pipeline.cdc("snapshot", "--none")
        capture = stack.enter_context(pipeline.running("run"))
        wait_until(lambda: capture.said("streaming"), 60, "cdc run to stream")
        sink_log = Pipeline(pipeline.settings, pipeline.config.with_name(f"{name}-sink.toml"))
        sink_log.config.write_text(pipeline.config.read_text(encoding="utf-8"), encoding="utf-8")
        sinks = stack.enter_context(sink_log.running("sink"))
        wait_until(lambda: sinks.said("sink_started"), 120, "cdc sink to start")
        warm, count = WARM_UP_S * RATE_S, max(RATE_S, int(bench.scale * SECONDS) * RATE_S)
        looks = {
            "cache": CacheLook(servers["redis"]["url"], name),
            "search": SearchLook(servers["opensearch"]["url"], f"{name}-public.orders"),
            "warehouse": WarehouseLook(folder / "warehouse" / "public" / "orders"),
        }
        committed = written(_Inserts(source).put, looks.values(), warm + count)
        figures = {store: percentiles(committed, look.seen, warm) for store, look in looks.items()}
    index = f"{servers['opensearch']['url']}/{name}*"
    for found in requests.get(index, timeout=30).json():
        requests.delete(f"{servers['opensearch']['url']}/{found}", timeout=30)
    return figures


def _sinks(servers: Any, folder: Path, driver_rows: int) -> str:
    return f"""
[sinks.cache]
kind = "redis"
url = "{servers["redis"]["url"]}"
[sinks.search]
kind = "opensearch"
url = "{servers["opensearch"]["url"]}"
[sinks.warehouse]
kind = "delta"
path = "{folder}/warehouse"
[spark]
checkpoint = "{folder}/checkpoints"
driver_batch_rows = {driver_rows}
http_address = ""
"""


class StoreLook:
    """Looks at one store in a thread of its own until every row was seen, or one row of ``one_in``."""

    every_s = _LOOK_S
    rate_s = RATE_S
    one_in = 1

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}

    def watch(self, committed: dict[int, float], total: int) -> None:
        deadline = time.perf_counter() + 60 + 3 * total / self.rate_s
        first = 0
        while len(self.seen) < len(range(0, total, self.one_in)) and time.perf_counter() < deadline:
            while first in self.seen:
                first += self.one_in
            waiting = [one for one in range(first, len(committed), self.one_in) if one not in self.seen][:1000]
            for number in self.look(waiting):
                self.seen.setdefault(number, time.perf_counter())
            wait_a_little.wait(self.every_s)

    def look(self, waiting: list[int]) -> Iterable[int]:
        """Those of the rows that show now."""
        raise NotImplementedError


wait_a_little = threading.Event()


class CacheLook(StoreLook):
    def __init__(self, url: str, prefix: str) -> None:
        super().__init__()
        self._client = redis.Redis.from_url(url)
        self._prefix = prefix

    def look(self, waiting: list[int]) -> Iterable[int]:
        pipe = self._client.pipeline(transaction=False)
        for number in waiting:
            pipe.hexists(f"{self._prefix}:public.orders:{number}", "row")
        return [number for number, there in zip(waiting, pipe.execute(), strict=True) if there]


class SearchLook(StoreLook):
    every_s = 0.05

    def __init__(self, url: str, alias: str) -> None:
        super().__init__()
        self._session = requests.Session()
        self._url = f"{url}/{alias}/_search"

    def look(self, waiting: list[int]) -> Iterable[int]:
        if not waiting:
            return []
        query = {"size": 1000, "_source": False, "query": {"terms": {"id": waiting}}}
        answer = self._session.post(self._url, json=query, timeout=30)
        return [int(hit["_id"]) for hit in answer.json()["hits"]["hits"]] if answer.ok else []


class WarehouseLook(StoreLook):
    """Notes when each version of the Delta table appears, and reads what it added only afterwards."""

    def __init__(self, table: Path) -> None:
        super().__init__()
        self._table = table
        self._next = 0
        self._at: dict[int, float] = {}

    def watch(self, committed: dict[int, float], total: int) -> None:
        quiet_since = time.perf_counter()
        while len(committed) < total or time.perf_counter() - quiet_since < 5:
            while (self._table / "_delta_log" / f"{self._next:020}.json").exists():
                self._at[self._next] = quiet_since = time.perf_counter()
                self._next += 1
            wait_a_little.wait(_LOOK_S)
        for version, at in self._at.items():
            for number in self._added(version):
                self.seen.setdefault(number, at)

    def _added(self, version: int) -> Iterable[int]:
        log = self._table / "_delta_log" / f"{version:020}.json"
        for line in log.read_bytes().splitlines():
            path = orjson.loads(line).get("add", {}).get("path")
            if path is not None and (self._table / path).exists():
                numbers: list[Any] = parquet.read_table(self._table / path, columns=["id"])["id"].to_pylist()
                yield from numbers


class _Inserts:
    def __init__(self, source: psycopg.Connection[Any]) -> None:
        self._source = source

    def put(self, number: int) -> None:
        self._source.execute(INSERT, [number, number % 100, number % 1000, f"note of order {number} " * 4])


def written(
    put: Callable[[int], None], looks: Iterable[StoreLook], total: int, rate_s: int = RATE_S
) -> dict[int, float]:
    """Commit rows at the rate while the stores are looked at; row -> when its COMMIT had returned."""
    committed: dict[int, float] = {}
    threads = [threading.Thread(target=look.watch, args=(committed, total), daemon=True) for look in looks]
    for thread in threads:
        thread.start()
    start = time.perf_counter()
    for number in range(total):
        wait_a_little.wait(max(0.0, start + number / rate_s - time.perf_counter()))
        put(number)
        committed[number] = time.perf_counter()
    for thread in threads:
        thread.join()
    return committed


def percentiles(committed: dict[int, float], seen: dict[int, float], warm: int, one_in: int = 1) -> tuple[float, float]:
    """The median and the 99th percentile in seconds, without the first ones. ``one_in``: as a look has it."""
    looked_at = range(0, len(committed), one_in)
    lacking = [number for number in looked_at if number not in seen]
    assert not lacking, f"{len(lacking)} rows never showed, {lacking[:3]} among them"
    ages = sorted(seen[number] - committed[number] for number in looked_at if number >= warm)
    return _at(ages, 0.5), _at(ages, 0.99)


def _at(ages: list[float], share: float) -> float:
    return ages[min(len(ages) - 1, int(share * len(ages)))]
