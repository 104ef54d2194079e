"""One million events on 250,000 keys from a filled topic into each store, counted until its watermark is at the end.

The topic of four partitions is filled first: updates of about 650 bytes, keys at random. Each store is filled three
times, by a ``cdc sink --until-caught-up`` of its own, from the beginning; topic records over
the time from the start of the first batch to the last watermark, as its log states them. CPU is that of all its
processes, Java's among them, over the same time. Beside it, for search: the bulk bodies of the same documents, one per
key, made before, posted one after the other to an index of the same settings, in turn with ours. Both are divided by
documents: of an event whose key has a newer one in its batch no document is written.
"""

from __future__ import annotations

import random
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from sinks.contract.stores import open_store
from tests.bench.family_cpu import FamilyCpu
from tests.bench.setting import RUNS, Bench, spread
from tests.integration.spark.handmade import HandMadeLog

KEYS_SHARE = 4
GOALS = {"cache": 100_000, "warehouse": 80_000}
_BODY_ROWS = 5000


def bench(bench: Bench) -> None:
    events = bench.rows(1_000_000)
    servers = bench.stack.ensure("kafka", "redis", "opensearch")
    topics = HandMadeLog(f"b{secrets.token_hex(4)}", servers["kafka"]["bootstrap_servers"], partitions=4)
    topics.init()
    try:
        topics.put(rows(events))
        topics.progress()
        stores: dict[str, dict[str, Any]] = {
            "cache": {"kind": "redis", "url": servers["redis"]["url"]},
            "search": {"kind": "opensearch", "url": servers["opensearch"]["url"]},
            "warehouse": {"kind": "delta"},
        }
        for store, options in stores.items():
            filled, bare = [], []
            for _ in range(RUNS):
                filled.append(fill(bench, topics, store, options, events))
                if store == "search":
                    bare.append(_bare_bulk(topics, servers["opensearch"]["url"]))
            goal = f"   (goal {GOALS[store]:,})" if store in GOALS else ""
            rates = [one.per_s for one in filled]
            bench.say(
                f"{store}: {spread(rates)} events/s{goal}, {spread([one.cpu_us for one in filled], 1)} us CPU each"
            )
            if store == "search":
                share = len(topics.rows["orders"]) / events
                documents = [rate * share for rate in rates]
                bench.say(f"search: {spread(documents)} documents/s")
                bench.say(f"bare bulk bodies: {spread(bare)} documents/s")
                ratios = [one / two for one, two in zip(documents, bare, strict=True)]
                bench.say(f"search / bare bulk, documents by documents: {spread(ratios, 2)}   (goal 0.7)")
    finally:
        topics.admin.delete([name for name in topics.admin.names() if name.startswith(f"{topics.name}.")])


