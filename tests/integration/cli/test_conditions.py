"""Each fault of a running pipeline is one sentence with its cure, in status, check and the page alike."""

from __future__ import annotations

import json
import subprocess
from urllib.request import urlopen

import psycopg
import pytest
import redis as redis_client

from cdc.process.errors import Exit
from cdc.stack.local import free_ports
from tests.integration.cli.pipeline import Pipeline, act_as, assert_refused
from tests.programs import Spawn, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(pipeline: Pipeline, redis_url: str) -> Pipeline:
    """A pipeline with two stores, whose processes serve their words."""
    ports = free_ports()
    pipeline.document["capture"] = {"http_address": f"127.0.0.1:{ports['kafka']}"}
    pipeline.document["spark"] |= {"http_address": f"127.0.0.1:{ports['connect']}"}
    pipeline.document["limits"] = {"lag": "5s"}
    pipeline.document["sinks"] = {
        name: {"kind": "redis", "url": redis_url, "prefix": f"{pipeline.document['name']}-{name}"}
        for name in ("cache", "other")
    }
    return pipeline


def passed(shop: Pipeline) -> list[str]:
    """The sentences of ``cdc status --json``."""
    return list(json.loads(shop.cdc("status", "--json").stdout)["passed"])


def everywhere(shop: Pipeline, spawn: Spawn, *words: str) -> None:
    """Status, its JSON, check and the page all have these words."""
    at = f"127.0.0.1:{free_ports()['kafka']}"
    page = spawn("cdc", "--config", shop.config, "status", "--watch", "--http", at)

    def drawn() -> str:
        with urlopen(f"http://{at}/", timeout=10) as answer:
            return str(answer.read().decode())

    wait_until(lambda: "the page is at" in page.stderr, 60, lambda: page.stderr)
    wait_until(lambda: words[0] in drawn(), 60)
    shown, checked = shop.cdc("status"), shop.cdc("check")
    text = {
        "status": " ".join(shown.stdout.split()),
        "json": json.dumps(json.loads(shop.cdc("status", "--json").stdout)["cures"]),
        "check": " ".join(checked.stdout.split()),
        "page": drawn(),
    }
    assert shown.returncode == Exit.DIFFERENCE, shown.stderr
    for word in words:
        lacking = [place for place, said in text.items() if word not in said]
        assert not lacking, f"{word!r}: {lacking}, {text}"
    page.terminate()


def level(shop: Pipeline) -> bool:
    """Whether both stores show all, and nothing is wrong."""
    shown = json.loads(shop.cdc("status", "--json").stdout)
    states = {store["state"] for store in shown["sinks"].values()}
    return states == {"consistent"} and not shown["passed"]


def begun(shop: Pipeline, spawn: Spawn) -> tuple[Spawned, Spawned]:
    """Capture and sinks, level."""
    shop.begin()
    running, feeding = (spawn("cdc", "--config", shop.config, command) for command in ("run", "sink"))
    wait_until(lambda: level(shop), 120, lambda: shop.cdc("status").stdout + feeding.stderr)
    assert "cdc sink answers at" in shop.good("check")
    return running, feeding


def test_y11_a_sink_that_stopped_says_why_everywhere(shop: Pipeline, spawn: Spawn, redis_url: str) -> None:
    """Its store was put ahead by another writer. The process and the other store go on."""
    _, feeding = begun(shop, spawn)
    mark = f"{shop.document['name']}-cache:_watermark"
    with redis_client.Redis.from_url(redis_url, decode_responses=True) as store:
        fields = {name: json.loads(text) for name, text in store.hgetall(mark).items() if text.startswith("{")}
        name, claim = next((name, one) for name, one in fields.items() if "offsets" in one)
        ahead = {topic: {part: end + 9 for part, end in parts.items()} for topic, parts in claim["offsets"].items()}
        store.hset(mark, name, json.dumps({**claim, "lsn": claim["lsn"] + 9, "offsets": ahead}))
        shop.sql("insert into orders values (43, 'new')")
        wait_until(lambda: any("cache: stopped: " in words for words in passed(shop)), 120, lambda: feeding.stderr)
        everywhere(shop, spawn, "cache: stopped: ", "start cdc sink again")
        assert not [words for words in passed(shop) if words.startswith("other: ")]
    assert feeding.terminate() == Exit.ACTIVE


