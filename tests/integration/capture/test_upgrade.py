"""Another server with the same history: a cluster that pg_upgrade made with its slots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.cli.app import run
from cdc.process.errors import Exit
from tests.integration.capture.pipeline import Pipeline
from tests.pg_upgrade import UpgradablePostgres, upgradable_postgres
from tests.programs import Spawn
from tests.waiting import wait_until

TABLES = (
    "create table t (id int primary key, v text)",
    "insert into t select g, 'first' from generate_series(1, 50) g",
)


@pytest.fixture
def server(tmp_path: Path, spawn: Spawn) -> Iterator[UpgradablePostgres]:
    with upgradable_postgres(tmp_path, spawn) as running:
        yield running


@pytest.fixture
def old(server: UpgradablePostgres, pipeline: Pipeline) -> Pipeline:
    """A pipeline over the old cluster, with rows of a snapshot and of the stream. Nothing runs."""
    pipeline.document["source"]["dsn"] = pipeline.dsn = server.dsn
    pipeline.prepare_with_rows(*TABLES)
    capture = pipeline.stream()
    pipeline.execute("update t set v = 'before' where id <= 10", "delete from t where id = 11")
    fence = pipeline.settle()
    wait_until(lambda: pipeline.confirmed() > fence, 60, pipeline.confirmed)
    server.stop()
    wait_until(lambda: '"reconnecting"' in capture.stderr, 60, lambda: capture.stderr)
    assert capture.terminate() == Exit.OK
    return pipeline


def init(pipeline: Pipeline, *options: str) -> int:
    return run(["--config", str(pipeline.config()), "init", *options])


def newest(pipeline: Pipeline) -> dict[str, object]:
    """Key -> the newest row that the log holds."""
    rows: dict[str, object] = {}
    for record in pipeline.records("t"):
        rows[record.key] = None if record.value is None else record.value["after"]
    return {key: row for key, row in rows.items() if row is not None}


@pytest.mark.slow
def test_x12_capture_goes_on_behind_pg_upgrade(
    server: UpgradablePostgres, old: Pipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is read again, nothing is lost, and nothing is written twice."""
    before, shown = old.slot_state(), old.count("t")
    server.upgrade()
    server.start()
    old.execute("update t set v = 'meanwhile' where id <= 3", "insert into t values (100, 'meanwhile')")
    refused = old.start()
    assert refused.wait() == Exit.IDENTITY
    assert "--accept-promotion" in refused.stderr
    assert init(old, "--accept-promotion") == Exit.OK
    assert "cdc run goes on from" in capfd.readouterr().err
    assert init(old, "--accept-promotion") == Exit.OK
    assert "the pipeline's already" in capfd.readouterr().err
    after = old.slot_state()
    assert (after.epoch, after.consistent_point) == (before.epoch, before.consistent_point)
    assert after.system_identifier != before.system_identifier
    capture = old.stream()
    old.execute("delete from t where id = 12", "insert into t values (101, 'after')")
    old.settle()
    assert capture.terminate() == Exit.OK
    assert old.count("t") - shown == 3 + 1 + 2 + 1
    assert len(newest(old)) == int(old.one("select count(*) from t")) == 50
    positions = [record.pos for record in old.records("t") if record.partition == 0]
    assert positions == sorted(positions)
    progress = old.progress()
    assert progress is not None and progress.lineage is not None
    assert progress.lineage.system == after.system_identifier


@pytest.mark.slow
def test_x12_a_slot_that_was_made_later_is_refused(
    server: UpgradablePostgres, old: Pipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    """pg_upgrade had no slot to keep, and somebody wrote before the new one was made."""
    server.start()
    old.execute(f"select pg_drop_replication_slot('{old.slot}')")
    server.stop()
    server.upgrade()
    server.start()
    made = f"select pg_create_logical_replication_slot('{old.slot}', 'pgoutput')"
    old.execute("update t set v = 'lost' where id = 1", made)
    before = old.state()
    assert init(old, "--accept-promotion") == Exit.IDENTITY
    assert "is not one that pg_upgrade took over" in capfd.readouterr().err
    old.execute(f"select pg_drop_replication_slot('{old.slot}')")
    assert init(old, "--accept-promotion") == Exit.SLOT
    assert old.state() == before


@pytest.mark.slow
def test_x12_a_slot_made_at_the_first_start_is_refused(
    server: UpgradablePostgres, old: Pipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    """No transaction wrote before it, and yet it is not the one that the former server had: a change is missing."""
    server.start()
    old.execute("update t set v = 'lost' where id = 1", f"select pg_drop_replication_slot('{old.slot}')")
    server.stop()
    server.upgrade()
    server.start()
    old.execute(f"select pg_create_logical_replication_slot('{old.slot}', 'pgoutput')")
    assert init(old, "--accept-promotion") == Exit.IDENTITY
    assert "is not one that pg_upgrade took over" in capfd.readouterr().err


@pytest.mark.slow
def test_x12_an_older_copy_that_was_upgraded_is_refused(
    server: UpgradablePostgres, old: Pipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its slot is at the beginning of its WAL, and the log has transactions that it never had."""
    with server.put_back():
        server.start()
        capture = old.stream()
        # Making the schema anew takes a few transactions: an older copy is told by more than that.
        old.execute(*(f"update t set v = 'newer {number}' where id = 1" for number in range(100)))
        fence = old.settle()
        wait_until(lambda: old.confirmed() > fence, 60, old.confirmed)
        assert capture.terminate() == Exit.OK
        server.stop()
    server.upgrade()
    server.start()
    assert init(old, "--accept-promotion") == Exit.IDENTITY
    assert "is not one that pg_upgrade took over" in capfd.readouterr().err
