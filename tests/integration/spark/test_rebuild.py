"""A store built anew beside the one in use: on every kind of store, with its sink running, killed and rolled back."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from cdc.operate.rebuild import RebuildState, Step
from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Exit
from cdc.record.topic_names import dead_topic
from cdc.settings.model import Settings
from cdc.wire.dead_letter import waiting
from cdc.wiring.sinks import open_rebuild
from connectors.kafka.dead_letters import DeadLetterTopic
from sinks.contract.port import OpenSink
from sinks.contract.stores import open_store
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog
from tests.programs import RunCdc, Spawn

Opened = Callable[..., OpenSink]
KINDS = ("cache", "search", "warehouse")
START_S = 240.0


@pytest.fixture
def all_stores(redis_url: str, opensearch: str, index_prefix: str, warehouse: Path, tmp_path: Path) -> dict[str, Any]:
    return {
        "cache": {"kind": "redis", "url": redis_url},
        "search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "warehouse": {"kind": "delta", "path": str(warehouse)},
        "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"},
    }


def order(number: int, status: str) -> dict[str, Any]:
    return {"id": number, "status": status, "total": "1.00"}


def shown(pipeline: HandMadeLog, settings: Settings, sink: str) -> dict[str, dict[str, Any]]:
    """What readers see, through a connection of their own."""
    store = open_store(sink, settings)
    try:
        return pipeline.shown(store)
    finally:
        store.close()


def rebuild_store(settings: Settings, sink: str, session: SparkSession) -> RebuildState:
    """One rebuild, with nobody who looks."""
    with open_rebuild(settings, sink, session=session) as rebuild:
        return rebuild.run(lambda words, share: None)


@pytest.mark.parametrize("sink", KINDS)
@pytest.mark.slow
def test_a_damaged_store_is_rebuilt_beside_its_sink_and_restored(
    pipeline: HandMadeLog,
    sinks: Sinks,
    all_stores: dict[str, Any],
    spark_session: SparkSession,
    sink: str,
    tmp_path: Path,
) -> None:
    settings = pipeline.settings({sink: all_stores[sink]}, checkpoint=str(tmp_path / "checkpoints"))
    pipeline.put([order(number, "first") for number in range(60)])
    pipeline.put([{"id": 3}])
    pipeline.progress()
    with sinks.running(settings) as running:
        running.until(lambda: shown(pipeline, settings, sink) == pipeline.rows["orders"])
        damage(pipeline, settings, sink)
        assert shown(pipeline, settings, sink) != pipeline.rows["orders"]
        done = rebuild_store(settings, sink, spark_session)
        assert (done.generation, done.previous, done.step) == (2, 1, Step.DONE)
        assert shown(pipeline, settings, sink) == pipeline.rows["orders"]
        pipeline.put([order(number, "second") for number in range(50, 80)])
        pipeline.put([{"id": 1}])
        lsn = pipeline.progress()
        running.until(lambda: shown(pipeline, settings, sink) == pipeline.rows["orders"])
        store = open_store(sink, settings)
        running.until(lambda: (mark := store.watermarks.read()) is not None and mark.lsn == lsn)
        store.close()
        with open_rebuild(settings, sink) as back:
            back.roll_back()
        running.until(lambda: set(shown(pipeline, settings, sink)) == {*pipeline.rows["orders"], "7000"} - {"5"})
        again = rebuild_store(settings, sink, spark_session)
        assert again.generation == 3
        assert shown(pipeline, settings, sink) == pipeline.rows["orders"]
        pipeline.put([order(99, "last")])
        running.until(lambda: shown(pipeline, settings, sink) == pipeline.rows["orders"])


def damage(pipeline: HandMadeLog, settings: Settings, sink: str) -> None:
    """Row 5 becomes row 7000, in the store alone."""
    from cdc.verification.ports import RepairRow  # noqa: PLC0415
    from connectors.operate.verify import StoreRepair  # noqa: PLC0415

    store = open_store(sink, settings)
    shape = pipeline.shapes["orders"]
    pos = f"{1:08x}{pipeline.lsn:016x}ffffffff"
    StoreRepair(store).put(
        shape,
        pos,
        [RepairRow(b'{"id":5}', None), RepairRow(b'{"id":7000}', b'{"id":7000,"status":"never","total":"1.00"}')],
    )
    store.close()


@pytest.mark.slow
def test_h191_a_store_that_claims_too_much_is_rebuilt(
    pipeline: HandMadeLog,
    sinks: Sinks,
    all_stores: dict[str, Any],
    spark_session: SparkSession,
    tmp_path: Path,
) -> None:
    """Its watermark was set ahead by hand: nobody reaches that LSN. Before, the rebuild waited for ever."""
    sink = "cache"
    settings = pipeline.settings({sink: all_stores[sink]}, checkpoint=str(tmp_path / "checkpoints"))
    pipeline.put([order(number, "first") for number in range(9)])
    lsn = pipeline.progress()
    sinks.catch_up(settings)
    damage(pipeline, settings, sink)
    store = open_store(sink, settings)
    mark = store.watermarks.read()
    assert mark is not None
    store.watermarks.write(replace(mark, lsn=mark.lsn + 9))
    store.close()
    assert rebuild_store(settings, sink, spark_session).step == Step.DONE
    assert shown(pipeline, settings, sink) == pipeline.rows["orders"]
    pipeline.put([order(3, "second")])
    sinks.catch_up(settings)
    assert shown(pipeline, settings, sink) == pipeline.rows["orders"]
    store = open_store(sink, settings)
    after = store.watermarks.read()
    store.close()
    assert after is not None and after.lsn == lsn


STEPS = (
    "rebuild_after_begin",
    "sink_after_watermark",
    "rebuild_after_fill",
    "rebuild_after_keep",
    "rebuild_after_switch",
)
SHORT = "rebuild_after_fill"
"""The step that is tried each time; the others are long."""


@pytest.fixture(
    params=[pytest.param(point, marks=() if point == SHORT else pytest.mark.long) for point in STEPS],
)
def killed(request: pytest.FixtureRequest) -> str:
    """The step of a rebuild that the command is killed behind."""
    return str(request.param)


@pytest.mark.slow
def test_a_rebuild_that_is_killed_goes_on_by_the_same_command(
    pipeline: HandMadeLog,
    sinks: Sinks,
    all_stores: dict[str, Any],
    run_cdc: RunCdc,
    spawn: Spawn,
    killed: str,
    tmp_path: Path,
) -> None:
    sink = "reports"
    options = {"checkpoint": str(tmp_path / "checkpoints")}
    settings = pipeline.settings({sink: all_stores[sink]}, **options)
    config = tmp_path / "cdc.toml"
    config.write_text(pipeline.toml({sink: all_stores[sink]}, **options), encoding="utf-8")
    pipeline.put([order(number, "first") for number in range(30)])
    pipeline.progress()
    sinks.catch_up(settings)
    damage(pipeline, settings, sink)
    program = spawn("cdc", "--config", config, "rebuild", sink, env={"CDC_CRASH_AT": killed})
    assert program.wait(START_S) == CRASH_EXIT, program.stderr
    pipeline.put([order(number, "second") for number in range(20, 40)])
    pipeline.progress()
    sinks.catch_up(settings)
    done: subprocess.CompletedProcess[str] = run_cdc("--config", config, "rebuild", sink, timeout_s=START_S)
    assert done.returncode == Exit.OK, done.stderr
    assert "generation 2" in done.stderr
    sinks.catch_up(settings)
    assert shown(pipeline, settings, sink) == pipeline.rows["orders"]


@pytest.mark.slow
def test_h67_letters_of_the_old_generation_are_retried(
    pipeline: HandMadeLog,
    sinks: Sinks,
    all_stores: dict[str, Any],
    spark_session: SparkSession,
    redis_url: str,
    tmp_path: Path,
) -> None:
    settings = pipeline.settings({"cache": all_stores["cache"]}, checkpoint=str(tmp_path / "checkpoints"))
    topic = DeadLetterTopic(pipeline.log, dead_topic(pipeline.name))
    with redis.Redis.from_url(redis_url) as client:
        client.set(f"{pipeline.name}:public.orders:1", "somebody else's")
        client.set(f"{pipeline.name}@2:public.orders:2", "somebody else's")
        pipeline.put([order(1, "one"), order(2, "two")])
        sinks.catch_up(settings)
        assert [one.key for one in waiting(topic.read())] == [b'{"id":1}']
        with sinks.running(settings) as running:
            rebuild_store(settings, "cache", spark_session)
            running.until(lambda: [one.key for one in waiting(topic.read())] == [b'{"id":2}'])
            assert {one.sink for one in waiting(topic.read())} == {"cache"}
            pipeline.put([order(1, "later")])
            running.until(lambda: shown(pipeline, settings, "cache").get("1", {}).get("status") == "later")
