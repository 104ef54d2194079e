"""From a real MariaDB into a store: the same commands, the same sinks."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.debezium.read import Change, PartitionReader, Unreadable
from cdc.errors import CdcError
from cdc.schema import TableSchema
from cdc.settings import Settings, parse
from cdc.topic import TableName
from connectors.connect.connector import Connector
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import read_range
from sinks.batch import Event, events_of
from sinks.memory import MemoryStore
from tests.conftest import Stack
from tests.contract.topics import Shapes as Known
from tests.integration.debezium.mariadb import MariaDb, mariadb_server, missing_program
from tests.processes import ProcessStack
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(
    missing_program() is not None,
    reason=f"no {missing_program()} on this machine: apt-get install mariadb-server",
)
ORDERS = """
create table orders (
  id int primary key auto_increment, status varchar(20) default 'new', total decimal(10, 2), big bigint unsigned,
  at datetime(6), ts timestamp null, d date, t time, doc json, b blob, flag bool, e enum('a', 'b')
);
insert into orders (status, total, big, at, ts, d, t, doc, b, flag, e) values
  ('open', 12.50, 18446744073709551615, '2024-01-02 03:04:05.678901', '2024-01-02 03:04:05', '2024-01-02', '-101:02:03',
   '{"a": 1}', x'0102', true, 'a'),
  (null, null, null, null, null, null, null, null, null, null, null);
"""


@pytest.fixture
def mariadb(stack: Stack, tmp_path: Path) -> Iterator[MariaDb]:
    if not isinstance(stack, ProcessStack):
        pytest.skip("Kafka Connect in a container cannot reach a MariaDB on this machine's loopback address")
    folder = tmp_path / "mariadb"
    folder.mkdir()
    with mariadb_server(folder) as server:
        yield server


@pytest.fixture
def shop(mariadb: MariaDb, connect: str, kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Settings]:
    password = secrets.token_hex(8)
    (tmp_path / "db.properties").write_text(f"password={password}\n", encoding="utf-8")
    mariadb.run(f"create database shop; create user cdc identified by '{password}'; use shop; {ORDERS}")
    mariadb.run(
        "grant select, reload, show databases, replication slave, replication client, binlog monitor on *.* to cdc"
    )
    settings = parse(
        {
            "name": topic_prefix,
            "source": {
                "kind": "debezium",
                "dsn": f"host=127.0.0.1 port={mariadb.port} user=cdc",
                "tables": ["shop.orders"],
            },
            "log": {"bootstrap_servers": kafka, "partitions": 2},
            "debezium": {
                "url": connect,
                "database": "mariadb",
                "database_password": f"${{file:{tmp_path}/db.properties:password}}",
                "options": {"poll.interval.ms": "20"},
            },
        }
    )
    yield settings
    with suppress(CdcError):
        Connector(settings).client.delete(topic_prefix)


def stored(settings: Settings) -> dict[str, dict[str, Any] | None]:
    """A store that was given the whole topic."""
    topic = f"{settings.name}.shop.orders"
    facts = TopicAdmin(settings.log).describe([topic])
    store, shapes, events = MemoryStore(), dict[tuple[str, int], TableSchema](), []
    for partition in range(facts[topic].partitions if facts else 0):
        reader = PartitionReader(topic, partition)
        for message in read_range(settings.log, topic, partition):
            offset, key, value = message.offset() or 0, message.key(), message.value()
            found = reader.read(offset, key, value)
            assert not isinstance(found, Unreadable), found
            if isinstance(found, Change):
                assert found.schema is not None
                shapes[topic, found.ver] = found.schema
                place = (topic, partition, offset)
                events.append(Event(*place, found.key, found.value, found.pos.text(), found.op, found.ver))
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
