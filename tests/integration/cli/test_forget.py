"""``cdc forget`` on real servers: a row with a sentinel value goes from the stores, then from the topic."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from cdc.process.errors import Exit
from tests.conftest import Stack
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import Spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
SENTINEL = "sentinel-6f1d0c"
KEY = "17"
SOON = {
    "segment.ms": "100",
    "min.compaction.lag.ms": "0",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "100",
    "max.compaction.lag.ms": "100",
}
"""A topic of which the cleaner takes all but the newest within seconds. Only tests set that."""


@pytest.fixture
def shop(pipeline: Pipeline, redis_url: str, tmp_path: Path) -> Pipeline:
    """A pipeline whose stores show a row with the sentinel."""
    pipeline.document["sinks"] = {
        "cache": {"kind": "redis", "url": redis_url},
        "warehouse": {"kind": "delta", "path": str(tmp_path / "warehouse")},
        "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"},
    }
    pipeline.document["spark"]["http_address"] = ""
    pipeline.sql(f"insert into orders values ({KEY}, '{SENTINEL}'), (18, 'other')")
    pipeline.begin()
    return pipeline


def set_options(bootstrap: str, topic: str, options: dict[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in options.items()]
    wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([wanted]).values():
        future.result()


def asked(pipeline: Pipeline, *arguments: str, code: Exit | None = None) -> dict[str, Any]:
    """The report."""
    done = pipeline.cdc("forget", "orders", KEY, "--json", *arguments)
    assert "Traceback" not in done.stderr
    assert code is None or done.returncode == code, done.stderr + done.stdout
    report: dict[str, Any] = orjson.loads(done.stdout)
    return report | {"code": done.returncode}


def shown(report: dict[str, Any]) -> set[str]:
    return {place for place, answer in report["answers"].items() if answer["shows"]}


def files_with(word: str, *folders: Path) -> list[str]:
    """Files below these folders that have the word in them: by grep, which shares no code with what is tested."""
    done = subprocess.run(["grep", "-rla", word, *map(str, folders)], capture_output=True, text=True, check=False)
    return sorted(done.stdout.split())


@pytest.fixture
def log_folder(stack: Stack, kafka: str) -> Path:
    """Where the broker has its files."""
    folder = getattr(stack, "folder", None)
    assert folder is not None, "the broker's files are not on this machine"
    return Path(folder) / "kafka" / "data"


def test_h280_a_row_goes_from_the_stores_and_then_from_the_topic(
    shop: Pipeline, spawn: Spawn, kafka: str, log_folder: Path
) -> None:
    topic = f"{shop.document['name']}.public.orders"
    logs = [log_folder / f"{topic}-{number}" for number in range(2)]
    shop.good("sink", "--until-caught-up")
    everywhere = {"log", "cache", "warehouse", "reports"}
    first = asked(shop, code=Exit.DIFFERENCE)
    assert shown(first) == everywhere
    assert "the newest a row" in first["answers"]["log"]["says"]
    assert {"dead letters", "requests", "outside", "cache", "warehouse", "reports"} <= set(first["kept"])

    shop.sql(f"delete from orders where id = {KEY}")
    spawn("cdc", "--config", shop.config, "run")
    wait_until(lambda: "before the tombstone" in asked(shop)["answers"]["log"]["says"], 30)
    assert shown(asked(shop)) == everywhere
    shop.good("sink", "--until-caught-up")
    second = asked(shop, code=Exit.DIFFERENCE)
    assert shown(second) == {"log"}
    assert {second["answers"][sink]["says"] for sink in ("cache", "warehouse", "reports")} == {
        "the key of the delete, without values"
    }
    assert files_with(SENTINEL, *logs)

    set_options(kafka, topic, SOON)
    rows = iter(range(1000, 10_000, 20))

    def compacted() -> bool:
        # Changes of other rows, in every partition: a partition's file is closed by the next record alone.
        start = next(rows)
        shop.sql(f"insert into orders select i, 'more' from generate_series({start}, {start + 19}) i")
        return bool(asked(shop)["code"] == Exit.OK)

    wait_until(compacted, 90, lambda: asked(shop)["answers"])
    wait_until(lambda: not files_with(SENTINEL, *logs), 30, lambda: files_with(SENTINEL, *logs))
    text = shop.good("forget", "orders", KEY)
    assert "kept of a deleted key:" in text and SENTINEL not in text


def test_h109_a_store_that_is_away_is_not_gone(shop: Pipeline, no_server: str) -> None:
    shop.document["sinks"]["cache"]["url"] = f"redis://127.0.0.1:{no_server}/0"
    found = asked(shop, code=Exit.DIFFERENCE)
    assert found["answers"]["cache"]["says"].startswith("not known: ")
    assert found["answers"]["reports"]["says"] == "nothing under the key"
    assert shown(found) == {"log"}
    away = shop.cdc("forget", "orders", "999")
    assert away.returncode == Exit.UNAVAILABLE, away.stderr
    shop.document["log"]["bootstrap_servers"] = f"127.0.0.1:{no_server}"
    away = shop.cdc("forget", "orders", KEY)
    assert_refused(away, Exit.UNAVAILABLE, "cannot reach Kafka")
    assert away.stdout == ""


def test_a_key_and_a_table_that_are_none_are_refused(shop: Pipeline) -> None:
    assert "log: no record of the key" in shop.good("forget", "orders", "999")
    assert_refused(shop.cdc("forget", "orders", "seventeen"), Exit.USAGE, "no key", "events")
    assert_refused(shop.cdc("forget", "nothing", "1"), Exit.USAGE, "no captured table", "public.orders")


def test_a_former_name_of_a_table_is_asked_for_by_itself(shop: Pipeline, spawn: Spawn) -> None:
    """Its topic has the row without a delete: nobody writes there any more."""
    shop.document["source"]["tables"] = ["public.*"]
    capture = spawn("cdc", "--config", shop.config, "run")
    shop.sql("alter table orders rename to purchases", "insert into purchases values (19, 'later')")

    def says(table: str) -> str:
        done = shop.cdc("forget", table, KEY, "--json")
        # Before capture has met the new name there is no such table.
        return str(orjson.loads(done.stdout)["answers"]["log"]["says"]) if done.stdout else done.stderr

    wait_until(lambda: "public.orders was renamed to public.purchases" in shop.cdc("status").stdout, 60)
    # A table of one name is not followed under another, though the settings take it, before an operator says so.
    shop.good("init")
    shop.good("snapshot", "purchases")
    wait_until(lambda: "the newest a row" in says("purchases"), 60, lambda: says("purchases") + capture.stderr)
    shop.sql(f"delete from purchases where id = {KEY}")
    wait_until(lambda: "tombstone" in says("purchases"), 60, lambda: says("purchases") + capture.stderr)
    assert "the newest a row" in says("public.orders")
