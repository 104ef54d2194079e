"""A Kafka that asks for TLS and a login: the schema history and the signals of a real connector go through it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.process.errors import CdcError
from cdc.settings.model import Settings, parse
from connectors.debezium.connector import Connector
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from tests.fresh import fresh_name
from tests.integration.debezium.mariadb import SKIPPED, MariaDb, mariadb_server
from tests.integration.debezium.secured import Secured, secured_servers
from tests.waiting import wait_until

pytestmark = SKIPPED


@pytest.fixture
def canary() -> str:
    return f"canary{secrets.token_hex(8)}"


@pytest.fixture
def secured(tmp_path: Path, canary: str) -> Iterator[Secured]:
    folder = tmp_path / "servers"
    folder.mkdir()
    with secured_servers(folder, canary) as servers:
        yield servers


@pytest.fixture
def mariadb(tmp_path: Path) -> Iterator[MariaDb]:
    folder = tmp_path / "mariadb"
    folder.mkdir()
    with mariadb_server(folder) as server:
        yield server


@pytest.fixture
def shop(secured: Secured, mariadb: MariaDb, canary: str, tmp_path: Path) -> Iterator[Settings]:
    mariadb.run(
        f"create user cdc identified by '{canary}'; grant select, reload, show databases, replication slave, "
        "replication client, binlog monitor on *.* to cdc; create database shop; use shop; "
        "create table orders (id int primary key, v text); insert into orders values (1, 'one'), (2, 'two')"
    )
    (tmp_path / "password").write_text(canary, encoding="utf-8")
    settings = parse(
        {
            "name": fresh_name(),
            "source": {
                "kind": "debezium",
                "dsn": f"host=127.0.0.1 port={mariadb.port} user=cdc",
                "tables": ["shop.orders"],
            },
            "log": {
                "bootstrap_servers": secured.servers,
                "partitions": 1,
                "client": secured.client(),
                "client_secrets": {"sasl.password": f"file:{tmp_path}/password"},
            },
            "debezium": {
                "url": secured.connect,
                "database": "mariadb",
                "database_password": f"${{file:{secured.secret}:password}}",
                "kafka_secrets": {"sasl.password": f"${{file:{secured.secret}:password}}"},
                "options": {"poll.interval.ms": "20", "signal.poll.interval.ms": "100"},
            },
        }
    )
    yield settings
    with suppress(CdcError):
        Connector(settings).client.delete(settings.name)


def payloads(settings: Settings, topic: str) -> list[Any]:
    found = TopicAdmin(settings.log).describe([topic])
    messages = read_range(settings.log, topic, 0) if found else []
    return [orjson.loads(message.value() or b"null")["payload"] for message in messages]


def everything(settings: Settings) -> bytes:
    """Keys and values of all topics, those of the worker among them."""
    admin = TopicAdmin(settings.log)
    names = [name for name in admin.names() if name != "__consumer_offsets"]
    return b"".join(
        (message.key() or b"") + (message.value() or b"")
        for topic, facts in admin.describe(names).items()
        for partition in range(facts.partitions)
        for message in read_range(settings.log, topic, partition)
    )


@pytest.mark.long
def test_h127_history_and_signals_over_tls_and_a_login(
    secured: Secured, mariadb: MariaDb, shop: Settings, canary: str
) -> None:
    connector = Connector(shop)
    assert connector.deploy().status.runs
    topic = f"{shop.name}.shop.orders"
    wait_until(lambda: len(payloads(shop, topic)) == 2, 60)
    mariadb.run("insert into shop.orders values (3, 'three')")
    wait_until(lambda: len(payloads(shop, topic)) == 3, 60)
    history = f"{shop.name}.schema-history"
    assert list(read_range(shop.log, history, 0))

    connector.snapshot(["shop.orders"], blocking=True)
    wait_until(lambda: len(payloads(shop, topic)) == 6, 60)

    # A restart reads the history back.
    connector.restart(failed_only=False)
    mariadb.run("insert into shop.orders values (4, 'four')")
    wait_until(lambda: any(row["after"]["id"] == 4 for row in payloads(shop, topic)), 60)

    # The password stands in nothing that may be read.
    shown = [str(connector.client.running_config(connector.name)), str(connector.diff()), str(connector.status())]
    logs = [path.read_text(encoding="utf-8", errors="replace") for path in secured.logs]
    commands = [path.read_bytes().decode(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert canary not in "".join([*shown, *logs, *commands])
    assert canary.encode() not in everything(shop)
