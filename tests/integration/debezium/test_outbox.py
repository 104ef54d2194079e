"""Our outbox beside Debezium's EventRouter: one script, the same events, record by record."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from confluent_kafka import Message
from psycopg.conninfo import conninfo_to_dict

from connectors.debezium.client import ConnectClient
from connectors.debezium.config import debezium_settings
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from tests.integration.capture.pipeline import Pipeline as Native
from tests.integration.debezium.conftest import Pipeline
from tests.programs import Spawn
from tests.waiting import wait_until

TABLE = (
    "create table outbox (id uuid primary key default gen_random_uuid(), aggregatetype text not null, "
    "aggregateid text not null, type text not null, payload jsonb)"
)
Event = tuple[Any, ...]
"""key, value, and the headers that both write, by name."""


def events(settings: Any, topic: str) -> list[Event]:
    """A topic's events, sorted: partitions are read one after the other, and each key is in one of them."""
    facts = TopicAdmin(settings.log).describe([topic])
    count = facts[topic].partitions if topic in facts else 0
    found = [of(message) for partition in range(count) for message in read_range(settings.log, topic, partition)]
    return sorted(found, key=lambda one: str(one[0]))


def of(message: Message) -> Event:
    headers: Any = dict(message.headers() or [])
    return (message.key(), message.value(), headers["id"], headers["eventType"])


@pytest.mark.slow
def test_the_events_are_those_of_debeziums_router(
    pipeline: Pipeline, database: str, spawn: Spawn, tmp_path: Any
) -> None:
    document = pipeline.document
    ours = Native(
        database,
        {
            "name": document["name"],
            "source": {"dsn": database, "tables": ["public.a"]},
            "log": document["log"],
            "capture": {"http_address": ""},
            "outbox": {"table": "public.outbox"},
        },
        tmp_path,
        spawn,
    )
    ours.prepare(TABLE)
    theirs = f"{ours.name}.router"
    router = ConnectClient(debezium_settings(pipeline.settings()))
    router.put_config(theirs, config(pipeline, database, ours.settings.publication, theirs))
    try:
        wait_until(lambda: reads(ours, f"{pipeline.role}_router"), 60)
        with ours.capturing():
            with pipeline.session.transaction():
                pipeline.run(
                    insert("Order", "7", "Placed", '{"n": 1.10, "text": "\\u00e4 \\"q\\""}'),
                    insert("Order", "7", "Paid", "[1, null]"),
                    insert("Bill", "b", "Sent", "null"),
                    "insert into a values (1, 'x')",
                    "delete from outbox",
                )
            pipeline.run(insert("Order", "8", "Placed", '"a text"'), insert("Order", "7", "Shipped", "{}"))
            with pipeline.session.transaction(force_rollback=True):
                pipeline.run(insert("Order", "7", "Undone", "{}"))
            pipeline.run(insert("Order", "9", "Last", "12345678901234567890.10"))
            ours.settle()
        for kind, count in (("Order", 5), ("Bill", 1)):
            mine = events(ours.settings, f"{ours.name}.outbox.{kind}")
            assert len(mine) == count
            assert mine == wait_until(partial(complete, ours.settings, f"{theirs}.outbox.{kind}", count), 60)
    finally:
        router.delete(theirs)
        wait_until(lambda: drop(ours, f"{pipeline.role}_router"), 60)


def insert(kind: str, aggregate: str, what: str, payload: str) -> str:
    into = "insert into outbox (aggregatetype, aggregateid, type, payload)"
    return f"{into} values ('{kind}', '{aggregate}', '{what}', '{payload}')"


def complete(settings: Any, topic: str, count: int) -> list[Event]:
    found = events(settings, topic)
    assert len(found) >= count
    return found


def reads(pipeline: Native, slot: str) -> bool:
    return bool(pipeline.one("select bool_or(active) from pg_replication_slots where slot_name = %s", slot))


def drop(pipeline: Native, slot: str) -> bool:
    """The worker leaves it a moment after the connector was removed."""
    if reads(pipeline, slot):
        return False
    pipeline.execute(f"select pg_drop_replication_slot('{slot}')")
    return True


def config(pipeline: Pipeline, database: str, publication: str, name: str) -> dict[str, str]:
    place = conninfo_to_dict(database)
    seen = pipeline.document["debezium"]["options"]
    text = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "slot.name": f"{pipeline.role}_router",
        "publication.name": publication,
        "publication.autocreate.mode": "disabled",
        "topic.prefix": name,
        "snapshot.mode": "no_data",
        "table.include.list": "public.outbox",
        "database.hostname": seen.get("database.hostname", place["host"]),
        "database.port": seen.get("database.port", place["port"]),
        "database.dbname": place["dbname"],
        "database.user": pipeline.role,
        "database.password": pipeline.document["debezium"]["database_password"],
        "tombstones.on.delete": "false",
        "poll.interval.ms": "20",
        "key.converter": text,
        "value.converter": text,
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": f"{name}.outbox.${{routedByValue}}",
        "transforms.outbox.table.fields.additional.placement": "type:header:eventType",
        "topic.creation.default.partitions": "2",
        "topic.creation.default.replication.factor": "1",
    }
