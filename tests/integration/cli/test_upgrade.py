"""What an earlier commit stored, under today's commands: it is read, gone on with, and nothing comes twice (H113)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.errors import Exit
from cdc.lsn import Lsn
from cdc.read import Cache
from tests.integration.cli.conftest import OwnPostgres
from tests.integration.cli.pipeline import Pipeline
from tests.programs import RunCdc, Spawn
from tests.stored_pipeline import COMMITS, Place, StoredPipeline
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(params=COMMITS)
def stored(request: pytest.FixtureRequest, kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Any:
    """The set that a commit left, not put anywhere yet."""
    return StoredPipeline(request.param, Place(topic_prefix, kafka, redis_url, tmp_path))


@pytest.fixture
def upgraded(stored: StoredPipeline, own_postgres: OwnPostgres, run_cdc: RunCdc, tmp_path: Path) -> Pipeline:
    """All of it put onto servers, under the settings file that it was made by."""
    own_postgres.start()
    stored.put_source(own_postgres.dsn)
    stored.put_topics()
    stored.put_store()
    stored.put_checkpoint()
    return Pipeline(tmp_path, run_cdc, stored.left["settings"])


def events(text: str, name: str) -> list[dict[str, Any]]:
    """The log's lines of an event."""
    return [orjson.loads(line) for line in text.splitlines() if f'"event":"{name}"' in line]


def shown(stored: StoredPipeline, redis_url: str) -> list[dict[str, Any]]:
    """The rows that the cache shows, of all keys that ever were."""
    with Cache(redis_url, stored.left["settings"]["name"]) as cache:
        rows = [cache.get("public.orders", number) for number in range(40)]
    return [{**row, "total": row["total"] and float(row["total"])} for row in rows if row is not None]


def as_rows(stored: StoredPipeline) -> list[dict[str, Any]]:
    return [{**row, "total": row["total"] and float(row["total"])} for row in stored.left["rows"]]


def test_h113_an_upgraded_pipeline_goes_on_where_it_was(
    stored: StoredPipeline, upgraded: Pipeline, redis_url: str, spawn: Spawn
) -> None:
    behind = stored.behind()
    assert behind > 0
    assert shown(stored, redis_url) != as_rows(stored), "the store lacks what the log has"
    upgraded.good("check")
    status = orjson.loads(upgraded.cdc("status", "--json").stdout)
    assert status["sinks"]["cache"]["lsn"] == str(Lsn(stored.watermark()["lsn"])), status

    runs = upgraded.folder / "checkpoints" / "cache"
    assert (runs / "1" / "offsets" / "0").exists()
    done = upgraded.cdc("sink", "--until-caught-up", timeout_s=180)
    assert done.returncode == Exit.OK, done.stderr
    [started] = events(done.stderr, "sink_started")
    assert started["behind"] == behind, "no filling from the beginning"
    assert sum(one["records"] for one in events(done.stderr, "batch_applied")) == behind, "no loss, nothing twice"
    assert shown(stored, redis_url) == as_rows(stored)
    assert [run.name for run in runs.iterdir()] == ["2"], "a run behind that of the earlier commit, which went"

    capture = spawn("cdc", "--config", upgraded.config, "run")
    wait_until(lambda: events(capture.stderr, "streaming"), 60, lambda: capture.stderr)
    upgraded.sql("update orders set status = 'upgraded' where id = 1", "delete from orders where id = 2")
    sink = spawn("cdc", "--config", upgraded.config, "sink")
    verified = upgraded.cdc("verify", "--timeout", "90", timeout_s=200)
    assert verified.returncode == Exit.OK, verified.stderr + verified.stdout + sink.stderr[-2000:]
    assert sink.terminate(90) == 0, sink.stderr
    assert sum(one["records"] for one in events(sink.stderr, "batch_applied")) == 3, (
        "an update, a delete, its tombstone"
    )
    assert capture.terminate() == 0, capture.stderr
