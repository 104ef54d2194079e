"""Tables of a running view that are altered, dropped and published no more, over Postgres and Kafka."""

from __future__ import annotations

from pathlib import Path

import orjson
import psycopg
import pytest

from cdc.process.errors import Exit
from connectors.views.view_topics import ViewsLook, known_views
from sinks.contract.kinds import load_settings
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
TEXTS = {
    "named": "select o.id, json_build_object('n', c.name, 'of', o.customer_id) as c from orders o "
    "left join customers c on c.id = o.customer_id",
    "every": "select * from orders",
    "alone": "select id, name from customers",
    "padded": "select id, code from customers",
}


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    for name, text in TEXTS.items():
        (tmp_path / f"{name}.sql").write_text(text, encoding="utf-8")
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "snapshot": {"watch": "1s"},
        "views": {name: {"sql": str(tmp_path / f"{name}.sql"), "state": str(tmp_path / "state")} for name in TEXTS},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(
        "create table customers (id int primary key, name text, code char(2) default 'x')",
        "create table orders (id int primary key, customer_id int)",
        "insert into customers select g, 'n' || g from generate_series(1, 5) g",
        "insert into orders select g, 1 + g % 5 from generate_series(1, 50) g",
    )
    return made


def started(pipeline: Pipeline, spawn: Spawn) -> Spawned:
    pipeline.begin()
    spawn("cdc", "--config", pipeline.config, "run")
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")
    wait_until(lambda: set(listed(pipeline)) == set(TEXTS), 120, lambda: runner.stderr[-2000:])
    wait_until(lambda: all(v["lsn"] for v in listed(pipeline).values()), 120, lambda: runner.stderr[-2000:])
    return runner


def listed(pipeline: Pipeline) -> dict[str, dict[str, object]]:
    lines = pipeline.good("view", "list", "--json").splitlines()
    return {one["view"]: one for one in map(orjson.loads, lines)}


def held(pipeline: Pipeline, name: str) -> str:
    return str(listed(pipeline)[name]["held"] or "")


def moved(pipeline: Pipeline, name: str, before: dict[str, dict[str, object]]) -> bool:
    """Whether the view claims another LSN."""
    return listed(pipeline)[name]["lsn"] != before[name]["lsn"]


def shown(pipeline: Pipeline, name: str, key: str) -> str:
    return pipeline.good("view", "show", name, key)


def test_h466_a_wider_type_and_a_new_column_at_a_restart(pipeline: Pipeline, spawn: Spawn) -> None:
    runner = started(pipeline, spawn)
    pipeline.sql(
        "alter table orders alter column customer_id type bigint",
        "alter table customers add column note text",
        "update customers set name = 'wide' where id = 2",
        "update orders set customer_id = 3 where id = 7",
    )
    wait_until(lambda: "wide" in shown(pipeline, "named", "1"), 60, lambda: runner.stderr[-2000:])
    wait_until(lambda: not held(pipeline, "named"), 60, lambda: held(pipeline, "named"))
    assert runner.terminate() == 0, runner.stderr[-2000:]
    again = spawn("cdc", "--config", pipeline.config, "view", "run")
    pipeline.sql("update customers set name = 'again' where id = 2")
    wait_until(lambda: "again" in shown(pipeline, "named", "1"), 60, lambda: again.stderr[-2000:])
    wait_until(lambda: "view_stopped" in again.stderr, 30, lambda: again.stderr[-2000:])
    assert "the view every is not as it was published: its column customer_id is of type int8 now" in again.stderr
    assert again.stderr.count("view_stopped") == 1
    pipeline.sql("alter table orders add column note text", "insert into orders values (51, 3, 'x')")
    wait_until(lambda: "again" in shown(pipeline, "named", "6"), 60, lambda: again.stderr[-2000:])
    refused = pipeline.cdc("view", "run", "every", "--until-caught-up")
    assert_refused(refused, Exit.CONFIG, "the column note was added to public.orders", "cdc view rebuild every")
    assert pipeline.cdc("view", "rebuild", "every", timeout_s=300).returncode == Exit.OK
    settings = load_settings(Path(pipeline.config))
    look = ViewsLook(settings)
    assert look.known() == look.known() == known_views(settings)
    look.close()


