"""A connector that reads its slot and cannot write: ``cdc connect status`` ends with 1 and says what stands still."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from cdc.process.errors import Exit
from connectors.debezium.status import FAILED, RUNNING
from connectors.kafka.admin import TopicAdmin
from tests.integration.debezium.conftest import Pipeline
from tests.programs import RunCdc
from tests.waiting import wait_until

STILL = "captured tables were written, and its stored offsets did not move within a minute"


@contextmanager
def writing(database: str) -> Iterator[None]:
    """A row of ``a`` after the other, each in a transaction."""
    over = threading.Event()

    def write() -> None:
        with psycopg.connect(database, autocommit=True) as session:
            for number in count(1000):
                session.execute("insert into a values (%s, 'meanwhile')", [number])
                if over.wait(0.1):
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def carry_out(pipeline: Pipeline, ask: Callable[[AdminClient], dict[Any, Future[Any]]]) -> None:
    """Ask Kafka, and wait until it is done."""
    admin = AdminClient({"bootstrap.servers": pipeline.document["log"]["bootstrap_servers"]})
    for asked in ask(admin).values():
        asked.result(30)


@contextmanager
def topic_option(pipeline: Pipeline, option: str, value: str) -> Iterator[None]:
    """The topic of ``a`` with another option than the broker's."""

    def alter(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(option, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, f"{pipeline.role}.public.a", incremental_configs=[entry])
        carry_out(pipeline, lambda admin: admin.incremental_alter_configs([resource]))

    alter(AlterConfigOpType.SET)
    try:
        yield
    finally:
        alter(AlterConfigOpType.DELETE)


@pytest.fixture
def streaming(pipeline: Pipeline) -> Pipeline:
    """A connector whose rows arrive."""
    pipeline.run("insert into a values (1, 'before')")
    pipeline.connector().deploy()
    pipeline.arrived("public.a", 1)
    pipeline.run("insert into a values (2, 'streamed')")
    pipeline.arrived("public.a", 2)
    (lsn,) = pipeline.session.execute("select pg_current_wal_lsn() - '0/0'").fetchall()[0]
    # What is stored later would pass for a record that was written later.
    pipeline.run("insert into a values (3, 'streamed')")
    connector = pipeline.connector()
    wait_until(lambda: any(one["offset"].get("lsn", 0) >= lsn for one in connector.offsets()), 60, "a stored offset")
    return pipeline


def status(pipeline: Pipeline, run_cdc: RunCdc, folder: Path) -> CompletedProcess[str]:
    return run_cdc("--config", pipeline.toml(folder), "connect", "status", timeout_s=180)


def task(pipeline: Pipeline) -> str:
    connector = pipeline.connector()
    return str(connector.client.status(connector.name)["tasks"][0]["state"])


@pytest.mark.slow
def test_h116_a_record_that_kafka_refuses_fails_by_name(streaming: Pipeline, run_cdc: RunCdc, tmp_path: Path) -> None:
    with topic_option(streaming, "max.message.bytes", "200"):
        streaming.run("insert into a values (4, repeat('too long', 100))")
        wait_until(lambda: task(streaming) == FAILED, 60, "the task to fail")
        found = status(streaming, run_cdc, tmp_path)
        assert found.returncode == Exit.DIFFERENCE
        assert "task 0  FAILED" in found.stdout
        assert "larger than the max message size" in found.stdout, found.stdout
    assert streaming.connector().restart() == (0,)
    streaming.arrived("public.a", 4)
    assert status(streaming, run_cdc, tmp_path).returncode == Exit.OK


@pytest.mark.slow
def test_h116_a_connector_whose_topic_is_gone_stands_still(
    streaming: Pipeline, run_cdc: RunCdc, database: str, tmp_path: Path
) -> None:
    """Nobody makes the topic anew: the worker's producer waits for it, and every state says RUNNING."""
    admin = TopicAdmin(streaming.settings().log)
    admin.delete([f"{streaming.role}.public.a"])
    wait_until(lambda: not admin.describe([f"{streaming.role}.public.a"]), 60)
    with writing(database):
        found = status(streaming, run_cdc, tmp_path)
        if found.returncode == Exit.OK:
            # A broker that has just hidden a topic may still take a row, which moves the offsets: once.
            found = status(streaming, run_cdc, tmp_path)
        assert (task(streaming), found.returncode) == (RUNNING, Exit.DIFFERENCE), found.stdout + found.stderr
        assert STILL in found.stdout
        assert f"the connector {streaming.role} says RUNNING and does not get on: {STILL}" in found.stderr
        again = NewTopic(f"{streaming.role}.public.a", 2, 1)
        carry_out(streaming, lambda admin: admin.create_topics([again]))
        streaming.arrived("public.a", 1, 60)
        found = status(streaming, run_cdc, tmp_path)
        assert found.returncode == Exit.OK, found.stdout + found.stderr
