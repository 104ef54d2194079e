"""``as_of`` on real servers: outbox events between the changes of a table, each beside the row of its own commit."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from cdc import outbox
from cdc.process.errors import Exit
from cdc.settings.model import load
from connectors.streams.stream_topics import known_streams, read_published
from tests.integration.cli.events_seen import is_seen
from tests.integration.cli.pipeline import Pipeline
from tests.lake_sessions import INTERPRETED
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
SQL = "select name, customers.country as country, customers is null as unknown from requests"
BEFORE = {
    "first": "DE",
    "moved": "FR",
    "within": "IT",
    "stranger": None,
    "gone": None,
}
"""Name of the event -> the country that its customer had."""


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    (tmp_path / "sold.sql").write_text(SQL, encoding="utf-8")
    document: dict[str, Any] = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.customers"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "outbox": {"keep": "7d"},
        "history": {"tables": ["public.customers"]},
        "spark": {"http_address": "", "checkpoint": str(tmp_path / "checkpoints"), "conf": INTERPRETED},
        "sinks": {"lake": {"kind": "delta", "path": str(tmp_path / "lake"), "history": ["public.customers"]}},
        "streams": {
            "sold": {
                "sql": str(tmp_path / "sold.sql"),
                "key": ["name"],
                "events": {
                    "requests": {
                        "topic": f"{topic_prefix}.outbox.Request",
                        "time": "at",
                        "schema": "at timestamp, name string, customer_id int",
                        "as_of": "public.customers",
                        "on": ["customer_id"],
                    }
                },
            }
        },
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql("create table customers (id int primary key, country text)", "alter table customers replica identity full")
    made.sql("insert into customers values (1, 'DE'), (9, 'AT')")
    made.begin()
    return made


def emit(connection: psycopg.Connection[Any], name: str, customer: int = 1) -> None:
    """An event of a customer."""
    found = connection.execute("select to_json(now())").fetchone()
    assert found is not None
    outbox.emit(connection, "Request", str(customer), "Seen", {"at": found[0], "name": name, "customer_id": customer})


def published(pipeline: Pipeline) -> dict[str, str | None]:
    """Name -> country, of what stands in the stream's topic."""
    settings = load(pipeline.config, {})
    known = known_streams(settings).get("sold")
    rows = [orjson.loads(row) for row in read_published(settings, known.known).rows.values()] if known else []
    assert all(row["unknown"] == (row["country"] is None) for row in rows), rows
    return {row["name"]: row["country"] for row in rows}


def has(pipeline: Pipeline, names: int) -> bool:
    """Whether so many events are published."""
    return len(published(pipeline)) == names


def test_e11_events_are_joined_as_of_their_commit(pipeline: Pipeline, spawn: Spawn) -> None:
    """The same at every replay, though the table has changed since. A batch waits for the store."""
    capture = spawn("cdc", "--config", pipeline.config, "run")
    with psycopg.connect(pipeline.dsn) as connection:
        emit(connection, "first")
        connection.commit()
        connection.execute("update customers set country = 'FR' where id = 1")
        connection.commit()
        emit(connection, "moved")
        connection.commit()
        # A commit is one moment, whatever stands first in it.
        emit(connection, "within")
        connection.execute("update customers set country = 'IT' where id = 1")
        connection.commit()
        emit(connection, "stranger", 7)
        connection.execute("delete from customers where id = 1")
        connection.commit()
        emit(connection, "gone")
    wait_until(partial(is_seen, pipeline, "name", "gone"), 60, lambda: capture.stderr[-2000:])
    store = spawn("cdc", "--config", pipeline.config, "sink")
    wait_until((pipeline.folder / "lake" / "public" / "customers__history").exists, 120, lambda: store.stderr[-3000:])
    running = spawn("cdc", "--config", pipeline.config, "stream", "run")
    wait_until(partial(has, pipeline, 5), 120, lambda: running.stderr[-3000:])
    assert published(pipeline) == BEFORE
    # Spark reads the history anew for each batch, and that only once the store is as far.
    store.process.send_signal(signal.SIGSTOP)
    with psycopg.connect(pipeline.dsn) as connection:
        connection.execute("insert into customers values (1, 'ES')")
        emit(connection, "back")
    wait_until(partial(is_seen, pipeline, "name", "back"), 60, lambda: capture.stderr[-2000:])
    assert published(pipeline) == BEFORE
    store.process.send_signal(signal.SIGCONT)
    wait_until(partial(has, pipeline, 6), 120, lambda: running.stderr[-3000:])
    after = {**BEFORE, "back": "ES"}
    assert published(pipeline) == after
    assert running.terminate() == Exit.OK
    pipeline.sql("update customers set country = 'NO'")
    assert "6 keys, of 6 events" in pipeline.good("stream", "verify", "sold")
    pipeline.good("stream", "rebuild", "sold")
    done = pipeline.cdc("stream", "run", "--until-caught-up", timeout_s=180)
    assert done.returncode == 0, done.stderr[-3000:]
    assert published(pipeline) == after