@pytest.mark.long
def test_y6_a_table_added_while_capture_runs_is_read(shop: Pipeline, spawn: Spawn) -> None:
    """In the manual's order: settings, ``cdc init``, then the parts again."""
    running, feeding = begun(shop, spawn)
    shop.sql(
        "create table lines (id int primary key, n int)", "insert into lines select n, n from generate_series(1, 50) n"
    )
    shop.document["source"]["tables"] = ["public.orders", "public.lines"]
    said = shop.cdc("init").stderr
    assert "start cdc run again, then cdc sink" in said
    old = "this cdc run began with settings that leave public.lines out: start it again"
    wait_until(lambda: old in " ".join(shop.cdc("status").stdout.split()), 60, lambda: shop.cdc("status").stdout)
    assert old in shop.cdc("check").stdout
    shop.sql("insert into lines values (51, 51)", "update orders set status = 'moves on'")
    assert running.terminate() == 0
    again = spawn("cdc", "--config", shop.config, "run")
    assert feeding.terminate() == 0
    spawn("cdc", "--config", shop.config, "sink")
    wait_until(lambda: shop.cdc("verify", "--timeout", "300").returncode == 0, 120, lambda: again.stderr)
    assert shop.cdc("status").returncode == 0, shop.cdc("status").stderr


def test_y5_a_failed_reading_ends_by_a_whole_one_or_by_hand(role: str, pipeline: Pipeline, spawn: Spawn) -> None:
    """Of two partitions that the role may not read one is given up, and one is read with the whole table."""
    owner = pipeline.dsn
    parted = "create table ev (id int primary key, v text) partition by range (id)"
    pipeline.sql(parted, "create table ev_1 partition of ev for values from (0) to (10)", "insert into ev values (1)")
    pipeline.document["source"]["tables"] = ["public.ev"]
    pipeline.begin()
    act_as(pipeline, role, "alter role {role} replication", "grant select on ev, ev_1 to {role}")
    capture = spawn("cdc", "--config", pipeline.config, "run", env={"SECRET": "secret"})

    def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
        return pipeline.cdc(*arguments, SECRET="secret")

    def by_owner(*statements: str) -> None:
        with psycopg.connect(owner, autocommit=True) as session:
            for statement in statements:
                session.execute(statement)

    def attach(number: int) -> None:
        rows = f"insert into ev_{number} values ({number * 10})"
        bounds = f"from ({number * 10}) to ({number * 10 + 10})"
        attached = f"alter table ev attach partition ev_{number} for values {bounds}"
        by_owner(f"create table ev_{number} (id int primary key, v text)", rows, attached)

    def fails() -> bool:
        return "public.ev could not be read again: " in asked("status").stdout

    wait_until(lambda: asked("status").returncode == 0, 60, lambda: capture.stderr)
    attach(2)
    wait_until(fails, 120, lambda: capture.stderr)
    assert "public.ev could not be read again: " in asked("check").stdout
    assert_refused(asked("snapshot", "ev_2"), Exit.USAGE, "ev_2 is a partition of public.ev")
    assert "is given up" in asked("snapshot", "ev", "--cancel").stderr
    wait_until(lambda: asked("status").returncode == 0, 30)
    attach(3)
    wait_until(fails, 120, lambda: capture.stderr)
    by_owner(f"grant select on ev_2, ev_3 to {role}")
    read = asked("snapshot", "ev")
    assert read.returncode == 0, read.stderr
    wait_until(lambda: asked("status").returncode == 0, 30, lambda: asked("status").stdout)
    assert "could not be read again" not in asked("check").stdout
    assert capture.terminate() == 0
