"""Two applications feed every kind of store of one pipeline, by the commands that a user has, and one of them dies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.crash import CRASH_EXIT
from cdc.errors import Exit
from cdc.shares import owner
from cdc.stack.free_ports import free_ports
from tests.contract.conftest import postgres_url
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.integration.cli.test_shown_figures import Shown
from tests.programs import Spawn, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
TABLES = tuple(f"t{number}" for number in range(10))
STORES = ("cache", "search", "warehouse", "reports")
START_S = 240.0


@pytest.fixture
def shop(
    pipeline: Pipeline, redis_url: str, opensearch: str, index_prefix: str, database: str, tmp_path: Path
) -> Pipeline:
    """Ten tables in four stores, snapshot taken."""
    reports = {"kind": "sql", "url": postgres_url(conninfo_to_dict(database)), "db_schema": "replica"}
    pipeline.document["sinks"] = {
        "cache": {"kind": "redis", "url": redis_url},
        "search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "warehouse": {"kind": "delta", "path": str(tmp_path / "warehouse")},
        "reports": reports,
    }
    pipeline.document["source"]["tables"] = ["public.t*"]
    pipeline.document["spark"]["http_address"] = ""
    for table in TABLES:
        pipeline.sql(
            f"create table {table} (id int primary key, status text)", f"insert into {table} values (1, 'open')"
        )
    for command in ("init", "snapshot"):
        pipeline.good(command)
    return pipeline


def of_share(number: int, count: int) -> list[str]:
    """The tables of a share."""
    return [table for table in TABLES if owner(f"shop.public.{table}", count) == number]


def application(spawn: Spawn, shop: Pipeline, number: int, count: int, *, http: str = "") -> Spawned:
    name = f"{number}/{count}"
    return spawn("cdc", "--config", shop.config, "sink", "--share", name, env={"CDC_SPARK__HTTP_ADDRESS": http})


def change(shop: Pipeline, status: str, *tables: str) -> str:
    """Change the row of some tables; the LSN to wait for."""
    shop.sql(*(f"update {table} set status = '{status}'" for table in tables or TABLES))
    with psycopg.connect(shop.dsn) as session:
        row = session.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


def shown(shop: Pipeline, lsn: str, *, timeout_s: float = START_S) -> None:
    """Each store shows the LSN, and what the source has."""
    for store in STORES:
        done = shop.cdc("wait", store, lsn, "--timeout", str(timeout_s), timeout_s=2 * timeout_s)
        assert done.returncode == 0, done.stderr
    done = shop.cdc("verify", "--timeout", "60", timeout_s=300)
    assert done.returncode == 0, done.stderr + done.stdout


def status(shop: Pipeline) -> dict[str, Any]:
    """As it is once every part answers: on a busy machine one may not, in time."""
    found: dict[str, Any] = {"unknown": True}
    while found["unknown"]:
        found = orjson.loads(shop.cdc("status", "--json").stdout)
    return found


def looks(shop: Pipeline, wanted: Sequence[str]) -> bool:
    """Whether all stores answer, and the shares of each are in these states."""
    sinks = status(shop)["sinks"]
    return all([one["state"] for one in sinks[store]["shares"]] == list(wanted) for store in STORES)


def test_one_of_two_applications_and_others_that_do_not_fit(shop: Pipeline, spawn: Spawn) -> None:
    ports = free_ports(["kafka"])
    at = f"127.0.0.1:{ports['kafka']}"
    running = spawn("cdc", "--config", shop.config, "run")
    one = application(spawn, shop, 1, 2, http=at)
    # Half of it is nothing, and everybody says whose fault that is.
    wait_until(partial(looks, shop, ("consistent", "empty")), START_S, lambda: one.stderr[-3000:])
    found = status(shop)
    for store in STORES:
        assert found["sinks"][store]["state"] == "filling"
        sentence = f"{store}: the share 2/2 has not begun: cdc sink {store} --share 2/2 feeds its tables"
        assert sentence in found["passed"]
    late = shop.cdc("wait", "cache", change(shop, "a"), "--timeout", "1")
    assert_refused(late, Exit.DIFFERENCE, "its share 2/2 has not begun")
    two = application(spawn, shop, 2, 2)
    shown(shop, change(shop, "b"))
    page = shop.cdc("status").stdout
    assert len(re.findall(r"^  [12]/2 +[0-9A-F]+/[0-9A-F]+ ", page, re.MULTILINE)) == 2 * len(STORES), page
    assert Shown(at, f"{shop.document['name']} 1/2").value("cdc_sink_up", sink="cache") == 1
    printed = shop.good("events", "--from-beginning", "--until-caught-up", "--json")
    assert {orjson.loads(line)["table"] for line in printed.splitlines()} == {f"public.{table}" for table in TABLES}

    wrong = application(spawn, shop, 1, 3)
    assert wrong.wait(START_S) == Exit.ACTIVE, wrong.stderr
    assert "fed in 2 shares, and this application is share 1/3" in wrong.stderr
    whole = application(spawn, shop, 1, 1)
    assert whole.wait(START_S) == Exit.ACTIVE, whole.stderr
    assert_refused(shop.cdc("rebuild", "cache"), Exit.CONFIG, "is fed in 2 shares", "cdc share cache 1")
    # The same share twice: one of both ends, and the tables are fed on.
    same = application(spawn, shop, 1, 2)
    wait_until(partial(one_ended, shop, (one, same)), START_S)
    shown(shop, change(shop, "c"))
    left = same if one.process.poll() is not None else one
    assert [each.terminate(120) for each in (left, two)] == [Exit.OK, Exit.OK]
    assert running.terminate(60) == Exit.OK


def one_ended(shop: Pipeline, applications: Sequence[Spawned]) -> bool:
    change(shop, "again")
    ended = [one.process.poll() for one in applications if one.process.poll() is not None]
    assert ended in ([], [Exit.ACTIVE]), ended
    return bool(ended)


def test_one_of_two_applications_dies_and_commands_go_on(shop: Pipeline, spawn: Spawn) -> None:
    both = shop.cdc("sink", "--views", "--share", "1/2")
    assert_refused(both, Exit.USAGE, "--views keeps the views of all tables", "cdc view run keeps them")
    shop.document["limits"] = {"lag": "20s"}
    running = spawn("cdc", "--config", shop.config, "run")
    one, two = (application(spawn, shop, number, 2) for number in (1, 2))
    shown(shop, change(shop, "b"))
    two.kill()
    others = of_share(2, 2)
    lsn = change(shop, "c")
    late = shop.cdc("wait", "cache", lsn, "--timeout", "10")
    assert_refused(late, Exit.DIFFERENCE, "its share 2/2 is the last")
    said = "behind, by its share 2/2; the limit is 20.0 s"
    wait_until(lambda: sum(said in words for words in status(shop)["passed"]) == len(STORES), 120)
    # A record that a store refuses waits with the share of its table, and is retried by it.
    two = application(spawn, shop, 2, 2)
    shown(shop, lsn)
    shop.sql(f"alter table replica.{others[0]} add constraint mine check (status <> 'bad')")
    change(shop, "bad", others[0])
    wait_until(lambda: status(shop)["sinks"]["reports"]["parked"] == 1, 120, lambda: two.stderr[-3000:])
    shop.sql(f"alter table replica.{others[0]} drop constraint mine")
    shop.good("dead", "retry", "--sink", "reports")
    wait_until(lambda: status(shop)["sinks"]["reports"]["parked"] == 0, 120, lambda: two.stderr[-3000:])
    # A table that comes while both run is fed by the share that it belongs to.
    shop.sql("create table t10 (id int primary key, status text)", "insert into t10 values (1, 'new')")
    shop.good("init")
    wait_until(lambda: "public.t10" in shop.cdc("verify", "--timeout", "60", "--json", timeout_s=300).stdout, 240)
    shop.sql("delete from t0")
    shown(shop, change(shop, "d"))
    gone = shop.cdc("forget", "t0", "1", "--json")
    assert set(STORES) <= set(orjson.loads(gone.stdout)["answers"]), gone.stdout
    assert [each.terminate(120) for each in (one, two)] == [Exit.OK, Exit.OK]
    assert running.terminate(60) == Exit.OK


STEPS = ("share_after_note:1", "share_after_note:2", "share_after_switch", "share_after_tidying:1")


def moved(shop: Pipeline, count: int, *steps: str) -> None:
    """Another number of shares for each store, the command killed at some steps before it ends."""
    for step in steps:
        for store in STORES:
            done = shop.cdc("share", store, str(count), CDC_CRASH_AT=step)
            assert done.returncode in (CRASH_EXIT, Exit.OK), done.stderr
        found = status(shop)["sinks"]
        assert {found[store]["state"] for store in STORES} <= {"consistent", "bootstrapping"}, found
    for store in STORES:
        done = shop.cdc("share", store, str(count))
        assert done.returncode == Exit.OK, done.stderr
        assert f"--share {count}/{count}" in done.stderr if count > 1 else f"cdc sink {store};" in done.stderr


def last_words(one: Spawned) -> str:
    return one.stderr[-3000:]


def said(one: Spawned, words: str) -> bool:
    return words in one.stderr


@pytest.mark.long
def test_h371_moves_with_everything_killed(shop: Pipeline, spawn: Spawn) -> None:
    """From one application to three, to two and back, each killed in the middle of its work."""
    running = spawn("cdc", "--config", shop.config, "run")
    going = [application(spawn, shop, 1, 1)]
    shown(shop, change(shop, "a"))
    for count, steps in ((3, STEPS), (2, STEPS[1:3]), (1, STEPS[2:])):
        change(shop, f"before {count}")
        for one in going:
            one.kill()
        moved(shop, count, *steps)
        numbers = range(1, count + 1)
        start = [application(spawn, shop, n, count) for n in numbers]
        change(shop, f"to {count}")
        for one in start:
            wait_until(partial(said, one, "sink_started"), START_S, partial(last_words, one))
        for one in start:
            one.kill()
        going = [application(spawn, shop, n, count) for n in numbers]
        shown(shop, change(shop, f"after {count}"))
    # Another number while they run: what runs ends, and says why.
    moved(shop, 2)
    assert going[0].wait(START_S) == Exit.ACTIVE, going[0].stderr
    assert "the store is fed in 2 shares, and this application feeds all tables" in going[0].stderr
    assert running.terminate(60) == Exit.OK
