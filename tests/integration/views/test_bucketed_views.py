"""Views whose state executors keep: the text on Postgres says the same after each fence, on real servers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from cdc.crash import CRASH_EXIT
from cdc.errors import Exit
from cdc.mask_rules import NO_MASKS
from cdc.settings import LogSettings
from cdc.topic import view_topic
from cdc.views.record_rows import view_shape
from cdc.views.view_plan import planned
from connectors.kafka.compacted import read_range
from connectors.postgres.encoder import compile_table
from connectors.view_topics import known_views
from sinks.sections import load_settings
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import RunCdc, Spawn, Spawned
from tests.standalone_cluster import LIGHT_JVM, bare_cluster, bare_python_in
from tests.views_against import lines, shapes_of
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
START_S = 240.0
SHOP = (
    "create table customers (id int primary key, name text, city text)",
    "create table orders (id bigint primary key, customer_id int, status text, placed_at timestamptz)",
    "create table products (sku numeric(9, 2) primary key, title text)",
    "create table order_lines (id bigint primary key, order_id bigint, sku numeric, qty int, price numeric)",
    "insert into customers select g, 'n' || g, nullif('c' || g % 5, 'c0') from generate_series(1, 20) g",
    "insert into products select g, 't' || g from generate_series(1, 20) g",
    "insert into orders select g, nullif(g % 22, 0), (array['open', 'draft', 'paid'])[1 + g % 3],"
    " timestamptz '2024-01-01' + g * interval '1 hour 1.5 seconds' from generate_series(1, 300) g",
    "insert into order_lines select g, 1 + g % 310, g % 24, g % 4, g * 1.10 from generate_series(1, 900) g",
)
SQL = """
select o.id, o.status, o.placed_at, json_build_object('id', c.id, 'name', c.name, 'city', c.city) as customer,
  (select json_agg(json_build_object('id', l.id, 'sku', p.sku, 'title', p.title, 'qty', l.qty) order by l.id)
     from order_lines l left join products p on p.sku = l.sku where l.order_id = o.id) as lines,
  (select sum(l.qty * l.price) from order_lines l where l.order_id = o.id) as total,
  (select count(*) from orders x where x.customer_id = o.customer_id and x.id <= o.id) as nth
from orders o left join customers c on c.id = o.customer_id where o.status <> 'draft'
"""


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    (tmp_path / "search.sql").write_text(SQL, encoding="utf-8")
    document: dict[str, Any] = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "spark": {"http_address": "", "master": "local[2]", "checkpoint": str(tmp_path / "checkpoints")},
        "views": {
            "search": {
                "sql": str(tmp_path / "search.sql"),
                "state": str(tmp_path / "state"),
                "engine": "spark",
                "buckets": 8,
            }
        },
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(*SHOP)
    return made


def shown(pipeline: Pipeline) -> dict[bytes, Any]:
    """The rows of the view's topic, by key."""
    name, log = pipeline.document["name"], LogSettings(**pipeline.document["log"])
    topic = view_topic(name, "search", 1)
    found: dict[bytes, Any] = {}
    for partition in range(log.partitions):
        for message in read_range(log, topic, partition):
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            after = None if not isinstance(value, bytes) else orjson.loads(value)["after"]
            found[key] = after
    return {key: after for key, after in found.items() if after is not None}


