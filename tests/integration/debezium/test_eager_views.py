"""Views over topics that Debezium fills: the runner on a real Kafka Connect, beside the text run by the database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from cdc.errors import Exit
from cdc.settings import Settings, parse
from connectors.connect.connector import Connector
from connectors.kafka.admin import TopicAdmin
from tests.conftest import Stack
from tests.integration.debezium.conftest import Pipeline
from tests.integration.debezium.following import restless
from tests.integration.debezium.mariadb import SKIPPED, MariaDb
from tests.integration.debezium.test_resets import drop_slot
from tests.integration.debezium.test_stores import SINK_S, cached
from tests.programs import RunCdc, Spawn, Spawned
from tests.settings_file import write_settings
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
SQL = """
select a.id, a.v, a.n, (select json_agg(json_build_object('id', b.id, 'v', b.v) order by b.id) from b where b.id = a.id)
 as bs, (select sum(x.n) from a x where x.v = a.v) as same from a"""
ARRIVES_S = 60.0


class Views:
    """A pipeline with one view, and what is published of it."""

    def __init__(self, pipeline: Pipeline, folder: Path, run_cdc: RunCdc) -> None:
        self.pipeline = pipeline
        self.sql = folder / "named.sql"
        self.state = folder / "state"
        self.run_cdc = run_cdc
        self.sql.write_text(SQL, encoding="utf-8")
        self.folder = folder
        self.section = {"sql": str(self.sql), "state": str(self.state), "consistency": "eager"}
        self.config = pipeline.toml(folder, views__named=self.section)

    def cdc(self, *arguments: str) -> Any:
        return self.run_cdc("--config", self.config, *arguments)

    def good(self, *arguments: str) -> str:
        done = self.cdc(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    def records(self) -> list[Any]:
        """Every record of the view's topic, partition by partition."""
        return self.pipeline.records("view.named.1")

    def shown(self) -> dict[int, Any]:
        """The newest document of each key, less what sweep marks take."""
        found: dict[int, tuple[int, Any]] = {}
        floor = 0
        for key, value in self.records():
            if value is None:
                continue
            if "sweep" in value:
                floor = max(floor, int(value["sweep"]["floor"], 16))
                continue
            source = value["source"]
            pos = int(source["lsn"])
            assert pos >= found.get(key["id"], (0, None))[0], "versions of a key grow"
            found[key["id"]] = pos, value["after"]
        lowest = floor >> 32 & ((1 << 64) - 1)
        return {key: row for key, (pos, row) in found.items() if row is not None and pos >= lowest}

    def wanted(self) -> dict[int, Any]:
        """The same by Postgres."""
        query = f"select row_to_json(q)::text from ({SQL}) q"
        rows = [orjson.loads(row) for (row,) in self.pipeline.session.execute(query.encode())]
        return {row["id"]: row for row in rows}

    def until_more(self, runner: Spawned) -> None:
        before = len(self.records())

        def more() -> bool:
            assert runner.process.poll() is None, runner.stderr[-3000:]
            return len(self.records()) > before + 20

        wait_until(more, ARRIVES_S, lambda: runner.stderr[-3000:])

    def until_equal(self, runner: Spawned) -> None:
        def equal() -> bool:
            assert runner.process.poll() is None, runner.stderr[-3000:]
            shown = {key: values_of(row) for key, row in self.shown().items()}
            assert shown == {key: values_of(row) for key, row in self.wanted().items()}
            return True

        wait_until(equal, ARRIVES_S, lambda: runner.stderr[-3000:])


def values_of(row: Any) -> Any:
    """JSON by its value: numerics are text in the one and numbers in the other."""
    read = {
        name: orjson.loads(value) if name == "bs" and isinstance(value, str) else value for name, value in row.items()
    }
    return {
        name: float(value) if name in ("n", "same") and value is not None else value for name, value in read.items()
    }


@pytest.fixture
def views(pipeline: Pipeline, tmp_path: Path, run_cdc: RunCdc) -> Views:
    return Views(pipeline, tmp_path, run_cdc)


def test_h198_an_eager_view_follows_debeziums_topics(views: Views, spawn: Spawn) -> None:
    pipeline = views.pipeline
    pipeline.run(
        "alter table a alter v set storage external",
        "insert into a select i, 's' || i % 7, i from generate_series(1, 40) i",
        "insert into b select i, 'b' || i from generate_series(1, 30) i",
    )
    views.good("connect", "deploy")
    pipeline.arrived("public.b", 30)
    checked = orjson.loads(views.good("view", "check", "--json"))
    assert checked["consistency"] == "eager"
    runner = spawn("cdc", "--config", views.config, "view", "run")
    views.until_equal(runner)

    big = "x" * 5000
    pipeline.run(
        f"update a set v = '{big}' where id = 7",
        "update a set n = 77 where id = 7",
        "delete from b where id = 3",
        "update a set id = 100 where id = 9",
        "begin; insert into b values (100, 'moved'); update a set v = 'one' where id = 1; commit",
    )
    views.until_equal(runner)
    assert views.shown()[7]["v"] == big

    # Its state is lost: the versions go on above those that stores have.
    assert runner.terminate() == 0, runner.stderr
    for file in views.state.iterdir():
        file.unlink()
    # Of an old record without a value that did not change nobody knows that value.
    pipeline.run(
        "delete from a where id = 2", "update b set v = 'late' where id = 4", "update a set v = 'x' where id = 7"
    )
    runner = spawn("cdc", "--config", views.config, "view", "run")
    views.until_equal(runner)
    assert runner.terminate() == 0, runner.stderr
    refused = views.cdc("wait", "cache", "0/1", "--table", "view.named")
    assert refused.returncode == Exit.USAGE
    assert "the view named is eager, so no LSN of it can be waited for" in refused.stderr