def rows(count: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(1)
    pad = "x" * 150
    for number in range(count):
        yield {
            "id": chance.randrange(max(1, count // KEYS_SHARE)),
            "status": f"paid {number} {pad}",
            "total": f"{number % 10_000}.50",
        }


class Filled(NamedTuple):
    """Events per second, and the CPU of one in us: all processes of the application, Java's among them."""

    per_s: float
    cpu_us: float


def fill(
    bench: Bench,
    topics: HandMadeLog,
    store: str,
    options: dict[str, Any],
    events: int,
    beside: Sequence[int] = (),
    **spark: Any,
) -> Filled:
    """Fill an empty store; ``spark``: settings of that section. ``beside``: processes that work for it as well."""
    prefix = f"b{secrets.token_hex(4)}"
    sinks = {store: options | {"prefix": prefix}}
    folder = bench.folder / prefix
    folder.mkdir()
    if options["kind"] == "delta":
        sinks[store]["path"] = str(folder / "warehouse")
    config = folder / "cdc.toml"
    config.write_text(topics.toml(sinks, checkpoint=str(folder / "checkpoints"), **spark), encoding="utf-8")
    found, took = sink_run(config, events, beside)
    settings = topics.settings(sinks)
    opened = open_store(store, settings)
    try:
        watermark = opened.watermarks.read()
        assert watermark is not None and watermark.offsets == topics.offsets()
    finally:
        opened.close()
    _clean(options, prefix)
    bench.say(f"  {store}: {found.per_s:,.0f} events/s, {found.cpu_us:.1f} us CPU each (batches of {took} s)")
    return found


def sink_run(config: Path, records: int, beside: Sequence[int] = ()) -> tuple[Filled, str]:
    """Run ``cdc sink --until-caught-up`` over so many records. Its rate, and how long each of its batches took."""
    argv = [sys.executable, "-m", "cdc", "--config", str(config), "sink", "--until-caught-up"]
    started = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with started as sink, FamilyCpu(sink, beside) as cpu:
        _, log = sink.communicate()
    assert sink.returncode == 0, log
    batches = [line for line in map(orjson.loads, log.splitlines()) if line["event"] == "batch_applied"]
    assert sum(line["records"] for line in batches) == records, log
    began, ended = _seconds(batches[0]["ts"]) - float(batches[0]["took_s"]), _seconds(batches[-1]["ts"])
    found = Filled(records / (ended - began), cpu.between(began, ended) / records * 1e6)
    return found, ", ".join(f"{line['took_s']:.1f}" for line in batches)


def _clean(options: dict[str, Any], prefix: str) -> None:
    if options["kind"] == "opensearch":
        for index in requests.get(f"{options['url']}/{prefix}*", timeout=30).json():
            requests.delete(f"{options['url']}/{index}", timeout=30)
    if options["kind"] == "redis":
        import redis  # noqa: PLC0415 - for this store alone

        with redis.Redis.from_url(options["url"]) as client:
            for keys in _lots(client.scan_iter(f"{prefix}:*", count=5000), 5000):
                client.unlink(*keys)


def _lots(keys: Iterator[Any], size: int) -> Iterator[list[Any]]:
    lot: list[Any] = []
    for key in keys:
        lot.append(key)
        if len(lot) == size:
            yield lot
            lot = []
    if lot:
        yield lot


def _bare_bulk(topics: HandMadeLog, url: str) -> float:
    """Documents per second that the server takes in ready-made bodies, one per key, with versions, then a refresh."""
    index = f"b{secrets.token_hex(4)}"
    mapping = {
        "settings": {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "-1"},
        "mappings": {
            "properties": {
                "id": {"type": "long"},
                "status": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
                "total": {"type": "keyword"},
                "_pos": {"type": "keyword"},
            }
        },
    }
    requests.put(f"{url}/{index}", json=mapping, timeout=30).raise_for_status()
    bodies, count = [], 0
    for lot in _lots(iter(topics.rows["orders"].items()), _BODY_ROWS):
        lines = []
        for key, row in lot:
            count += 1
            action = {"_id": key, "version": (1 << 56) + 8 * count, "version_type": "external_gte"}
            lines += [orjson.dumps({"index": action}), orjson.dumps(row | {"_pos": "0" * 32})]
        bodies.append(b"\n".join(lines) + b"\n")
    with requests.Session() as session:
        # Its heap may be full of what was filled before. Our sink tries again as well.
        again = Retry(status=20, status_forcelist=[HTTPStatus.TOO_MANY_REQUESTS], allowed_methods=None)
        session.mount(url, HTTPAdapter(max_retries=again))
        session.headers["Content-Type"] = "application/x-ndjson"
        start = time.perf_counter()
        for body in bodies:
            answer = session.post(f"{url}/{index}/_bulk?filter_path=errors", data=body, timeout=60)
            assert answer.json() == {"errors": False}, answer.text[:500]
        session.post(f"{url}/{index}/_refresh", timeout=60).raise_for_status()
        took = time.perf_counter() - start
    requests.delete(f"{url}/{index}", timeout=30)
    return count / took


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
