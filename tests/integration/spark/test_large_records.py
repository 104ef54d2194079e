"""Records far larger than the rest: a batch of them is read and applied in slices, on the driver and on executors."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdc.process.errors import Exit
from cdc.settings.model import Settings
from sinks.contract.port import OpenSink
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.family import below, peak_bytes
from tests.integration.spark.handmade import HandMadeLog
from tests.programs import Spawn
from tests.waiting import wait_until

Opened = Callable[[Settings, str], OpenSink]
MB = 1024**2
ROW_BYTES = 100_000
WAYS: dict[str, dict[str, Any]] = {
    "driver": {"driver_batch_rows": 10**9},
    "executors": {"driver_batch_rows": 0},
}
SLICES = {"driver": 1, "executors": 2}
"""Of a line in the log about tasks that write: each has one."""


@pytest.fixture
def stores(redis_url: str, opensearch: str, index_prefix: str, warehouse: Path, tmp_path: Path) -> dict[str, Any]:
    """A store of each kind, empty."""
    return {
        "cache": {"kind": "redis", "url": redis_url},
        "search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "warehouse": {"kind": "delta", "path": str(warehouse)},
        "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"},
    }


def large(count: int) -> Iterator[dict[str, Any]]:
    """Rows of 100 kB that cannot be made much smaller by compression."""
    chance = random.Random(7)
    for number in range(count):
        yield {"id": number, "status": chance.randbytes(ROW_BYTES // 2).hex(), "total": "1.00"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow
def test_h102_a_batch_of_large_records_is_applied_in_slices(
    pipeline: HandMadeLog,
    sinks: Sinks,
    opened: Opened,
    stores: dict[str, Any],
    way: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="spark")
    count = 60
    pipeline.put(large(count))
    lsn = pipeline.progress()
    settings = pipeline.settings(stores, slice_bytes=2 * MB, **WAYS[way])
    sinks.catch_up(settings)
    for name in stores:
        store = opened(settings, name)
        pipeline.assert_shown(store)
        mark = store.watermarks.read()
        assert mark is not None and (mark.lsn, mark.offsets) == (lsn, pipeline.offsets())
        slices = [one for one in caplog.records if one.getMessage() == "batch_applied" and vars(one)["sink"] == name]
        records = [vars(one)["records"] for one in slices]
        most = 2 * MB // ROW_BYTES * (SLICES[way] if name in ("cache", "search") else 1)
        assert sum(records) == count
        assert max(records) <= most, name


@pytest.mark.long
@pytest.mark.parametrize(("name", "way"), [("cache", "executors"), ("warehouse", "driver"), ("reports", "executors")])
def test_h102_two_gigabytes_in_one_batch_need_less_than_one(
    pipeline: HandMadeLog, spawn: Spawn, opened: Opened, stores: dict[str, Any], tmp_path: Path, way: str, name: str
) -> None:
    count = 20_000
    for first in range(0, count, 1000):
        rows = list(large(1000))
        pipeline.put(row | {"id": first + number} for number, row in enumerate(rows))
        pipeline.rows.clear()
    config = tmp_path / "cdc.toml"
    own = {name: stores[name]}
    spark = {"checkpoint": str(tmp_path / "checkpoints"), **WAYS[way]}
    config.write_text(pipeline.toml(own, **spark), encoding="utf-8")
    program = spawn("cdc", "--config", config, "sink", "--until-caught-up")
    most: list[int] = []

    def ended() -> bool:
        nonlocal most
        pids = [program.process.pid, *(process.pid for process in below(program.process.pid))]
        most = max(most, [peak_bytes(pid, "java", but=True) for pid in pids], key=sum)
        return program.process.poll() is not None

    def further(slices: int) -> bool:
        return ended() or program.stderr.count('"batch_applied"') > slices

    # How long it takes is the machine's affair: a slice is waited for, not all of them.
    while not ended():
        slices = program.stderr.count('"batch_applied"')
        wait_until(partial(further, slices), 180, lambda: program.stderr)
    assert program.wait(10) == Exit.OK, program.stderr
    print(f"{name} {way}: {[peak // MB for peak in most if peak]} MB")
    driver, *workers = most
    assert driver < 1024 * MB
    assert sum(workers) < 1024 * MB, "the workers of an executor together"
    store = opened(pipeline.settings(own), name)
    shown = sum(batch.num_rows for batch in store.reader.scan(pipeline.shapes["orders"]))
    assert shown == count