def test_h198_runners_killed_under_load_end_right(views: Views, database: str, spawn: Spawn) -> None:
    pipeline = views.pipeline
    pipeline.run("insert into b select i, 'b' || i from generate_series(1, 40) i")
    views.good("connect", "deploy")
    pipeline.arrived("public.b", 40)
    with restless(database):
        for number in range(4):
            runner = spawn("cdc", "--config", views.config, "view", "run")
            views.until_more(runner)
            runner.process.kill()
            runner.process.wait()
            if number == 1:
                for file in views.state.iterdir():
                    file.unlink()
    runner = spawn("cdc", "--config", views.config, "view", "run")
    views.until_equal(runner)
    assert runner.terminate() == 0, runner.stderr


def test_h199_a_reading_that_is_cut_short_leaves_no_phantoms(
    views: Views, stack: Stack, database: str, spawn: Spawn
) -> None:
    pipeline = views.pipeline
    pipeline.run("insert into a select i, 's' || i, i from generate_series(1, 20000) i")
    # Late, so that the next table is locked before it is read.
    pipeline.document["debezium"]["options"] |= {"snapshot.delay.ms": "20000"}
    views.config = pipeline.toml(views.folder, views__named=views.section)
    views.good("connect", "deploy")
    topic = f"{pipeline.settings().name}.public.a"
    log = TopicAdmin(pipeline.settings().log)
    with psycopg.connect(database) as holding:
        holding.execute("lock table b in access exclusive mode")
        assert not sum(log.end_offsets({topic: 2})[topic].values()), "the lock came late"
        wait_until(lambda: sum(log.end_offsets({topic: 2})[topic].values()) > 500, 60, "the snapshot has begun")
        stack.stop_part("connect", kill=True)
    pipeline.run("delete from a where id % 2 = 0")
    slot = pipeline.connector().wanted()["slot.name"]
    wait_until(lambda: drop_slot(pipeline, slot), 30, "the slot is free")
    stack.start_part("connect")
    runner = spawn("cdc", "--config", views.config, "view", "run")
    views.until_equal(runner)
    assert "view_reads_again" in runner.stderr
    assert runner.terminate() == 0, runner.stderr
    # The catalog gave the types of an empty table, and now its records do: it is the same view.
    pipeline.run("insert into b values (1, 'first')")
    pipeline.arrived("public.b", 1)
    views.good("view", "run", "--until-caught-up")
    assert values_of(views.shown()[1])["bs"] == [{"id": 1, "v": "first"}]


def test_h199_stores_show_an_eager_view_across_epochs(
    views: Views, redis_url: str, run_cdc: RunCdc, spawn: Spawn
) -> None:
    pipeline = views.pipeline
    pipeline.run(
        "insert into a select i, 's' || i % 7, i from generate_series(1, 20) i",
        "insert into b select i, 'b' || i from generate_series(1, 20) i",
    )
    views.config = pipeline.toml(
        views.folder,
        views__named=views.section,
        sinks__cache={"kind": "redis", "url": redis_url, "tables": ["public.*", "view.named"]},
        spark={"master": "local[1]", "checkpoint": str(views.folder / "checkpoints"), "http_address": ""},
    )
    views.good("connect", "deploy")
    pipeline.arrived("public.b", 20)
    runner = spawn("cdc", "--config", views.config, "view", "run")
    sink = spawn("cdc", "--config", views.config, "sink")
    name = pipeline.settings().name

    def shows() -> bool:
        assert sink.process.poll() is None, sink.stderr
        assert runner.process.poll() is None, runner.stderr
        held = {row["id"]: values_of(row) for row in cached(redis_url, name, "view.named").values()}
        assert held == {key: values_of(row) for key, row in views.wanted().items()}
        return True

    def verified() -> None:
        done = run_cdc("--config", views.config, "verify", "--timeout", "150", "--json", timeout_s=2 * SINK_S)
        assert done.returncode == 0, done.stdout + done.stderr + sink.stderr[-3000:]
        report = orjson.loads(done.stdout)
        compared = {one["table"]: one["source_rows"] for one in report["tables"]}
        assert (report["differences"], report["undecided"]) == (0, 0)
        assert compared["view.named"] == len(views.wanted())

    wait_until(shows, SINK_S, lambda: runner.stderr[-2000:] + sink.stderr[-2000:])
    pipeline.run("update a set n = n + 1 where id > 10", "delete from b where id = 1")
    wait_until(shows, SINK_S, lambda: runner.stderr[-2000:] + sink.stderr[-2000:])
    verified()
    status = orjson.loads(views.cdc("status", "--json").stdout)
    assert status["views"]["named"]["state"] == "consistent"
    assert status["sinks"]["cache"]["held"] == {}, "its LSN speaks for the view, too"

    # The slot is lost, and no record tells of what goes meanwhile.
    connector = pipeline.connector()
    connector.stop()
    pipeline.run("delete from a where id <= 5", "delete from b where id > 15")
    slot = connector.wanted()["slot.name"]
    wait_until(lambda: drop_slot(pipeline, slot), 30, "the slot is free")
    views.good("connect", "offsets", "--reset", "--yes")
    views.good("connect", "resume")
    wait_until(shows, SINK_S, lambda: runner.stderr[-2000:] + sink.stderr[-2000:])
    verified()
    assert runner.terminate() == 0, runner.stderr
    assert sink.terminate() == 0, sink.stderr