def test_h474_a_stopped_view_goes_on_when_it_was_rebuilt(pipeline: Pipeline, spawn: Spawn) -> None:
    """Its runner keeps another view meanwhile, so nobody starts it again."""
    runner = started(pipeline, spawn)
    pipeline.sql("alter table orders alter column customer_id type text", "insert into orders values (51, '3')")
    wait_until(lambda: '"view":"every"' in stopped(runner), 60, lambda: runner.stderr[-2000:])
    assert pipeline.cdc("view", "rebuild", "every", timeout_s=300).returncode == Exit.OK
    pipeline.sql("insert into orders values (52, '4')")
    wait_until(lambda: '"4"' in pipeline.cdc("view", "show", "every", "52").stdout, 60, lambda: runner.stderr[-2000:])
    before = listed(pipeline)
    pipeline.sql("insert into orders values (53, '5')")
    wait_until(lambda: moved(pipeline, "every", before), 60, lambda: runner.stderr[-2000:])


def test_h475_a_running_view_shows_the_blanks_of_now(pipeline: Pipeline, spawn: Spawn) -> None:
    runner = started(pipeline, spawn)
    assert '"x "' in shown(pipeline, "padded", "1")
    pipeline.sql("alter table customers alter column code type char(5)")
    wait_until(lambda: '"x    "' in shown(pipeline, "padded", "1"), 60, lambda: runner.stderr[-2000:])
    wait_until(lambda: not held(pipeline, "padded"), 60, lambda: held(pipeline, "padded"))
    assert not stopped(runner)


def stopped(runner: Spawned) -> str:
    """The lines that tell of views that cannot go on."""
    return "\n".join(line for line in runner.stderr.splitlines() if "view_stopped" in line)


def test_h467_no_lsn_is_claimed_before_the_rewritten_rows(pipeline: Pipeline, spawn: Spawn) -> None:
    runner = started(pipeline, spawn)
    with psycopg.connect(pipeline.dsn) as locker:
        locker.execute("alter table customers alter column name type text using name || '!'")
        locker.commit()
        locker.execute("lock table customers in access exclusive mode")  # the reading has to wait
        wait_until(lambda: "read again" in held(pipeline, "named"), 60, lambda: runner.stderr[-2000:])
        before = listed(pipeline)
        pipeline.sql("update orders set customer_id = 4 where id = 50")
        wait_until(lambda: "n4" in shown(pipeline, "named", "50"), 60, lambda: runner.stderr[-2000:])
        wait_until(lambda: moved(pipeline, "every", before), 60, lambda: runner.stderr[-2000:])
        assert not moved(pipeline, "named", before)
        assert not moved(pipeline, "alone", before)
        locker.rollback()
    wait_until(lambda: not held(pipeline, "alone"), 120, lambda: held(pipeline, "alone"))
    assert '"n2!"' in shown(pipeline, "alone", "2")
    wait_until(lambda: moved(pipeline, "alone", before), 60, lambda: runner.stderr[-2000:])
    assert "n4!" in shown(pipeline, "named", "50")


@pytest.mark.parametrize("how", ["drop table customers", "alter publication {p} drop table customers"])
def test_h468_a_table_that_is_gone_is_named(pipeline: Pipeline, spawn: Spawn, how: str) -> None:
    runner = started(pipeline, spawn)
    settings = load_settings(Path(pipeline.config))
    pipeline.sql(how.format(p=settings.publication))
    wait_until(lambda: "public.customers was dropped" in held(pipeline, "named"), 60, lambda: runner.stderr[-2000:])
    wait_until(lambda: "public.customers was dropped" in held(pipeline, "alone"), 60, lambda: runner.stderr[-2000:])
    assert not held(pipeline, "every")
    views = orjson.loads(pipeline.cdc("status", "--json").stdout)["views"]
    assert (views["named"]["state"], views["every"]["state"]) == ("held", "consistent")