def expected(dsn: str) -> dict[bytes, Any]:
    """What Postgres says now."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("set timezone to utc")
        plan = planned(SQL.strip(), shapes_of(conn).values())
        encoder = compile_table(view_shape("v", plan, "t"), name="t", database="d", masks=NO_MASKS)
        found = dict(encoder.snapshot_line(line) for line in lines(conn, plan.sql))
    return {key: orjson.loads(value) for key, value in found.items()}


def change(pipeline: Pipeline, chance: random.Random, count: int) -> None:
    """Changes of every table: rows that come, go, move to other parents and change their values."""
    for _ in range(count):
        order, line, customer = chance.randint(1, 320), chance.randint(1, 950), chance.randint(1, 24)
        pipeline.sql(
            chance.choice(
                [
                    f"update orders set customer_id = {customer} where id = {order}",
                    f"update orders set status = 'draft' where id = {order}",
                    f"update orders set status = 'open' where id = {order}",
                    f"delete from orders where id = {order}",
                    f"insert into orders values ({order}, {customer}, 'new', now()) on conflict do nothing",
                    f"update order_lines set order_id = {order}, qty = {chance.randint(0, 5)} where id = {line}",
                    f"update order_lines set sku = {customer}.00 where id = {line}",
                    f"delete from order_lines where id = {line}",
                    f"insert into order_lines values ({line}, {order}, {customer}, 2, 9.5) on conflict do nothing",
                    f"update customers set name = 'x{chance.randint(1, 99)}' where id = {customer}",
                    f"delete from customers where id = {customer}",
                    f"insert into products values ({customer}, 'p') on conflict (sku) do update set title = 'q'",
                ]
            )
        )


def lsn_now(pipeline: Pipeline) -> int:
    """Behind everything that is committed."""
    with psycopg.connect(pipeline.dsn, autocommit=True) as conn:
        found = conn.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert found is not None
    return int(found[0])


def claimed(pipeline: Pipeline) -> int:
    """Up to where the view is true, by its topic. 0 before the first claim."""
    progress = known_views(load_settings(pipeline.config, {})).progress.get("search")
    return 0 if progress is None else progress.lsn


def wait_for(pipeline: Pipeline, runner: Spawned) -> None:
    """Until the view shows everything that is committed now."""
    lsn = lsn_now(pipeline)
    wait_until(lambda: claimed(pipeline) >= lsn, START_S, lambda: runner.stderr[-3000:])


def test_v3_v9_executors_say_what_postgres_says(pipeline: Pipeline, spawn: Spawn) -> None:
    chance = random.Random(1)
    pipeline.good("init")
    pipeline.good("snapshot")
    spawn("cdc", "--config", pipeline.config, "run")
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")
    wait_for(pipeline, runner)
    assert shown(pipeline) == expected(pipeline.dsn)
    for _ in range(3):
        change(pipeline, chance, 40)
        wait_for(pipeline, runner)
        assert shown(pipeline) == expected(pipeline.dsn)
    key, row = min(expected(pipeline.dsn).items())
    assert orjson.loads(pipeline.good("view", "show", "search", key.decode())) == row
    assert runner.terminate(START_S) == Exit.OK, runner.stderr[-3000:]
    kept_by_another_engine(pipeline)


def kept_by_another_engine(pipeline: Pipeline) -> None:
    """H381: a changed engine is refused, until the state that the other one made is thrown away."""
    pipeline.document["views"]["search"]["engine"] = "embedded"
    assert_refused(pipeline.cdc("view", "run", "--until-caught-up"), Exit.CONFIG, "was made by the engine spark")
    pipeline.good("view", "rebuild", "search")
    pipeline.good("view", "run", "--until-caught-up")
    assert shown(pipeline) == expected(pipeline.dsn)


POINTS = (
    "view_before_table:2",
    "view_after_table",
    "view_after_table:3",
    "view_before_manifest:2",
    "view_after_manifest:2",
    "view_staged",
    "view_piece_published",
    "view_published",
    "view_before_manifest:3",
)
"""The places between every two writes of a batch. The first manifest of a run is that of its start."""


@pytest.mark.long
def test_v4_v5_a_runner_killed_between_two_writes_goes_on(pipeline: Pipeline, spawn: Spawn) -> None:
    chance = random.Random(2)
    pipeline.good("init")
    pipeline.good("snapshot")
    spawn("cdc", "--config", pipeline.config, "run")
    for point in POINTS:
        change(pipeline, chance, 15)
        crashed = spawn("cdc", "--config", pipeline.config, "view", "run", env={"CDC_CRASH_AT": point})
        assert crashed.wait(START_S) == CRASH_EXIT, (point, crashed.stderr[-3000:])
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")
    wait_for(pipeline, runner)
    assert shown(pipeline) == expected(pipeline.dsn)
    assert runner.terminate(START_S) == Exit.OK, runner.stderr[-3000:]


@pytest.mark.long
def test_v4_v5_a_cluster_loses_a_worker_and_the_driver(pipeline: Pipeline, spawn: Spawn, tmp_path: Path) -> None:
    chance = random.Random(3)
    pipeline.good("init")
    pipeline.good("snapshot")
    spawn("cdc", "--config", pipeline.config, "run")
    with bare_cluster(tmp_path) as cluster:
        for _ in range(2):
            cluster.add_worker()
        pipeline.document["spark"] |= {
            "master": cluster.url,
            "conf": {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.cores.max": "2"},
        }
        environment = {"PYSPARK_PYTHON": str(bare_python_in(tmp_path)), **LIGHT_JVM}
        command = ("python", "-m", "cdc", "--config", pipeline.config, "view", "run")
        runner = spawn(*command, env=environment)
        wait_for(pipeline, runner)
        assert shown(pipeline) == expected(pipeline.dsn)
        ran = [log for log in cluster.executor_logs() if "Finished task" in log.read_text(encoding="utf-8")]
        assert len(ran) == 2, "both executors had a part in it"
        change(pipeline, chance, 30)
        cluster.kill_worker()
        change(pipeline, chance, 10)
        wait_for(pipeline, runner)
        assert shown(pipeline) == expected(pipeline.dsn)
        runner.kill()
        change(pipeline, chance, 20)
        cluster.add_worker()
        runner = spawn(*command, env=environment)
        wait_for(pipeline, runner)
        assert shown(pipeline) == expected(pipeline.dsn)
        assert runner.terminate(START_S) == Exit.OK, runner.stderr[-3000:]


def test_what_executors_do_not_keep_is_refused_at_check(pipeline: Pipeline) -> None:
    pipeline.good("init")
    pipeline.good("snapshot")
    section = pipeline.document["views"]["search"]
    checked = pipeline.good("view", "check")
    assert "kept by executors" in checked
    section["state"] = "spark:s3://bucket/state"
    assert_refused(pipeline.cdc("view", "check"), Exit.CONFIG, "no place for a state of Spark's", "a folder that")
    section["state"] = "state"
    section["post"] = "tests.view_posts:refuse_one"
    assert_refused(pipeline.cdc("view", "check"), Exit.CONFIG, "search has a function on its documents", "embedded")
    del section["post"]
    Path(section["sql"]).write_text("select o.status, count(*) as n from orders o group by 1", encoding="utf-8")
    assert_refused(pipeline.cdc("view", "check"), Exit.CONFIG, "search has groups", "set [views.search] engine")
