"""From a real MariaDB into a store: the same commands, the same sinks."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings
from cdc.wire.debezium.reading import DebeziumChange, DebeziumReader, UnreadableRecord
from connectors.debezium.client import ConnectError
from connectors.debezium.connector import Connector
from connectors.debezium.status import advice
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from sinks.contract.batch import Event, events_of
from sinks.contract.memory_store import MemoryStore
from tests.contract.topics import Shapes as Known
from tests.integration.debezium.mariadb import SKIPPED, MariaDb
from tests.waiting import wait_until

pytestmark = SKIPPED


def stored(settings: Settings) -> dict[str, dict[str, Any] | None]:
    """A store that was given the whole topic."""
    topic = f"{settings.name}.shop.orders"
    facts = TopicAdmin(settings.log).describe([topic])
    store, shapes, events = MemoryStore(), dict[tuple[str, int], TableSchema](), []
    for partition in range(facts[topic].partitions if facts else 0):
        reader = DebeziumReader()
        for message in read_range(settings.log, topic, partition):
            offset, key, value = message.offset() or 0, message.key(), message.value()
            found = reader.read(topic, offset, key, value, next(iter(shapes.values()), None))
            assert not isinstance(found, UnreadableRecord), found
            if isinstance(found, DebeziumChange):
                if found.schema is not None:
                    shapes[topic, found.ver] = found.schema
                place = (topic, partition, offset)
                events.append(
                    Event(
                        *place, found.key, found.value, found.pos.text(), found.op, found.ver or next(iter(shapes))[1]
                    )
                )
    assert not store.open().sink.apply(events_of(events), Known(*shapes.values())).refused
    held = store.table(TableName("shop", "orders"))
    return {key: orjson.loads(row.row) if row.row is not None else None for key, row in held.items()}


def test_mariadb_end_to_end(mariadb: MariaDb, shop: Settings) -> None:
    connector = Connector(shop)
    assert connector.deploy().status.runs
    wait_until(lambda: len(stored(shop)) == 2, 30)
    first = stored(shop)["1"]
    assert first == {
        "id": 1,
        "status": "open",
        "total": "12.50",
        "big": "18446744073709551615",
        "at": "2024-01-02T03:04:05.678901Z",
        "ts": "2024-01-02T03:04:05Z",
        "d": "2024-01-02Z",
        "t": "-101:02:03Z",
        "doc": '{"a": 1}',
        "b": "AQI=",
        "flag": 1,
        "e": "a",
    }
    mariadb.run(
        "use shop; update orders set status = 'paid' where id = 1; begin; insert into orders (status) values ('t1'), "
        "('t2'); update orders set status = 't1b' where status = 't1'; commit; delete from orders where id = 2; "
        "update orders set id = 100 where id = 3; flush binary logs; update orders set total = 1 where id = 100"
    )
    truth = {
        str(row["id"]): (row["status"], row["total"])
        for row in mariadb.rows(
            "select json_object('id', id, 'status', status, 'total', cast(total as char)) from shop.orders"
        )
    }
    assert truth == {"1": ("paid", "12.50"), "4": ("t2", None), "100": ("t1b", "1.00")}

    def arrived() -> bool:
        held = {key: (row["status"], row["total"]) for key, row in stored(shop).items() if row is not None}
        assert held == truth
        return True

    wait_until(arrived, 30)
    status = connector.status()
    assert status.runs
    assert status.lag is None
    assert connector.deploy().action == "unchanged"
    connector.delete()


def payloads(settings: Settings, table: str) -> list[Any]:
    """Every record of a table's topic that is no tombstone."""
    topic = f"{settings.name}.{table}"
    facts = TopicAdmin(settings.log).describe([topic])
    messages = [m for p in range(facts[topic].partitions if facts else 0) for m in read_range(settings.log, topic, p)]
    return [orjson.loads(message.value() or b"")["payload"] for message in messages if message.value() is not None]


def ids(settings: Settings, table: str) -> set[int]:
    return {one["after"]["id"] for one in payloads(settings, table) if one["after"] is not None}


def fault_of(connector: Connector) -> str:
    return wait_until(lambda: connector.condition().fault, 60, lambda: str(connector.condition()))


def test_h130_tables_come_and_go_and_faults_name_their_cure(mariadb: MariaDb, shop: Settings) -> None:
    mariadb.run("use shop; create table items (id int primary key); insert into items values (1), (2)")

    def taking(tables: list[str], **options: str) -> Connector:
        debezium = shop.debezium
        assert debezium is not None
        quick = {**debezium.options, "signal.poll.interval.ms": "100", **options}
        source = shop.source.model_copy(update={"tables": tuple(tables)})
        changed = {"source": source, "debezium": debezium.model_copy(update={"options": quick})}
        return Connector(shop.model_copy(update=changed))

    assert taking(["shop.orders"]).deploy().added == ()
    wait_until(lambda: ids(shop, "shop.orders") == {1, 2}, 60)

    # A table that was there before: its rows, and what follows.
    done = taking(["shop.orders", "shop.items"]).deploy()
    assert (done.added, done.unread) == (("shop.items",), {})
    mariadb.run("insert into shop.items values (3)")
    wait_until(lambda: ids(shop, "shop.items") == {1, 2, 3}, 90)

    # A table that leaves.
    taking(["shop.orders"]).deploy()
    mariadb.run("insert into shop.items values (4); insert into shop.orders (status) values ('x')")
    wait_until(lambda: 3 in ids(shop, "shop.orders"), 60)
    assert 4 not in ids(shop, "shop.items")

    # A statement that Debezium cannot parse stops it until the settings say to pass such ones over.
    mariadb.run("use shop; create table aside (id int primary key) with system versioning")
    mariadb.run("use shop; alter table aside drop system versioning")
    fault = fault_of(taking(["shop.orders"]))
    assert "DDL statement couldn't be parsed" in fault
    assert "alter table aside drop system versioning" in fault
    assert "skip.unparseable.ddl" in advice(fault)
    going = taking(["shop.orders"], **{"schema.history.internal.skip.unparseable.ddl": "true"})
    assert going.deploy().status.runs
    mariadb.run("insert into shop.orders (status) values ('y')")
    wait_until(lambda: 4 in ids(shop, "shop.orders"), 60)

    # RESET MASTER: the connector waits for ever where the log was, says RUNNING, and fails at its next start.
    mariadb.run("reset master; insert into shop.orders (status) values ('z')")
    with pytest.raises(ConnectError, match="no longer available on the server") as gone:
        going.restart(failed_only=False)
        fault_of(going)
        going.require_healthy()
    assert "resnapshot" in gone.value.hint
    assert 5 not in ids(shop, "shop.orders")
    going.resnapshot()
    wait_until(lambda: 5 in ids(shop, "shop.orders"), 60)
