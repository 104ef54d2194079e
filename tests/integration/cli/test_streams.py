"""``cdc stream`` on real servers: a window over outbox events, from its check to its store."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import orjson
import psycopg
import pytest
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families

from cdc import outbox
from cdc.figures.process_status import ask_status
from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Exit
from cdc.stack.local import free_ports
from sinks.contract.table_places import PLACE
from tests.integration.cli.events_seen import is_seen
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.lake_sessions import INTERPRETED
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
SQL = """select window.start as window_start, path, count(*) as requests, sum(ms) as ms
from requests group by window(at, '1 minute'), path
"""


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    (tmp_path / "traffic.sql").write_text(SQL, encoding="utf-8")
    document: dict[str, Any] = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.orders"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "outbox": {"keep": "7d"},
        "spark": {"http_address": "", "checkpoint": str(tmp_path / "checkpoints"), "conf": INTERPRETED},
        "sinks": {"files": {"kind": "delta", "path": str(tmp_path / "files"), "tables": ["stream.traffic"]}},
        "streams": {
            "traffic": {
                "sql": "traffic.sql",
                "key": ["window_start", "path"],
                "events": {
                    "requests": {
                        "topic": f"{topic_prefix}.outbox.Request",
                        "time": "at",
                        "late": "10 minutes",
                        "schema": "at timestamp, path string, ms double",
                    }
                },
            }
        },
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql("create table orders (id int primary key)")
    return made


def requests(pipeline: Pipeline, *ages: str, path: str = "/a") -> None:
    """Events of these ages, as Postgres writes an interval."""
    with psycopg.connect(pipeline.dsn) as connection:
        for age in ages:
            found = connection.execute("select to_json(now() - %s::interval)", [age]).fetchone()
            assert found is not None
            outbox.emit(connection, "Request", path, "Seen", {"at": found[0], "path": path, "ms": 1.5})


def stored(pipeline: Pipeline) -> dict[str, int]:
    """The requests of each path that the store shows."""
    place = str(pipeline.folder / "files" / "stream" / "traffic")
    assert DeltaTable.is_deltatable(place), "not made yet"
    rows = DeltaTable(place).to_pyarrow_table().to_pylist()
    found: dict[str, int] = {}
    for row in rows:
        if row["_key"] != PLACE:
            found[row["path"]] = found.get(row["path"], 0) + row["requests"]
    return found


def listed(pipeline: Pipeline) -> dict[str, Any]:
    """What ``cdc stream list`` says of the one stream."""
    found: dict[str, Any] = orjson.loads(pipeline.good("stream", "list", "--json"))
    return found


def shown(address: str) -> dict[str, float]:
    """The figures of the one stream that a runner shows, without those by reason."""
    with urlopen(f"http://{address}/metrics", timeout=10) as page:
        families = text_string_to_metric_families(page.read().decode())
    samples = [sample for family in families for sample in family.samples]
    return {one.name: one.value for one in samples if one.labels.get("stream") == "traffic"}


def assert_shown(pipeline: Pipeline, address: str) -> None:
    """The figures of a runner that has published one row, beside what the log knows."""
    known = wait_until(lambda: (one := listed(pipeline)) and 0 <= one["lag_seconds"] < 60 and one, 60)
    assert known and (known["generation"], known["late"]) == (1, {"ahead": 1, "late": 2})
    wait_until(lambda: shown(address)["cdc_stream_state_rows"] == known["state_rows"] > 0, 30)
    found = wait_until(lambda: (one := shown(address))["cdc_stream_lag_seconds"] < 60 and one, 30)
    assert found and (found["cdc_stream_published_rows_total"], found["cdc_stream_stopped"]) == (1.0, 0.0)
    status = ask_status(address, pipeline.document["name"])
    assert status is not None and status["streams"]["traffic"]["trouble"] == ""


def dropped(pipeline: Pipeline, runner: Spawned) -> None:
    """First the former generations, and then all, which ends the runner."""
    said = pipeline.cdc("stream", "drop", "traffic", "--former").stderr
    assert said.count(": removed") == said.count(": deleted") == 2, said
    assert_refused(pipeline.cdc("stream", "drop", "traffic", "--former"), Exit.USAGE, "has no former generation")
    said = pipeline.cdc("stream", "drop", "traffic", "--yes").stderr
    assert "stream traffic: forgotten" in said
    assert "sink files still has traffic in its tables" in said
    assert said.count(": removed") == 1, said
    assert said.count(": deleted") == 2, said
    requests(pipeline, "1 second", path="/d")
    assert runner.wait(60) == Exit.ACTIVE
    assert "the stream traffic was dropped" in runner.stderr
    assert "Traceback" not in runner.stderr
    assert pipeline.good("stream", "list") == ""
    assert_refused(pipeline.cdc("stream", "drop", "traffic", "--yes"), Exit.USAGE, "no stream traffic was published")


def test_e8_e9_a_stream_from_its_check_to_its_end(pipeline: Pipeline, spawn: Spawn) -> None:
    """A driver is killed behind a transaction, the stream is built anew as it runs, by its text and by another one, and
    dropped: each event is counted once, and each late one is set apart once."""
    pipeline.begin()
    capture = spawn("cdc", "--config", pipeline.config, "run")
    requests(pipeline, "1 second", "2 seconds", "1 hour", "-1 day")
    wait_until(partial(is_seen, pipeline, "path", "/a"), 30, lambda: capture.stderr[-2000:])
    assert "needs an event for 720 s" in pipeline.good("stream", "check")
    done = pipeline.cdc("stream", "run", "--until-caught-up", timeout_s=240, CDC_CRASH_AT="stream_published")
    assert done.returncode == CRASH_EXIT, done.stderr[-3000:]
    status = orjson.loads(pipeline.cdc("status", "--json").stdout)["streams"]["traffic"]
    assert status == {name: value for name, value in listed(pipeline).items() if name != "stream"}
    assert (status["state"], status["generation"]) == ("published", 1)
    address = f"127.0.0.1:{free_ports(['http'])['http']}"
    pipeline.document["stream_runner"] = {"http_address": address}
    requests(pipeline, "1 second", "1 hour", path="/later")
    runner = spawn("cdc", "--config", pipeline.config, "-v", "stream", "run")
    sink = spawn("cdc", "--config", pipeline.config, "-v", "sink")
    rows = {"/a": 2, "/later": 1}

    def shows(expected: dict[str, int]) -> None:
        wait_until(
            lambda: "sink_started" in sink.stderr and stored(pipeline) == expected,
            120,
            lambda: (stored(pipeline), sink.stderr[-2000:], runner.stderr[-2000:]),
        )

    shows(rows)
    assert_shown(pipeline, address)
    assert "of 3 events; 3 events are set apart" in pipeline.good("stream", "verify", "traffic")
    assert_refused(pipeline.cdc("wait", "files", "0/1", "--table", "stream.traffic"), Exit.USAGE, "no LSN speaks of")
    assert "generation 2 begins" in pipeline.good("stream", "rebuild", "traffic")
    requests(pipeline, "1 second", path="/b")
    # The runner follows.
    shows({**rows, "/b": 1})
    assert listed(pipeline)["generation"] == 2
    (pipeline.folder / "traffic.sql").write_text(SQL.replace("path,", "upper(path) as path,"), encoding="utf-8")
    assert_refused(pipeline.cdc("stream", "verify", "traffic"), Exit.CONFIG, "is published by another text")
    pipeline.good("stream", "rebuild", "traffic")
    requests(pipeline, "1 second", path="/c")
    assert runner.wait(60) == Exit.CONFIG
    assert "is published by another text" in runner.stderr
    assert "Traceback" not in runner.stderr
    runner = spawn("cdc", "--config", pipeline.config, "-v", "stream", "run")
    # None of the former generation is left.
    shows({path.upper(): count for path, count in {**rows, "/b": 1, "/c": 1}.items()})
    dropped(pipeline, runner)


@pytest.mark.long
def test_a_stream_comes_up_with_its_pipeline(pipeline: Pipeline, spawn: Spawn) -> None:
    together = spawn("cdc", "--config", pipeline.config, "up", "--yes", "--logs", pipeline.folder / "logs")
    wait_until(lambda: "cdc stream run runs" in together.stderr, 120, lambda: together.stderr[-2000:])
    requests(pipeline, "1 second", path="/a")
    wait_until(lambda: stored(pipeline) == {"/a": 1}, 240, lambda: together.stderr[-2000:])
    assert together.terminate(120) == Exit.OK, together.stderr[-2000:]
