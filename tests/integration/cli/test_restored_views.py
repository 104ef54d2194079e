"""The folder of a view's state, lost or put back older: the view is what Postgres says (compose/RESTORE.md)."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import psycopg
import pytest

from tests.integration.cli.pipeline import Pipeline
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
SQL = "select o.id, c.name from orders o left join customers c on c.id = o.customer_id"


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    (tmp_path / "named.sql").write_text(SQL, encoding="utf-8")
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "spark": {"http_address": ""},
        "views": {"named": {"sql": str(tmp_path / "named.sql"), "state": str(tmp_path / "state")}},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(
        "create table customers (id int primary key, name text)",
        "create table orders (id int primary key, customer_id int)",
        "insert into customers select g, 'n' || g from generate_series(1, 3) g",
        "insert into orders select g, 1 + g % 3 from generate_series(1, 12) g",
    )
    return made


def written(pipeline: Pipeline, capture: Spawned, *statements: str) -> None:
    """Commit, and wait until the log has it."""
    pipeline.sql(*statements)
    with psycopg.connect(pipeline.dsn, autocommit=True) as session:
        [[fence]] = session.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchall()
        held = "select confirmed_flush_lsn - '0/0' from pg_replication_slots where database = current_database()"
        wait_until(lambda: session.execute(held).fetchall()[0][0] >= fence, 60, lambda: capture.stderr)


def documents(pipeline: Pipeline) -> dict[str, str]:
    """The documents that the view's topic gives, the newest of each key."""
    found: dict[str, str] = {}
    events = pipeline.good("events", "view.named", "--json", "--from-beginning", "--until-caught-up")
    for one in map(orjson.loads, events.splitlines()):
        if one["op"] == "delete":
            found.pop(one["key"], None)
        elif one["key"]:  # not of the sweep mark
            found[one["key"]] = one["after"]["name"]
    return found


def expected(pipeline: Pipeline) -> dict[str, str]:
    with psycopg.connect(pipeline.dsn) as session:
        return {str(key): name for key, name in session.execute(SQL.encode()).fetchall()}


def test_a_view_s_state_lost_or_put_back_is_made_right(pipeline: Pipeline, spawn: Spawn) -> None:
    state, kept = pipeline.folder / "state", pipeline.folder / "kept"
    pipeline.begin()
    capture = spawn("cdc", "--config", pipeline.config, "run")
    run = ("view", "run", "--until-caught-up")
    pipeline.good(*run)
    assert list(state.rglob("*.sqlite"))
    shutil.copytree(state, kept)
    written(pipeline, capture, "update customers set name = 'moved' where id = 1", "delete from orders where id = 2")
    pipeline.good(*run)
    assert documents(pipeline) == expected(pipeline)
    written(pipeline, capture, "insert into orders values (13, 1)", "delete from orders where id = 3")
    assert documents(pipeline) != expected(pipeline)
    shutil.rmtree(state)
    kept.rename(state)
    pipeline.good(*run)
    assert documents(pipeline) == expected(pipeline)
    written(pipeline, capture, "delete from orders where id = 4")
    shutil.rmtree(state)
    pipeline.good(*run)
    assert documents(pipeline) == expected(pipeline)
    assert capture.terminate() == 0, capture.stderr
