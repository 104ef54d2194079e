"""The worked example ``examples/request_log`` on real servers: figures, late requests, alerts, the page of plots."""

from __future__ import annotations

import re
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from cdc import outbox
from cdc.process.clock import SYSTEM_CLOCK
from cdc.settings.model import load
from connectors.streams.stream_topics import known_streams, read_published
from examples.request_log.page import Traffic, main, page
from examples.request_log.traffic_source import PER_S, requests
from spark.streams.verification import Published
from tests.integration.cli.pipeline import Pipeline
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
SITE = ROOT / "examples" / "request_log"
SECONDS = 10
BETWEEN_S = 8


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    """The example's own settings, on the servers of the tests. Windows of the alerts last five seconds."""
    text = (SITE / "cdc.toml").read_text(encoding="utf-8").replace("site.", f"{topic_prefix}.")
    document: dict[str, Any] = tomllib.loads(text.replace('late = "1 minute"', 'late = "25 seconds"'))
    document["name"] = topic_prefix
    document["source"]["dsn"] = database
    document["log"]["bootstrap_servers"] = kafka
    document["capture"] = {"http_address": ""}
    document["spark"] = {"checkpoint": str(tmp_path / "checkpoints"), "http_address": ""}
    document["sinks"]["reports"]["url"] = f"sqlite:///{tmp_path}/reports.db"
    for name in ("traffic", "alerts"):
        sql = (SITE / f"{name}.sql").read_text(encoding="utf-8")
        (tmp_path / f"{name}.sql").write_text(sql.replace("'1 minute'", "'5 seconds'"), encoding="utf-8")
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql("create table pages (path text primary key)")
    return made


def published(pipeline: Pipeline, stream: str) -> Published:
    """What stands in a stream's topics."""
    settings = load(pipeline.config, {})
    known = known_streams(settings).get(stream)
    return read_published(settings, known.known) if known is not None else Published(rows={}, set_apart={})


@pytest.mark.slow
def test_the_request_log_counts_every_request(
    pipeline: Pipeline, spawn: Spawn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("init", "snapshot"):
        pipeline.good(command)
    spawn("cdc", "--config", pipeline.config, "run")
    program = ["-m", "examples.request_log.traffic_source", pipeline.dsn, str(SECONDS)]
    told = spawn("python", *program, env={"PYTHONPATH": str(ROOT)})
    # Both streams begin while requests come.
    streams = spawn("cdc", "--config", pipeline.config, "stream", "run")
    assert told.wait(120) == 0, told.stderr
    more, begun_s = 0, SYSTEM_CLOCK.monotonic()
    with psycopg.connect(pipeline.dsn, autocommit=True) as session:

        def alerted() -> bool:
            """A request now and then: without any the time of the log would stand still, and no window would end. Each
            is a batch of both streams."""
            nonlocal more
            if SYSTEM_CLOCK.monotonic() - begun_s > BETWEEN_S * more:
                with session.transaction():
                    [now] = session.execute("select to_json(now())").fetchone() or [""]
                    event = {"at": now, "path": "/", "status": 200, "ms": 1.0, "user_id": "u1"}
                    outbox.emit(session, "Request", "/", "Served", event)
                more += 1
            return bool(published(pipeline, "alerts").rows)

        wait_until(alerted, 200, lambda: streams.stderr[-3000:])

    def all_counted() -> bool:
        traffic = published(pipeline, "traffic")
        counted = sum(int(orjson.loads(row)["requests"]) for row in traffic.rows.values())
        return counted + sum(traffic.set_apart.values()) == SECONDS * PER_S + more

    wait_until(all_counted, 120, lambda: streams.stderr[-3000:])
    assert streams.terminate() == 0
    pipeline.good("sink", "--until-caught-up")
    reports = tmp_path / "reports.db"
    with sqlite3.connect(reports) as database:
        [rows] = database.execute("select sum(requests) from stream_traffic_live").fetchone()
    listed = map(orjson.loads, pipeline.good("stream", "list", "--json").splitlines())
    late = next(int(sum(one["late"].values())) for one in listed if one["stream"] == "traffic")
    assert int(rows) + late == SECONDS * PER_S + more
    verified = pipeline.cdc("stream", "verify", "traffic", timeout_s=200)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    capsys.readouterr()
    assert main(str(reports)) == 0
    html = capsys.readouterr().out
    assert set(re.findall(r"<h2>([^<]+)</h2>", html)) > {"Requests", "Share of errors", "Alerts"}
    assert "of" in html.partition("<h2>Alerts</h2>")[2]
    assert max(request["late_s"] for request in requests(SECONDS * PER_S)) > 30


def test_a_page_of_nothing_and_a_page_of_one_minute() -> None:
    assert page([], []).count("<svg") == page([Traffic("2026-11-30 09:00:00", "<a>", 1, 0.5, 1, 2, 1)], []).count(
        "<svg"
    )
    assert "&lt;a&gt;" in page([Traffic("2026-11-30 09:00:00", "<a>", 1, 0.5, 1, 2, 1)], [])