OF_SHOP = """select o.id, o.status, o.total * 2 as twice, o.big, o.at, o.d, o.flag, (select count(*) from orders x
  where x.status = o.status) as same, (select json_agg(n.body order by n.id) from notes n where n.order_id = o.id)
  as notes from orders o"""


TIMES = """select o.id, o.t from orders o"""


@SKIPPED
def test_h200_an_eager_view_over_a_mariadb(
    mariadb: MariaDb, shop: Settings, redis_url: str, run_cdc: RunCdc, spawn: Spawn, tmp_path: Path
) -> None:
    mariadb.run(
        "use shop; create table notes (id int primary key auto_increment, order_id int, body varchar(50)); "
        "insert into notes (order_id, body) values (1, 'first'), (1, 'second'), (2, 'other')"
    )
    text = tmp_path / "shop.sql"
    text.write_text(OF_SHOP, encoding="utf-8")
    document = shop.model_dump(mode="json", exclude_unset=True)
    document["source"]["tables"] = ["shop.orders", "shop.notes"]
    (tmp_path / "times.sql").write_text(TIMES, encoding="utf-8")
    common = {"state": str(tmp_path / "state"), "search_path": ["shop"], "consistency": "eager"}
    document["views"] = {
        "shown": {"sql": str(text), **common},
        "times": {"sql": str(tmp_path / "times.sql"), **common},
    }
    document["sinks"] = {"cache": {"kind": "redis", "url": redis_url, "tables": ["shop.*", "view.shown"]}}
    document["spark"] = {"master": "local[1]", "checkpoint": str(tmp_path / "checkpoints"), "http_address": ""}
    config = write_settings(tmp_path, document)
    assert Connector(parse(document)).deploy().status.runs

    def good(*arguments: str) -> str:
        done = run_cdc("--config", config, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    checked = wait_until(lambda: good("view", "check"), 60)
    assert "eager: cdc verify does not compare it" in checked
    runner = spawn("cdc", "--config", config, "view", "run")

    def document_of(key: int) -> Any:
        assert runner.process.poll() is None, runner.stderr[-3000:]
        return orjson.loads(good("view", "show", "shown", str(key)))

    # MariaDB has a time of -101 hours. Postgres has none, so nothing is said of that row.
    wait_until(lambda: "document_parked" in runner.stderr or None, 60, lambda: runner.stderr[-3000:])
    first = wait_until(lambda: document_of(1), 60, lambda: runner.stderr[-3000:])
    assert first == {
        "id": 1,
        "status": "open",
        "twice": "25.00",
        "big": "18446744073709551615",
        "at": "2024-01-02T03:04:05.678901Z",
        "d": "2024-01-02Z",
        "flag": 1,
        "same": 1,
        "notes": '["first", "second"]',
    }
    mariadb.run(
        "use shop; begin; update orders set status = 'paid', total = 3 where id = 1; delete from notes where id = 1; "
        "insert into orders (status) values ('paid'); commit; flush binary logs; update notes set order_id = 1 "
        "where id = 3; delete from orders where id = 2"
    )

    def changed() -> bool:
        found = document_of(1)
        assert (found["status"], found["twice"], found["same"]) == ("paid", "6.00", 2)
        assert found["notes"] == '["second", "other"]'
        assert "has no document 2" in run_cdc("--config", config, "view", "show", "shown", "2").stderr
        return True

    wait_until(changed, 60, lambda: runner.stderr[-3000:])
    listed = good("view", "list")
    assert "eager, of a source without LSNs" in listed
    sink = spawn("cdc", "--config", config, "sink")

    def shows() -> bool:
        assert sink.process.poll() is None, sink.stderr[-3000:]
        assert cached(redis_url, shop.name, "view.shown")["1"]["notes"] == ["second", "other"]
        status = orjson.loads(run_cdc("--config", config, "status", "--json").stdout)
        assert status["views"]["shown"]["state"] == "consistent"
        assert (status["sinks"]["cache"]["state"], status["sinks"]["cache"]["held"]) == ("level", {})
        return True

    wait_until(shows, SINK_S, lambda: sink.stderr[-3000:])
    assert sink.terminate() == 0, sink.stderr
    assert runner.terminate() == 0, runner.stderr
