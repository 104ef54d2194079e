"""Stores stay true beside an outbox and a history: they are fed from tables alone, whatever the progress names."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from cdc import outbox
from tests.integration.cli.pipeline import Pipeline
from tests.programs import Spawn
from tests.waiting import wait_until


@pytest.mark.slow
def test_stores_are_true_beside_events(pipeline: Pipeline, spawn: Spawn, redis_url: str, tmp_path: Path) -> None:
    pipeline.sql("alter table orders replica identity full")
    pipeline.document["source"]["tables"] = ["public.orders"]
    pipeline.document["outbox"] = {}
    pipeline.document["history"] = {"tables": ["public.*"]}
    pipeline.document["sinks"] = {
        "cache": {"kind": "redis", "url": redis_url},
        "table": {"kind": "sql", "url": f"sqlite:///{tmp_path}/shop.db"},
    }
    pipeline.begin()
    spawn("cdc", "--config", pipeline.config, "run")
    feeding = spawn("cdc", "--config", pipeline.config, "sink")
    with psycopg.connect(pipeline.dsn, autocommit=True) as session:
        for number in range(20):
            with session.transaction():
                session.execute("update orders set id = id")
                outbox.emit(session, f"Kind{number % 3}", number, "Happened", {"n": number})
        [lsn] = session.execute("select pg_current_wal_insert_lsn()::text").fetchone() or [""]
    for sink in ("cache", "table"):
        wait_until(lambda: pipeline.cdc("wait", "cache", lsn).returncode == 0, 120, lambda: feeding.stderr[-3000:])
        assert pipeline.cdc("wait", sink, lsn, timeout_s=120).returncode == 0
    verified = pipeline.cdc("verify", timeout_s=120)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "all equal" in verified.stdout
    assert "outbox" not in verified.stdout
    shown = pipeline.cdc("status")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    feeding.kill()
    again = spawn("cdc", "--config", pipeline.config, "sink")
    pipeline.sql("update orders set id = id")
    wait_until(lambda: pipeline.cdc("verify", timeout_s=120).returncode == 0, 120, lambda: again.stderr[-3000:])
    assert "public.orders" in pipeline.good(
        "events", "orders", "--history", "--from-beginning", "--until-caught-up", "--json"
    )
