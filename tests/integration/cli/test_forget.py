"""``cdc forget`` on real servers: a row with a sentinel value goes, place by place, and the files agree."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
import redis as redis_client
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from cdc.dead import DeadLetter, Why
from cdc.errors import Exit
from cdc.settings import load
from cdc.topic import TableName
from connectors.kafka.dead_letters import DeadLetterTopic
from sinks.names import cache_fill
from tests.conftest import Stack
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import RunCdc, Spawn
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
    for command in ("init", "snapshot"):
        pipeline.good(command)
    return pipeline


def set_options(bootstrap: str, topic: str, options: dict[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in options.items()]
    wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([wanted]).values():
        future.result()


def looked(pipeline: Pipeline, *arguments: str, code: Exit | None = None) -> dict[str, Any]:
    """The report, by place."""
    done = pipeline.cdc("forget", "orders", KEY, "--json", *arguments)
    assert "Traceback" not in done.stderr
    assert code is None or done.returncode == code, done.stderr + done.stdout
    report: dict[str, Any] = orjson.loads(done.stdout)
    return {one["place"]: one for one in report["places"]} | {"code": done.returncode, "report": report}


def states(found: dict[str, Any]) -> dict[str, str]:
    return {place: one["state"] for place, one in found.items() if place not in ("code", "report")}


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


@pytest.fixture
def churn(shop: Pipeline) -> Callable[[], None]:
    """Changes of other rows, in every partition: a partition's file is closed by the next record alone."""
    rows = iter(range(1000, 10_000, 20))

    def more() -> None:
        start = next(rows)
        shop.sql(f"insert into orders select i, 'more' from generate_series({start}, {start + 19}) i")

    return more


def sink(shop: Pipeline) -> None:
    shop.good("sink", "--until-caught-up")


def test_h280_a_row_is_forgotten_place_by_place(
    shop: Pipeline, spawn: Spawn, kafka: str, log_folder: Path, churn: Callable[[], None], tmp_path: Path
) -> None:
    topic = f"{shop.document['name']}.public.orders"
    logs = [log_folder / f"{topic}-{number}" for number in range(2)]
    warehouse = tmp_path / "warehouse" / "public" / "orders"
    sink(shop)
    assert_refused(shop.cdc("forget", "orders", KEY), Exit.USAGE, "still has that row", "delete it there first")
    shop.sql(f"delete from orders where id = {KEY}")
    first = looked(shop, "--timeout", "0", code=Exit.DIFFERENCE)
    assert states(first) == {place: "holds" for place in ("log", "cache", "warehouse", "reports")} | {
        "dead letters": "gone",
        "requests": "gone",
    }
    assert "cdc run has read the delete" in first["log"]["held"][0]["until"]

    spawn("cdc", "--config", shop.config, "run")
    wait_until(lambda: "compaction" in looked(shop, "--timeout", "0")["log"]["held"][0]["until"], 30)
    sink(shop)
    second = looked(shop, "--timeout", "0", code=Exit.DIFFERENCE)
    assert states(second) == {
        "log": "holds", "dead letters": "gone", "requests": "gone", "cache": "key", "warehouse": "holds",
        "reports": "key",
    }  # fmt: skip
    assert files_with(SENTINEL, *logs)
    assert "min.compaction.lag.ms" in second["log"]["held"][0]["until"]
    held = {one["state"]: one for one in second["warehouse"]["held"]}
    assert set(held) == {"key", "holds", "may hold"}
    assert "deletedFileRetentionDuration" in held["holds"]["until"]
    assert any("_delta_log" in one for one in files_with(SENTINEL, warehouse)), "the log has it as a column's bound"

    set_options(kafka, topic, SOON)

    def compacted() -> bool:
        churn()
        return states(looked(shop, "--timeout", "0"))["log"] in ("key", "gone")

    wait_until(compacted, 90)
    wait_until(lambda: not files_with(SENTINEL, *logs), 30, lambda: files_with(SENTINEL, *logs))
    assert looked(shop, "--timeout", "0", code=Exit.DIFFERENCE)["report"]["gone"] is False
    set_table(warehouse, "interval 1 seconds")

    def cleaned() -> bool:
        return bool(looked(shop, "--timeout", "3")["code"] == Exit.OK)

    wait_until(cleaned, 60, lambda: looked(shop, "--timeout", "0"))
    assert not files_with(SENTINEL, warehouse)
    again = looked(shop, code=Exit.OK)
    assert again["report"]["seen"]
    assert set(states(again).values()) <= {"gone", "key"}


def set_table(path: Path, retention: str) -> None:
    """As an operator sets it who wants files to go sooner."""
    import deltalake  # noqa: PLC0415

    properties = {"delta.deletedFileRetentionDuration": retention, "delta.logRetentionDuration": retention}
    deltalake.DeltaTable(path).alter.set_table_properties(properties)


