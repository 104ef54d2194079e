"""The whole way from the source over an encrypted line: every session of snapshot and capture asks for TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.process.errors import Exit
from tests.integration.capture.pipeline import Pipeline, refused
from tests.integration.debezium.secured import secured_broker
from tests.tls import encrypted, self_signed


@pytest.mark.slow
def test_snapshot_and_capture_over_tls(pipeline: Pipeline, tmp_path: Path) -> None:
    """No session gets around it: the front of the server refuses plain text."""
    with encrypted(pipeline.dsn, self_signed(tmp_path)) as dsn:
        pipeline.document["source"]["dsn"] = dsn
        pipeline.prepare_with_rows(
            "create table t (id int primary key, v text, big text)",
            "alter table t alter big set storage external",
            "insert into t select g, 'v', repeat('b', 3000) from generate_series(1, 2000) g",
        )
        with pipeline.capturing():
            pipeline.execute("update t set v = 'w' where id % 2 = 0", "delete from t where id % 7 = 0")
            pipeline.transaction("insert into t select g, 'x', repeat('c', 100) from generate_series(3000, 9000) g")
            pipeline.execute("insert into t values (10000, 'y', repeat('d', 400000))")
            pipeline.settle()
        pipeline.assert_equal("t")


@pytest.mark.slow
def test_a_broker_that_asks_for_tls_and_a_login(pipeline: Pipeline, tmp_path: Path) -> None:
    with secured_broker(tmp_path, "word") as broker:
        pipeline.document["log"] |= {
            "bootstrap_servers": broker.servers,
            "client": broker.client() | {"sasl.password": "word"},
        }
        pipeline.prepare_with_rows("create table t (id int primary key, v text)", "insert into t values (1, 'v')")
        with pipeline.capturing():
            pipeline.execute("update t set v = 'w'", "insert into t values (2, 'x')")
            pipeline.settle()
        pipeline.assert_equal("t")
        other = self_signed(tmp_path, "other")
        pipeline.document["log"]["client"] |= {"ssl.ca.location": str(other.made)}
        refused(pipeline.start(), Exit.UNAVAILABLE, f"Kafka at {broker.servers}")
