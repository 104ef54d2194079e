"""A consumer that notes each event in the transaction of its work acts on it once, however often it is killed."""

from __future__ import annotations

import sys
from functools import partial

import pytest

from cdc import inbox, outbox
from tests.integration.capture.pipeline import Pipeline
from tests.integration.capture.test_outbox import TABLE, of
from tests.waiting import wait_until

EVENTS = 200
KILLS = 6
CONSUMER = """
import sys
import psycopg
from confluent_kafka import Consumer
from cdc import inbox

dsn, kafka, topic, group = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": kafka, "group.id": group, "enable.auto.commit": False,
                     "auto.offset.reset": "earliest", "group.instance.id": group})  # has a killed one's place at once
consumer.subscribe([topic])
with psycopg.connect(dsn) as conn:
    while True:
        record = consumer.poll(1.0)
        if record is None or record.error():
            continue
        with conn.transaction():
            conn.execute("insert into seen (id) values (%s)", [inbox.event_id(record)[1]])
            if inbox.first(conn, consumer="billing", event=record):
                conn.execute("update accounts set balance = balance + 1 where id = %s", [record.key().decode()])
        # The place that Kafka knows is far behind the work: each start meets events again.
        if record.offset() % 25 == 0:
            consumer.commit(record)
"""


@pytest.mark.slow
def test_a_redelivery_is_no_second_work(pipeline: Pipeline) -> None:
    pipeline.document["outbox"] = {"table": "public.outbox"}
    pipeline.document["source"]["tables"] = ["public.accounts"]
    pipeline.prepare(
        TABLE,
        inbox.create_sql(),
        "create table seen (id text)",
        "create table accounts (id text primary key, balance int not null default 0)",
        "insert into accounts select 'a' || g from generate_series(0, 4) g",
    )
    with pipeline.capturing():
        with pipeline.session() as session:
            for number in range(EVENTS):
                with session.transaction():
                    outbox.emit(session, "Order", f"a{number % 5}", "Paid", {"n": number})
        pipeline.settle()
    assert len(of(pipeline)) == EVENTS
    topic, kafka = f"{pipeline.name}.outbox.Order", pipeline.document["log"]["bootstrap_servers"]
    argv = [sys.executable, "-c", CONSUMER, pipeline.dsn, kafka, topic, f"{pipeline.name}-billing"]
    for kill in range(KILLS):
        before, consumer = seen(pipeline), pipeline.spawn(*argv)
        wait_until(partial(grown, pipeline, before + 1 + kill * 7), 60)
        consumer.kill()
    consumer = pipeline.spawn(*argv)
    wait_until(lambda: pipeline.one("select sum(balance) from accounts") == EVENTS, 60)
    # A machine that is busy may have let the first one come to the end. Then the last one meets what it had not noted.
    wait_until(lambda: seen(pipeline) > EVENTS, 60, "no event came again, so nothing was tried")
    consumer.kill()
    assert pipeline.one("select array_agg(distinct balance) from accounts") == [EVENTS // 5]
    assert pipeline.one("select count(*) from inbox") == EVENTS


def seen(pipeline: Pipeline) -> int:
    return int(pipeline.one("select count(*) from seen"))


def grown(pipeline: Pipeline, count: int) -> bool:
    """Whether a consumer that was just started has come so far, or is through."""
    return seen(pipeline) >= count or pipeline.one("select count(*) from inbox") == EVENTS
