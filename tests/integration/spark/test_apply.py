"""From topics to stores, through real Kafka and Spark: small batches in the driver, large ones on executors."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc.record.topic_names import dead_topic
from cdc.settings.model import Settings
from cdc.wire.dead_letter import DeadLetter, Why
from connectors.kafka.dead_letters import DeadLetterTopic
from sinks.contract.port import OpenSink
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import NOTE, HandMadeLog, orders_schema

Opened = Callable[[Settings, str], OpenSink]
ON_EXECUTORS = {"driver_batch_rows": 0, "max_offsets_per_trigger": 700}
IN_DRIVER = {"driver_batch_rows": 10_000}


@pytest.fixture
def cache(redis_url: str) -> dict[str, Any]:
    """The cache alone: the quickest store."""
    return {"cache": {"kind": "redis", "url": redis_url}}


def letters(pipeline: HandMadeLog) -> list[DeadLetter]:
    return list(DeadLetterTopic(pipeline.log, dead_topic(pipeline.name)).read())


def workload(pipeline: HandMadeLog, count: int, seed: int, keys: int = 100) -> None:
    """Inserts, updates and deletes over few keys, some rows written twice in a batch."""
    chance = random.Random(seed)
    for _ in range(count // 50):
        rows = [
            {"id": chance.randrange(keys)}
            if chance.random() < 0.2
            else {
                "id": chance.randrange(keys),
                "status": f"s{chance.randrange(1000)}",
                "total": f"{chance.randrange(99)}.50",
            }
            for _ in range(50)
        ]
        pipeline.put(rows)


@pytest.mark.parametrize(
    "spark",
    [IN_DRIVER, ON_EXECUTORS],
    ids=["driver", "executors"],
)
@pytest.mark.slow
def test_every_store_shows_what_the_log_says(
    pipeline: HandMadeLog, sinks: Sinks, opened: Opened, all_stores: dict[str, Any], spark: dict[str, Any]
) -> None:
    workload(pipeline, 1500, seed=1)
    pipeline.truncate()
    workload(pipeline, 500, seed=2)
    lsn = pipeline.progress()
    settings = pipeline.settings(all_stores, **spark)
    sinks.catch_up(settings)
    for name in all_stores:
        store = opened(settings, name)
        pipeline.assert_shown(store)
        watermark = store.watermarks.read()
        assert watermark is not None
        assert (watermark.epoch, watermark.lsn, watermark.offsets) == (1, lsn, pipeline.offsets()), name


class Touch:
    """Its pickle makes a file where it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self._path,)


@pytest.mark.slow
def test_h67_poison_goes_to_the_dead_letters_and_the_rest_flows(
    pipeline: HandMadeLog, sinks: Sinks, opened: Opened, cache: dict[str, Any], tmp_path: Path
) -> None:
    pipeline.put([{"id": 1, "status": "good", "total": "1.00"}])
    pipeline.put_raw(b"not ours", b"\xff\x00", [("x", b"y")])
    pipeline.put_raw(b'{"id":2}', b'{"before":null,"aft', pipeline.headers(), partition=1)
    pipeline.put_raw(b"[]", b"{}", pipeline.headers())
    pipeline.put_raw(b"odd name", b"{}", [(b"\xff", b"x")])  # type: ignore[list-item]
    touch = pickle.dumps(Touch(tmp_path / "unpickled"))
    pipeline.put_raw(touch, touch, [*pipeline.headers(), ("note", touch)])
    pipeline.put([{"id": 3, "status": "good too", "total": "3.00"}])
    settings = pipeline.settings(cache, **IN_DRIVER)
    sinks.catch_up(settings)
    pipeline.assert_shown(opened(settings, "cache"))
    found = {(letter.key, letter.why) for letter in letters(pipeline)}
    assert found == {
        (b"not ours", Why.UNREADABLE),
        (b"odd name", Why.UNREADABLE),
        (b'{"id":2}', Why.REFUSED),
        (b"[]", Why.REFUSED),
        (touch, Why.REFUSED),
    }
    assert not (tmp_path / "unpickled").exists()
    truncated = next(letter for letter in letters(pipeline) if letter.key == b'{"id":2}')
    assert (truncated.topic, truncated.partition, truncated.value) == (pipeline.topic(), 1, b'{"before":null,"aft')
    assert [name for name, _ in truncated.headers] == ["pos", "op", "ver"]


@pytest.mark.slow
def test_h85_a_later_column_appears_old_rows_keep_their_shape(
    pipeline: HandMadeLog, sinks: Sinks, opened: Opened, all_stores: dict[str, Any]
) -> None:
    settings = pipeline.settings({name: all_stores[name] for name in ("cache", "warehouse")}, **ON_EXECUTORS)
    pipeline.put({"id": n, "status": "old", "total": "1.00"} for n in range(40))
    with sinks.running(settings) as running:
        caches = opened(settings, "cache")
        running.until(lambda: len(pipeline.shown(caches)) == 40)
        pipeline.add_shape(orders_schema(pipeline.name, extra=[NOTE]))
        pipeline.put({"id": n, "status": "new", "total": "2.00", "note": f"n{n}"} for n in range(20, 60))
        running.until(lambda: len(pipeline.shown(caches)) == 60)
        running.until(lambda: len(pipeline.shown(opened(settings, "warehouse"))) == 60)
    warehouse = pipeline.shown(opened(settings, "warehouse"))
    assert warehouse["59"]["note"] == "n59"
    assert warehouse["5"] == {"id": 5, "status": "old", "total": "1.00", "note": None}


@pytest.mark.slow
def test_sinks_take_the_tables_they_are_told(
    kafka: str, topic_prefix: str, sinks: Sinks, opened: Opened, cache: dict[str, Any], warehouse: Path
) -> None:
    pipeline = HandMadeLog(topic_prefix, kafka, tables=("orders", "customers"))
    pipeline.init()
    for table in pipeline.tables:
        pipeline.put(({"id": n, "status": table, "total": "1.00"} for n in range(30)), table=table)
    pipeline.progress()
    stores = {
        "cache": cache["cache"] | {"tables": ["public.customers"]},
        "warehouse": {"kind": "delta", "path": str(warehouse)},
    }
    settings = pipeline.settings(stores)
    sinks.catch_up(settings)
    assert len(pipeline.shown(opened(settings, "cache"), "customers")) == 30
    assert pipeline.shown(opened(settings, "cache"), "orders") == {}
    pipeline.assert_shown(opened(settings, "warehouse"), "orders")
    pipeline.assert_shown(opened(settings, "warehouse"), "customers")
    watermark = opened(settings, "cache").watermarks.read()
    assert watermark is not None and set(watermark.offsets) == {pipeline.topic("customers")}
