"""What a reader's token promises, a server that falls silent, and transactions of others on our topics."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from cdc.process.errors import LogError
from cdc.record.progress import PROGRESS_KEY, Progress
from cdc.record.topic_names import progress_topic
from connectors.kafka.clients import producer_config, reader_config
from connectors.kafka.compacted_topic import KafkaCompactedTopic, read_range
from connectors.kafka.feed import newest_progress
from tests.integration.capture.pipeline import Pipeline
from tests.waiting import wait_until


@pytest.mark.slow
def test_h88_a_token_after_an_asynchronous_commit_covers_it(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key)")
    with pipeline.capturing(), pipeline.session() as session:
        session.execute("set synchronous_commit = off")
        for number in range(10):
            session.execute("insert into t values (%s)", [number])
            row = session.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchone()
            assert row is not None
            token = int(row[0])

            def reached(token: int = token) -> bool:
                progress = pipeline.progress()
                return progress is not None and progress.lsn >= token

            wait_until(reached, 20, f"progress at {token}")
            assert f'c {{"id":{number}}}' in pipeline.shorts("t")


def walsender(pipeline: Pipeline) -> int:
    """The server's process that streams to capture."""
    return int(pipeline.one("select active_pid from pg_replication_slots where slot_name = %s", pipeline.slot))


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does not run, and does again afterwards."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_h13_h14_a_silent_server_is_left_and_found_again(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key)")
    database = pipeline.one("select current_database()")
    pipeline.execute(f"alter database {database} set wal_sender_timeout = '3s'")
    with pipeline.capturing() as capturing:
        pipeline.execute("insert into t values (1)")
        pipeline.settle()
        with stopped(walsender(pipeline)):
            pipeline.execute("insert into t values (2)")
            wait_until(lambda: capturing.figures.reconnects > 0, 60, "the silence is noticed")
            assert "silent" in capturing.figures.waiting_for or "slot" in capturing.figures.waiting_for
        pipeline.settle(60)
        pipeline.assert_equal("t")


@pytest.mark.slow
def test_h59_markers_and_aborted_records_are_passed_over(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key)")
    log, topic = pipeline.settings.log, pipeline.topic("t")
    assert "transactional.id" not in producer_config(log)
    assert reader_config(log)["isolation.level"] == "read_committed"
    producer = Producer({"bootstrap.servers": log.bootstrap_servers, "transactional.id": pipeline.name})
    producer.init_transactions(30)
    for keep in (True, False, True):
        producer.begin_transaction()
        producer.produce(topic, b"kept" if keep else b"aborted", b"k", partition=0)
        producer.flush(30)
        if keep:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    found = [message.value() for message in read_range(log, topic, 0)]
    assert found == [b"kept", b"kept"]


@pytest.mark.slow
def test_h581_an_open_transaction_hides_no_own_record(pipeline: Pipeline) -> None:
    """Somebody's transaction is open in a table's topic: what capture wrote behind it is not read, and was sent
    twice."""
    pipeline.document["log"]["partitions"] = 1
    pipeline.prepare("create table t (id int primary key)")
    topic = pipeline.topic("t")
    servers = pipeline.settings.log.bootstrap_servers
    stranger = Producer({"bootstrap.servers": servers, "transactional.id": pipeline.name})
    stranger.init_transactions(30)
    with pipeline.capturing() as capturing:
        pipeline.execute("insert into t values (1)")
        pipeline.settle()
        stranger.begin_transaction()
        stranger.produce(topic, b"theirs", b"k", partition=0)
        stranger.flush(30)
        pipeline.execute("insert into t values (2), (3)")
        wait_until(lambda: "transaction is open" in capturing.figures.waiting_for, 60, "the end is not read")
        stranger.abort_transaction(30)
        pipeline.settle(90)
    assert [record.short for record in pipeline.records("t")] == [f'c {{"id":{n}}}' for n in (1, 2, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("keep", [True, False])
def test_h592_an_open_transaction_hides_no_progress(pipeline: Pipeline, keep: bool) -> None:
    """An older record was taken for the newest. What was given up, and markers, hide nothing."""
    pipeline.prepare("create table t (id int primary key)")
    with pipeline.capturing():
        pipeline.execute("insert into t values (1)")
        pipeline.settle()
    log, topic = pipeline.settings.log, progress_topic(pipeline.settings.name)
    stranger = Producer({"bootstrap.servers": log.bootstrap_servers, "transactional.id": pipeline.name})
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(topic, b"theirs", b"k", partition=0)
    stranger.flush(30)
    older = shown_progress(pipeline)
    newer = replace(older, lsn=older.lsn + 1)
    KafkaCompactedTopic(log, topic).write([(PROGRESS_KEY, newer.to_json())])
    with pytest.raises(LogError, match="transaction is open"):
        newest_progress(pipeline.settings)
    if keep:
        stranger.commit_transaction(30)
    else:
        stranger.abort_transaction(30)
    assert newest_progress(pipeline.settings) == newer


def shown_progress(pipeline: Pipeline) -> Progress:
    """As far as it is shown."""
    topic = progress_topic(pipeline.settings.name)
    return Progress.from_json(KafkaCompactedTopic(pipeline.settings.log, topic).read()[PROGRESS_KEY])
