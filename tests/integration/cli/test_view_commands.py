"""``cdc view`` on real servers, without stores: a state of one's own, a rebuild, an end, and what status says."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.request import urlopen

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cdc import View
from cdc.process.errors import Exit
from cdc.record.position import Lsn
from cdc.stack.local import free_ports
from tests.conftest import Stack
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import RunCdc, Spawn
from tests.view_posts import BROKEN
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
SQL = """select o.id, c.name from orders o left join customers c on c.id = o.customer_id"""


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
        "insert into customers select g, 'n' || g from generate_series(1, 5) g",
        "insert into orders select g, 1 + g % 5 from generate_series(1, 50) g",
    )
    return made


def test_h254_a_sink_of_a_view_alone_waits_for_its_topic(pipeline: Pipeline, spawn: Spawn) -> None:
    """It may start before the runner. With an end to come to it says so at once. A name of no view is a mistake."""
    files = pipeline.folder / "files"
    sinks = {"files": {"kind": "delta", "path": str(files), "tables": ["view.named"]}}
    pipeline.document["sinks"] = sinks
    pipeline.begin()
    assert_refused(pipeline.cdc("sink", "--until-caught-up"), Exit.UNAVAILABLE, "view.named alone", "cdc view run")
    sink = spawn("cdc", "--config", pipeline.config, "sink")
    wait_until(lambda: "there is no topic of that yet" in sink.stderr, 60, lambda: sink.stderr[-2000:])
    for command in (["run"], ["view", "run"]):
        spawn("cdc", "--config", pipeline.config, *command)
    wait_until((files / "view").exists, 90, lambda: sink.stderr[-2000:])
    wait_until(lambda: pipeline.cdc("verify", "files", "view.named").returncode == 0, 60, lambda: sink.stderr[-2000:])
    assert sink.terminate() == 0
    sinks["files"]["tables"] = ["view.nobodys"]
    refused = pipeline.cdc("sink")
    assert refused.returncode == Exit.CONFIG, refused.stderr
    assert "none of the captured tables is among them" in refused.stderr


def test_y7_a_runner_of_views_outlives_its_brokers(pipeline: Pipeline, spawn: Spawn, stack: Stack) -> None:
    pipeline.begin()
    capture = spawn("cdc", "--config", pipeline.config, "run")
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")

    def shown(name: str) -> bool:
        return f'"{name}"' in pipeline.cdc("view", "show", "named", "2").stdout

    wait_until(lambda: shown("n3"), 60, lambda: runner.stderr[-2000:])
    stack.stop_part("kafka", kill=True)
    wait_until(lambda: "views_again" in runner.stderr, 120, lambda: runner.stderr[-2000:])
    stack.start_part("kafka")
    stack.ensure("kafka")
    pipeline.sql("update customers set name = 'later' where id = 3")

    wait_until(lambda: shown("later"), 120, lambda: runner.stderr[-2000:])
    assert (runner.terminate(), capture.terminate()) == (0, 0), runner.stderr


POSTED = "select o.id, c.name, null::text as slug from orders o left join customers c on c.id = o.customer_id"


def test_a_function_that_raises_parks_its_document_alone(pipeline: Pipeline, spawn: Spawn) -> None:
    named = pipeline.document["views"]["named"]
    Path(named["sql"]).write_text(POSTED, encoding="utf-8")
    named["post"] = "tests.view_posts:refuse_one"
    pipeline.good("init")
    pipeline.sql("analyze")
    pipeline.good("snapshot")
    capture = spawn("cdc", "--config", pipeline.config, "run")
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")
    wait_until(lambda: of_view(pipeline)["parked"] == 1, 60, lambda: runner.stderr[-2000:])
    assert "document_parked" in runner.stderr
    assert "tests.view_posts:refuse_one raised ValueError" in runner.stderr
    assert "a secret of the row" not in runner.stderr
    pipeline.sql("update customers set name = 'moved' where id = 3")
    wait_until(lambda: '"2-moved"' in pipeline.good("view", "show", "named", "2"), 30, lambda: runner.stderr[-2000:])
    events = pipeline.good("events", "view.named", "--json", "--from-beginning", "--until-caught-up")
    shown = {one["key"] for one in map(orjson.loads, events.splitlines())} - {""}  # of the sweep mark
    assert shown == {str(number) for number in range(1, 51) if number != BROKEN}
    assert_refused(pipeline.cdc("view", "show", "named", str(BROKEN)), Exit.USAGE, "raised ValueError")
    checked = orjson.loads(pipeline.good("view", "check", "--json"))
    assert checked["fan_out"] == [{"as": "c", "usual": 10.0, "most": 10}]
    assert 1_000 < checked["state_bytes"] < 20_000
    assert "a change of one c: 10 documents, at most about 10" in pipeline.good("view", "check")
    lines = [line.split() for line in pipeline.good("view", "show", "named", "2", "--explain").splitlines()]
    assert [(table, key) for _, table, key in lines] == [("public.customers", "3"), ("public.orders", "2")]
    assert Lsn.parse(lines[0][0]) > Lsn.parse(lines[1][0]), "the customer was renamed"
    view = View.load(pipeline.config, "named")
    assert view.document(2) == view.document({"id": 2}) == {"id": 2, "name": "moved", "slug": "2-moved"}
    assert view.document(51) is None
    assert view.plan.key == (("id", "id"),)
    assert runner.terminate() == 0, runner.stderr
    named["post"] = "tests.view_posts:add_slug"
    assert_refused(pipeline.cdc("view", "run"), Exit.CONFIG, "is published from another function")
    named["post"] = "tests.nowhere:f"
    assert_refused(pipeline.cdc("view", "check"), Exit.CONFIG, "post cannot be imported")
    assert capture.terminate() == 0, capture.stderr


def test_h264_a_view_that_cannot_be_planned_stops_alone(pipeline: Pipeline, spawn: Spawn) -> None:
    """A column of one is gone, and the text of another: the third goes on, and the exit code is theirs in the end."""
    older = pipeline.folder / "older.sql"
    older.write_text("select o.id, o.remark from orders o", encoding="utf-8")
    views = pipeline.document["views"]
    views |= {name: {"sql": str(pipeline.folder / f"{name}.sql")} for name in ("older", "absent")}
    pipeline.begin()
    capture = spawn("cdc", "--config", pipeline.config, "run")
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")
    wait_until(lambda: of_view(pipeline)["state"] == "consistent", 60, lambda: runner.stderr[-2000:])
    wait_until(lambda: runner.stderr.count("view_stopped") == 2, 30, lambda: runner.stderr[-2000:])
    assert "remark" in runner.stderr and "absent.sql" in runner.stderr
    assert runner.terminate() == Exit.CONFIG
    refused = pipeline.cdc("view", "run", "--until-caught-up")
    assert refused.returncode == Exit.CONFIG, refused.stderr
    assert "error: the view older cannot be kept: line 1, column 14: 'o.remark'" in refused.stderr
    refused = pipeline.cdc("view", "run", "older")
    assert refused.returncode == Exit.CONFIG, refused.stderr
    assert_refused(pipeline.cdc("view", "run", "named", "nobody"), Exit.USAGE, "no view nobody")
    assert capture.terminate() == 0, capture.stderr


def test_h295_a_mask_stops_the_view_that_computes_with_it(pipeline: Pipeline, spawn: Spawn) -> None:
    """Another one, which does not read the column, goes on. Behind a start each is refused or goes on."""
    upper = pipeline.folder / "upper.sql"
    upper.write_text("select id, name || '!' as name from customers", encoding="utf-8")
    (pipeline.folder / "named.sql").write_text("select id, customer_id from orders", encoding="utf-8")
    pipeline.document["views"]["upper"] = {"sql": str(upper)}
    pipeline.begin()
    capture = spawn("cdc", "--config", pipeline.config, "run")
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")
    wait_until(lambda: of_view(pipeline)["state"] == "consistent", 120, lambda: runner.stderr[-2000:])
    assert capture.terminate() == 0, capture.stderr
    pipeline.document["tables"] = {"public.customers": {"columns": {"name": "truncate:1"}}}
    capture = spawn("cdc", "--config", pipeline.config, "run")
    wait_until(lambda: '"view_stopped"' in runner.stderr, 120, lambda: runner.stderr[-2000:])
    assert "name of public.customers was masked after the view was planned" in runner.stderr
    pipeline.sql("insert into orders values (99, 1)")
    wait_until(lambda: "customer_id" in pipeline.cdc("view", "show", "named", "99").stdout, 120)
    assert runner.terminate() == Exit.CONFIG
    assert "Traceback" not in runner.stderr
    refused = pipeline.cdc("view", "run", "upper")
    assert refused.returncode == Exit.CONFIG, refused.stderr
    assert "name is masked, and a view computes nothing of it" in refused.stderr
    assert "still has what it computed" in refused.stderr
    assert capture.terminate() == 0, capture.stderr


def of_view(pipeline: Pipeline) -> dict[str, Any]:
    """What status says of the view, whatever else it finds."""
    return dict(orjson.loads(pipeline.cdc("status", "--json").stdout)["views"]["named"])


def test_h171_h172_h174_a_view_from_build_to_end(pipeline: Pipeline, spawn: Spawn) -> None:
    pipeline.begin()
    capture = spawn("cdc", "--config", pipeline.config, "run")
    assert of_view(pipeline)["state"] == "absent"
    assert_refused(pipeline.cdc("view", "rebuild", "named"), Exit.USAGE, "was never published")
    assert_refused(pipeline.cdc("view", "drop", "named", "--yes"), Exit.USAGE, "no view named was published")
    address = f"127.0.0.1:{free_ports()['kafka']}"
    pipeline.document["view_runner"] = {"http_address": address}
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")
    found = wait_until(lambda: (f := of_view(pipeline))["lsn"] and f, 60, lambda: runner.stderr[-2000:])
    wait_until(lambda: urlopen(f"http://{address}/readyz", timeout=10).status == 200, 30)
    with urlopen(f"http://{address}/metrics", timeout=10) as page:
        shown = {
            sample.name: sample.value
            for family in text_string_to_metric_families(page.read().decode())
            for sample in family.samples
        }
    assert (shown["cdc_view_stopped"], shown["cdc_view_lag_known"], shown["cdc_view_parked_keys"]) == (0, 1, 0)
    assert shown["cdc_view_published_rows_total"] == 50
    assert shown["cdc_view_applied_lsn"] >= Lsn.parse(found["lsn"])
    assert pipeline.cdc("view", "run").returncode == Exit.CONFIG, "the address is taken"
    del pipeline.document["view_runner"]
    assert (found["state"], found["generation"], found["parked"]) == ("consistent", 1, 0)
    assert found["state_bytes"] > 0

    # One runner has the state, and neither a second one nor a rebuild takes it away.
    assert_refused(pipeline.cdc("view", "run"), Exit.ACTIVE, "another runner keeps the state")
    assert_refused(pipeline.cdc("view", "rebuild", "named"), Exit.ACTIVE, "another runner keeps the state")
    assert_refused(pipeline.cdc("view", "drop", "named", "--yes"), Exit.ACTIVE, "another runner keeps the state")
    pipeline.sql("update customers set name = 'moved' where id = 3")
    wait_until(lambda: '"moved"' in pipeline.good("view", "show", "named", "2"), 30, lambda: runner.stderr[-2000:])
    assert runner.terminate() == 0, runner.stderr

    # What went while there was no state is swept by the build.
    assert "its state is thrown away" in pipeline.cdc("view", "rebuild", "named").stderr
    assert of_view(pipeline)["waiting"] is None
    pipeline.sql("delete from orders where id = 2")
    pipeline.good("view", "run", "--until-caught-up")
    events = pipeline.good("events", "view.named", "--json", "--from-beginning", "--until-caught-up")
    assert '"moved"' in events
    of_order = [one for one in map(orjson.loads, events.splitlines()) if one["key"] == "2"]
    assert [one["op"] for one in of_order][-1:] == ["delete"], events[-2000:]

    assert "deleted" in pipeline.cdc("view", "drop", "named", "--yes").stderr
    assert of_view(pipeline)["state"] == "absent"
    assert not list((pipeline.folder / "state").glob("*.sqlite"))
    pipeline.good("view", "run", "--until-caught-up")
    assert of_view(pipeline)["state"] == "consistent"
    assert capture.terminate() == 0, capture.stderr
    dropped = pipeline.cdc("drop", "--yes", "--topics")
    assert dropped.returncode == 0, dropped.stderr
    pipeline.good("init")
    assert pipeline.good("view", "list") == ""