def test_a_row_that_comes_again_is_not_forgotten(shop: Pipeline, spawn: Spawn) -> None:
    spawn("cdc", "--config", shop.config, "run")
    shop.sql(f"delete from orders where id = {KEY}")
    wait_until(lambda: "compaction" in looked(shop, "--timeout", "0")["log"]["held"][0]["until"], 30)
    shop.sql(f"insert into orders values ({KEY}, 'again')")
    assert_refused(shop.cdc("forget", "orders", KEY, "--timeout", "0"), Exit.USAGE, "still has that row")


def test_h307_a_renamed_table_is_looked_for_under_both_names(shop: Pipeline, spawn: Spawn) -> None:
    """Its former topic has the row without a delete: nobody writes there any more."""
    shop.document["source"]["tables"] = ["public.*"]
    sink(shop)
    spawn("cdc", "--config", shop.config, "run")
    shop.sql("alter table orders rename to purchases", "insert into purchases values (19, 'later')")

    def found() -> dict[str, Any]:
        done = shop.cdc("forget", "purchases", KEY, "--json", "--timeout", "0")
        # Before capture has met the new name there is no such table.
        places = orjson.loads(done.stdout)["places"] if done.stdout else []
        return {one["place"]: one["state"] for one in places}

    shop.sql(f"delete from purchases where id = {KEY}")
    wait_until(
        lambda: found()["log, public.orders"] == "holds", 60, lambda: shop.cdc("forget", "purchases", KEY).stderr
    )
    assert found()["reports, public.orders"] == "holds"


def test_h109_a_store_that_is_away_is_not_gone(shop: Pipeline, no_server: str) -> None:
    shop.sql(f"delete from orders where id = {KEY}")
    shop.document["sinks"]["cache"]["url"] = f"redis://127.0.0.1:{no_server}/0"
    found = looked(shop, "--timeout", "0", code=Exit.DIFFERENCE)
    assert states(found)["cache"] == "unknown"
    assert states(found)["reports"] == "gone"
    assert states(found)["log"] == "holds"


def test_h109_without_kafka_or_source_nothing_is_said(shop: Pipeline, no_server: str) -> None:
    shop.sql(f"delete from orders where id = {KEY}")
    servers, dsn = shop.document["log"]["bootstrap_servers"], shop.document["source"]["dsn"]
    shop.document["log"]["bootstrap_servers"] = f"127.0.0.1:{no_server}"
    away = shop.cdc("forget", "orders", KEY)
    assert_refused(away, Exit.UNAVAILABLE, "cannot reach Kafka")
    assert away.stdout == ""
    shop.document["log"]["bootstrap_servers"] = servers
    parts = psycopg.conninfo.conninfo_to_dict(dsn) | {"host": "127.0.0.1", "port": no_server}
    shop.document["source"]["dsn"] = psycopg.conninfo.make_conninfo("", **parts)
    silent = shop.cdc("forget", "orders", KEY)
    assert silent.returncode == Exit.UNAVAILABLE, silent.stderr
    assert silent.stdout == ""


def test_what_a_reader_filled_is_found(shop: Pipeline, redis_url: str) -> None:
    shop.sql(f"delete from orders where id = {KEY}")
    with redis_client.Redis.from_url(redis_url) as client:
        place = cache_fill(shop.document["name"], 1, TableName("public", "orders"), KEY)
        client.hset(place, "row", SENTINEL)
        client.pexpire(place, 60_000)
    held = looked(shop, "--timeout", "0", code=Exit.DIFFERENCE)["cache"]["held"]
    assert "read through" in held[0]["what"]
    assert held[0]["until_ms"] > 0


def test_a_key_that_never_was_is_said_to_be_unknown(shop: Pipeline) -> None:
    done = shop.cdc("forget", "orders", "999", "--timeout", "0")
    assert done.returncode == Exit.OK, done.stderr
    assert "no place knows this key" in done.stderr
    assert_refused(shop.cdc("forget", "orders", "seventeen"), Exit.USAGE, "no key", "events")
    assert_refused(shop.cdc("forget", "nothing", "1"), Exit.USAGE, "no captured table", "public.orders")


def test_letters_are_trimmed_where_that_is_asked_for(shop: Pipeline) -> None:
    topic = DeadLetterTopic(load(shop.config).log, f"{shop.document['name']}.dead")
    table = f"{shop.document['name']}.public.orders"
    refused = DeadLetter(
        sink="cache", why=Why.REFUSED, topic=table, partition=0, offset=3, reason="no", key=b'{"id":17}',
        value=SENTINEL.encode(),
    )  # fmt: skip
    other = replace(refused, key=b'{"id":18}', offset=4)
    topic.write([refused, replace(refused, why=Why.RELEASED, value=None), other])
    shop.sql(f"delete from orders where id = {KEY}")
    held = looked(shop, "--timeout", "0", code=Exit.DIFFERENCE)["dead letters"]["held"]
    assert "--trim-letters" in held[0]["cure"]
    topic.write([replace(refused, offset=9)])
    waits = looked(shop, "--timeout", "0")["dead letters"]["held"]
    assert "wait for cache" in waits[0]["what"]
    (order,) = [one for one in topic.read() if one.why is Why.RETRY]
    topic.write([replace(order, why=Why.RELEASED)])
    blocked = looked(shop, "--timeout", "0", "--trim-letters")["dead letters"]["held"]
    assert "letters of other keys" in blocked[0]["until"], "the letter of row 18 stands between and waits"
    topic.write([replace(other, why=Why.RELEASED, value=None)])
    assert states(looked(shop, "--timeout", "0", "--trim-letters"))["dead letters"] == "gone"
    assert list(topic.read()) == []


