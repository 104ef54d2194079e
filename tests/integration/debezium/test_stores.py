"""From Postgres by way of Debezium and Spark into a real store, with nothing of the native capture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import redis

from tests.integration.debezium.conftest import Pipeline
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

SINK_S = 180.0


def cached(url: str, prefix: str, table: str) -> dict[str, Any]:
    """key -> row of every living row."""
    with redis.Redis.from_url(url) as store:
        head = f"{prefix}:{table}:"
        found: dict[str, Any] = {}
        for key in store.scan_iter(f"{head}*"):
            row = store.hget(key, "row")
            if isinstance(row, bytes):
                found[key.decode().removeprefix(head)] = orjson.loads(row)
        return found


@pytest.fixture
def stores(redis_url: str, opensearch: str, index_prefix: str, warehouse: Path) -> dict[str, dict[str, str]]:
    """Sections of three stores of one's own."""
    return {
        "sinks__cache": {"kind": "redis", "url": redis_url},
        "sinks__search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "sinks__warehouse": {"kind": "delta", "path": str(warehouse)},
    }


@pytest.mark.slow
def test_h38_sinks_keep_stores_true_from_debeziums_topics(
    pipeline: Pipeline, stores: dict[str, dict[str, str]], run_cdc: RunCdc, spawn: Spawn, tmp_path: Path
) -> None:
    redis_url = stores["sinks__cache"]["url"]
    big = "x" * 5000
    pipeline.run(
        "alter table a alter v set storage external",
        "insert into a select i, 's' || i, i from generate_series(1, 50) i",
        f"update a set v = '{big}' where id = 7",
        "insert into b values (1, 'one')",
    )
    pipeline.document["source"]["tables"] = ["public.*"]
    settings = pipeline.toml(
        tmp_path,
        **stores,
        spark={"master": "local[1]", "checkpoint": str(tmp_path / "checkpoints"), "http_address": ""},
    )
    deployed = run_cdc("--config", settings, "connect", "deploy")
    assert deployed.returncode == 0, deployed.stderr
    sink = spawn("cdc", "--config", settings, "sink")
    name = pipeline.settings().name

    def filled() -> bool:
        assert sink.process.poll() is None, sink.stderr
        assert len(cached(redis_url, name, "public.a")) == 50
        return cached(redis_url, name, "public.b") == {"1": {"id": 1, "v": "one"}}

    wait_until(filled, SINK_S, lambda: sink.stderr)

    # An unchanged TOAST value comes as a placeholder: the store holds the value.
    pipeline.run(
        "update a set n = 77 where id = 7",
        "delete from a where id = 8",
        "update a set id = 100 where id = 9",
        "alter table a add column extra text",
        "update a set extra = 'new' where id = 10",
    )
    rows = pipeline.session.execute("select id, v, n::text, extra from a").fetchall()
    assert len(rows) == 49

    def equal() -> bool:
        assert sink.process.poll() is None, sink.stderr
        held = cached(redis_url, name, "public.a")
        kept = {(row["id"], row["v"], row["n"], row.get("extra")) for row in held.values()}
        assert kept == set(rows)
        return True

    wait_until(equal, SINK_S, lambda: sink.stderr)
    assert cached(redis_url, name, "public.a")["7"]["v"] == big

    # Each store knows the LSN that it shows, so that every row can be compared at a fence, and waited for.
    verified = run_cdc("--config", settings, "verify", "--timeout", "300", "--json", timeout_s=2 * SINK_S)
    assert verified.returncode == 0, verified.stdout + verified.stderr + sink.stderr[-3000:]
    report = orjson.loads(verified.stdout)
    assert (report["differences"], report["undecided"]) == (0, 0)
    assert {(t["sink"], t["table"], t["source_rows"]) for t in report["tables"]} == {
        (name, table, rows)
        for name in ("cache", "search", "warehouse")
        for table, rows in (("public.a", 49), ("public.b", 1))
    }
    checked = run_cdc("--config", settings, "check", timeout_s=SINK_S)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "drop_replication_slot" not in checked.stdout + checked.stderr
    token = pipeline.session.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert token is not None
    waited = run_cdc("--config", settings, "wait", "cache", token[0], timeout_s=SINK_S)
    assert waited.returncode == 0, waited.stderr
    assert sink.terminate() == 0
