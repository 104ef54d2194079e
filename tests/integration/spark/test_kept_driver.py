"""A driver on a cluster that is lost in the middle of a batch, and kept by what its unit of systemd says."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc.process.errors import Exit
from sinks.contract.port import OpenSink
from tests.integration.spark.family import named
from tests.integration.spark.handmade import HandMadeLog
from tests.kept_service import KeptService
from tests.standalone_cluster import LIGHT_JVM, START_S, bare_cluster, bare_python_in
from tests.waiting import wait_until

Opened = Callable[[Any, str], OpenSink]
ROWS = 20_000


@pytest.mark.long
def test_h424_h425_a_lost_driver_is_started_again(
    pipeline: HandMadeLog, redis_url: str, opened: Opened, tmp_path: Path
) -> None:
    """SIGKILL of the driver, of its JVM, and of the master, whose notes are in files. Each time rows are under way."""
    sinks = {"cache": {"kind": "redis", "url": redis_url}}
    store = opened(pipeline.settings(sinks), "cache")
    with bare_cluster(tmp_path, recovers=True) as cluster:
        cluster.add_worker()
        spark = {
            "master": cluster.url,
            "checkpoint": "checkpoints",
            "driver_batch_rows": 0,
            "slice_bytes": 128 * 1024,
            "conf": {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"},
        }
        config = tmp_path / "shop.toml"
        config.write_text(pipeline.toml(sinks, **spark), encoding="utf-8")
        folder = tmp_path / "state"
        folder.mkdir()
        environment = {**os.environ, **LIGHT_JVM, "PYSPARK_PYTHON": os.fspath(bare_python_in(tmp_path))}
        service = KeptService("headrace-sink@.service", config, folder, environment)

        def in_a_batch(status: str) -> None:
            pipeline.put({"id": n, "status": status, "total": "1.00"} for n in range(ROWS))
            wait_until(lambda: _shown(pipeline, store, status) > 0, START_S, lambda: service.running.stderr[-3000:])

        def level() -> None:
            lsn = pipeline.progress()
            wait_until(lambda: _reached(store, lsn), START_S, lambda: service.running.stderr[-3000:])
            pipeline.assert_shown(store)

        service.start()
        try:
            in_a_batch("first")
            service.running.process.send_signal(signal.SIGKILL)
            level()
            assert service.codes == [-signal.SIGKILL]

            in_a_batch("second")
            (java,) = [pid for pid in service.processes() if named(pid) == "java"]
            os.kill(java, signal.SIGKILL)
            level()
            assert service.codes[1:] == [Exit.UNAVAILABLE]

            in_a_batch("third")
            cluster.kill_master()
            cluster.start_master()
            level()
            assert service.kept
        finally:
            code = service.stop()
        assert code == Exit.OK, service.running.stderr[-3000:]
        assert service.processes() == []
        assert "Traceback" not in "".join(run.stderr for run in service.runs)


def _shown(pipeline: HandMadeLog, store: OpenSink, status: str) -> int:
    return sum(row["status"] == status for row in pipeline.shown(store).values())


def _reached(store: OpenSink, lsn: int) -> bool:
    mark = store.watermarks.read()
    return mark is not None and mark.lsn >= lsn
