"""A view whose text was changed: another generation beside the published one, and then in its place in a store."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event

import orjson
import psycopg
import pytest

from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Exit
from connectors.kafka.admin import TopicAdmin
from sinks.contract.kinds import load_settings
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
NAMED = "select o.id, c.name from orders o left join customers c on c.id = o.customer_id"
STEPS = ("generation_noted", "generation_built", "generation_known", "generation_published", "generation_tidied")


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    (tmp_path / "named.sql").write_text(NAMED, encoding="utf-8")
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "spark": {"http_address": "", "checkpoint": str(tmp_path / "checkpoints")},
        "views": {"named": {"sql": str(tmp_path / "named.sql"), "state": str(tmp_path / "state")}},
        "sinks": {"reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db", "tables": ["view.*"]}},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(
        "create table customers (id int primary key, name text)",
        "create table orders (id int primary key, customer_id int)",
        "insert into customers select g, 'n' || g from generate_series(1, 5) g",
        "insert into orders select g, 1 + g % 5 from generate_series(1, 50) g",
    )
    return made


def written(pipeline: Pipeline, text: str) -> None:
    (pipeline.folder / "named.sql").write_text(text, encoding="utf-8")


def started(pipeline: Pipeline, spawn: Spawn) -> tuple[Spawned, Spawned]:
    """A pipeline whose view shows in the store: its runner and its sink."""
    pipeline.begin()
    spawn("cdc", "--config", pipeline.config, "run")
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")
    sink = spawn("cdc", "--config", pipeline.config, "sink")
    wait_until(lambda: reported(pipeline).get(1) == ("n2",), 120, lambda: sink.stderr[-2000:] + runner.stderr[-2000:])
    return runner, sink


def reported(pipeline: Pipeline, columns: str = "name") -> dict[int, tuple[object, ...]]:
    """The documents of the store."""
    with closing(sqlite3.connect(pipeline.folder / "reports.db")) as store:
        try:
            found = store.execute(f"select id, {columns} from view_named_live").fetchall()
        except sqlite3.OperationalError:
            return {}
    return {int(row[0]): tuple(row[1:]) for row in found}


def verified(pipeline: Pipeline, runner: Spawned) -> None:
    def clean() -> bool:
        return pipeline.cdc("verify", "reports", "view.named", "--timeout", "300").returncode == 0

    wait_until(clean, 180, lambda: runner.stderr[-2000:])


def test_v7_a_changed_text_takes_the_place_of_the_former(pipeline: Pipeline, spawn: Spawn) -> None:
    former, sink = started(pipeline, spawn)
    written(pipeline, NAMED + " where o.id > 10")
    refused = pipeline.cdc("view", "run", "--until-caught-up")
    assert_refused(refused, Exit.CONFIG, "is published from another text", "cdc view rebuild named")
    pipeline.sql("update customers set name = 'moved' where id = 2")
    wait_until(lambda: reported(pipeline).get(1) == ("moved",), 60, lambda: former.stderr[-2000:])
    done = pipeline.cdc("view", "rebuild", "named", timeout_s=300)
    assert done.returncode == Exit.OK, done.stderr
    assert "generation 2 is built beside generation 1" in done.stderr
    assert "40 documents published by the text of now" in done.stderr
    pipeline.sql("update customers set name = 'last' where id = 2")
    wait_until(lambda: reported(pipeline).get(11) == ("last",), 120, lambda: former.stderr[-2000:])
    assert "generation 2 of the view named is published now" in former.stderr
    wait_until(lambda: sorted(reported(pipeline)) == list(range(11, 51)), 60, lambda: sink.stderr[-2000:])
    verified(pipeline, former)
    (listed,) = map(orjson.loads, pipeline.good("view", "list", "--json").splitlines())
    assert (listed["generation"], listed["coming"]) == (2, None)
    assert topics_of_the_view(pipeline) == [1, 2]
    assert "named.1 deleted" in pipeline.cdc("view", "drop", "named", "--former").stderr
    assert topics_of_the_view(pipeline) == [2]
    assert_refused(pipeline.cdc("view", "drop", "named", "--former"), Exit.USAGE, "no former generation", "view list")
    pipeline.sql("update customers set name = 'after' where id = 2")
    wait_until(lambda: reported(pipeline).get(11) == ("after",), 120, lambda: sink.stderr[-2000:])
    assert sink.process.poll() is None, sink.stderr[-2000:]
    assert former.terminate() == Exit.OK, former.stderr[-2000:]
    assert "its state is thrown away" in pipeline.cdc("view", "rebuild", "named").stderr


def test_v7_h410_a_rebuild_killed_at_each_step_goes_on(pipeline: Pipeline, spawn: Spawn) -> None:
    former, sink = started(pipeline, spawn)
    written(pipeline, "select o.id, c.name, o.customer_id as c from orders o join customers c on c.id = o.customer_id")
    for step in STEPS:
        crashed = pipeline.cdc("view", "rebuild", "named", timeout_s=300, CDC_CRASH_AT=step)
        assert crashed.returncode == CRASH_EXIT, f"{step}: {crashed.stderr}"
    pipeline.sql("delete from orders where id = 7", "update customers set name = 'moved' where id = 2")
    done = pipeline.cdc("view", "rebuild", "named", timeout_s=300)
    assert done.returncode == Exit.OK, done.stderr
    wait_until(lambda: reported(pipeline, "name, c").get(1) == ("moved", 2), 120, lambda: sink.stderr[-2000:])
    verified(pipeline, former)
    assert sorted(reported(pipeline)) == [number for number in range(1, 51) if number != 7]
    assert topics_of_the_view(pipeline) == [1, 2]


def published(pipeline: Pipeline, spawn: Spawn) -> None:
    """Its view is in its topic. No runner and no sink runs."""
    pipeline.begin()
    spawn("cdc", "--config", pipeline.config, "run")
    pipeline.good("view", "run", "--until-caught-up")


def test_h553_a_damaged_state_of_a_rebuild_is_made_anew(pipeline: Pipeline, spawn: Spawn) -> None:
    published(pipeline, spawn)
    written(pipeline, NAMED + " where o.id > 10")
    crashed = pipeline.cdc("view", "rebuild", "named", timeout_s=300, CDC_CRASH_AT="generation_known")
    assert crashed.returncode == CRASH_EXIT, crashed.stderr
    (state,) = (pipeline.folder / "state").glob("*.named.2.sqlite")
    Path(f"{state}-wal").unlink(missing_ok=True)
    state.write_bytes(b"x" * 8_192)
    done = pipeline.cdc("view", "rebuild", "named", timeout_s=300)
    assert done.returncode == Exit.OK, done.stderr
    assert "file is not a database" in done.stderr
    assert "the state of generation 2 removed" in done.stderr
    assert "40 documents published by the text of now" in done.stderr
    state.write_bytes(b"")
    assert_refused(pipeline.cdc("view", "show", "named", "11"), Exit.USAGE, "is not built yet", "cdc view run")


def test_v7_another_text_meanwhile_is_built_instead(pipeline: Pipeline, spawn: Spawn) -> None:
    published(pipeline, spawn)
    written(pipeline, NAMED + " where o.id > 10")
    crashed = pipeline.cdc("view", "rebuild", "named", timeout_s=300, CDC_CRASH_AT="generation_built")
    assert crashed.returncode == CRASH_EXIT, crashed.stderr
    (listed,) = map(orjson.loads, pipeline.good("view", "list", "--json").splitlines())
    assert (listed["generation"], listed["coming"]) == (1, 2)
    written(pipeline, NAMED + " where o.id > 20")
    done = pipeline.cdc("view", "rebuild", "named", timeout_s=300)
    assert done.returncode == Exit.OK, done.stderr
    assert "30 documents published by the text of now" in done.stderr
    assert topics_of_the_view(pipeline) == [1, 3]
    written(pipeline, NAMED + " where o.id > 30")
    again = pipeline.cdc("view", "rebuild", "named", timeout_s=300)
    assert again.returncode == Exit.OK, again.stderr
    assert "20 documents published by the text of now" in again.stderr
    assert topics_of_the_view(pipeline) == [3, 4]
    pipeline.document["sinks"] = {}
    pipeline.good("view", "drop", "named", "--yes")
    wait_until(lambda: topics_of_the_view(pipeline) == [], 10, "a broker names a deleted topic for a moment")


def test_v7_a_rebuild_ends_beside_writes_and_a_parked_row(pipeline: Pipeline, spawn: Spawn) -> None:
    published(pipeline, spawn)
    former = spawn("cdc", "--config", pipeline.config, "view", "run")
    pipeline.sql("update customers set name = 'kept' where id = 2")
    shows = ("view", "show", "named", "1")
    wait_until(lambda: '"kept"' in pipeline.cdc(*shows).stdout, 60, lambda: former.stderr[-2000:])
    pipeline.document["views"]["named"]["largest"] = "1kB"
    text = "repeat(c.name, case when o.id = 7 then 2000 else 1 end)"
    written(pipeline, NAMED.replace("c.name", f"{text} as name"))
    ended = Event()

    def write() -> None:
        with psycopg.connect(pipeline.dsn, autocommit=True) as source:
            while not ended.is_set():
                source.execute("update customers set name = 'n' || id where id = 1")

    with ThreadPoolExecutor(1) as beside:
        writing = beside.submit(write)
        try:
            done = pipeline.cdc("view", "rebuild", "named", timeout_s=300)
        finally:
            ended.set()
        writing.result()
    assert done.returncode == Exit.OK, done.stderr
    assert "1 documents are parked" in done.stderr
    events = pipeline.good("events", "view.named", "--json", "--from-beginning", "--until-caught-up")
    shown = {one["key"] for one in map(orjson.loads, events.splitlines())} - {""}  # of the sweep mark
    assert shown == {str(number) for number in range(1, 51) if number != 7}
    assert former.process.poll() is None, former.stderr[-2000:]


def topics_of_the_view(pipeline: Pipeline) -> list[int]:
    settings = load_settings(pipeline.config, {})
    start = f"{settings.name}.view.named."
    return sorted(int(name.removeprefix(start)) for name in TopicAdmin(settings.log).names() if name.startswith(start))