@pytest.fixture
def nested(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    """A view whose documents nest the name of a customer."""
    text = "select o.id, c.name from orders o left join customers c on c.id = o.customer_id"
    (tmp_path / "named.sql").write_text(text, encoding="utf-8")
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 1},
        "capture": {"http_address": ""},
        "spark": {"http_address": "", "checkpoint": str(tmp_path / "checkpoints")},
        "views": {"named": {"sql": str(tmp_path / "named.sql"), "state": str(tmp_path / "state")}},
        "sinks": {"files": {"kind": "delta", "path": str(tmp_path / "files"), "tables": ["view.named"]}},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(
        "create table customers (id int primary key, name text)",
        "create table orders (id int primary key, customer_id int)",
        f"insert into customers values (1, 'other'), ({KEY}, '{SENTINEL}')",
        f"insert into orders select g, case when g % 2 = 0 then {KEY} else 1 end from generate_series(1, 20) g",
    )
    for command in ("init", "snapshot"):
        made.good(command)
    return made


def test_documents_that_nest_a_row_are_forgotten(
    nested: Pipeline, spawn: Spawn, kafka: str, log_folder: Path, tmp_path: Path
) -> None:
    name = nested.document["name"]
    logs = [log_folder / f"{name}.{topic}-0" for topic in ("public.customers", "view.named.1")]
    spawn("cdc", "--config", nested.config, "run")
    spawn("cdc", "--config", nested.config, "view", "run")
    wait_until(lambda: files_with(SENTINEL, logs[1]), 60)
    sink(nested)
    nested.sql(f"delete from customers where id = {KEY}")

    def look(timeout_s: str = "0") -> dict[str, Any]:
        done = nested.cdc("forget", "customers", KEY, "--json", "--timeout", timeout_s)
        return {one["place"]: one for one in orjson.loads(done.stdout)["places"]} | {"code": done.returncode}

    wait_until(lambda: "older versions" in look()["view named, log"]["held"][0]["what"], 60, look)
    sink(nested)
    found = {place: one["state"] for place, one in look().items() if place != "code"}
    assert found["log"] == "holds"
    assert found["view named, state"] == "key"
    assert found["view named, log"] == found["view named, files"] == "may hold"
    assert not files_with(SENTINEL, tmp_path / "state"), "written over, and the log of before taken in"
    # The delete leaves the log at once: the view's state alone says where it was (H303), and the view stays busy.
    set_options(kafka, f"{name}.public.customers", {**SOON, "delete.retention.ms": "100"})
    set_options(kafka, f"{name}.view.named.1", SOON)
    set_table(tmp_path / "files" / "view" / "named", "interval 1 seconds")
    rows = iter(range(1000, 10_000))
    # It writes to the tables that are cleaned beside it.
    spawn("cdc", "--config", nested.config, "sink")

    def gone() -> bool:
        more = next(rows)
        nested.sql(f"insert into customers values ({more}, 'more')", f"insert into orders values ({more}, {more})")
        return bool(look("10")["code"] == Exit.OK)

    wait_until(gone, 120, look)
    wait_until(lambda: gone() and look()["log"]["state"] == "gone", 60, look)
    wait_until(lambda: not files_with(SENTINEL, *logs), 30)
    assert not files_with(SENTINEL, tmp_path / "files", tmp_path / "state")


def test_h109_a_state_on_another_machine_is_not_gone(nested: Pipeline) -> None:
    nested.sql(f"delete from customers where id = {KEY}")
    done = nested.cdc("forget", "customers", KEY, "--json", "--timeout", "0")
    places = {one["place"]: one for one in orjson.loads(done.stdout)["places"]}
    assert done.returncode == Exit.DIFFERENCE
    assert places["view named, state"]["state"] == "unknown"
    assert "not on this machine" in places["view named, state"]["because"]


def test_the_log_has_a_digest_of_the_key_alone(pipeline: Pipeline) -> None:
    pipeline.sql("create table people (email text primary key)", "insert into people values ('jane doe@x')")
    pipeline.document["source"]["tables"] = ["public.people"]
    for command in ("init", "snapshot"):
        pipeline.good(command)
    pipeline.sql("delete from people")
    done = pipeline.cdc("-vv", "forget", "people", "jane doe@x", "--timeout", "0")
    assert done.returncode == Exit.DIFFERENCE, done.stderr
    assert "forget_looked" in done.stderr
    assert "jane" not in done.stderr
    assert "public.people jane doe@x" in done.stdout
