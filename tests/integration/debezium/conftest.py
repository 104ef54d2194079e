"""A pipeline by Debezium for each test, its connector removed afterwards."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.process.errors import CdcError
from cdc.settings.model import Settings, parse
from connectors.debezium.connector import Connector
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from tests.conftest import Stack
from tests.integration.debezium.mariadb import ORDERS, MariaDb, mariadb_server
from tests.processes import ProcessStack
from tests.settings_file import asking_seldom
from tests.waiting import wait_until

FULL = """
create function whole_rows() returns event_trigger language plpgsql as $$
declare made record;
begin
  for made in select * from pg_event_trigger_ddl_commands() where object_type = 'table' loop
    execute format('alter table %s replica identity full', made.object_identity);
  end loop;
end $$;
create event trigger whole_rows on ddl_command_end when tag in ('CREATE TABLE') execute function whole_rows();
"""
"""Each table of the database has whole rows, as Debezium needs them, unless a test makes it otherwise."""
QUICK = {
    "poll.interval.ms": "20",
    "retriable.restart.connector.wait.ms": "100",
    "signal.poll.interval.ms": "100",
}
"""By default Debezium looks for signals every five seconds, and joins its consumer group by seven looks."""
Record = tuple[Any, Any]
"""key, value; both parsed, the value None for a tombstone."""


class Pipeline:
    """Settings, a superuser's session with the database, and what stands in the topics."""

    def __init__(
        self, document: dict[str, Any], session: psycopg.Connection[Any], role: str, seen_from_inside: dict[str, str]
    ) -> None:
        self.document = document
        self._seen_from_inside = seen_from_inside
        document["debezium"]["options"].update(seen_from_inside)
        self.session = session
        self.role = role

    def settings(self, **debezium: Any) -> Settings:
        section = {**self.document["debezium"], **debezium}
        section["options"] = {**self._seen_from_inside, **section["options"]}
        return parse({**self.document, "debezium": section})

    def connector(self, **debezium: Any) -> Connector:
        return Connector(self.settings(**debezium))

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.session.execute(statement.encode())

    def records(self, table: str) -> list[Record]:
        """All of a table's topic, partition by partition."""
        settings = self.settings()
        topic = f"{settings.name}.{table}"
        facts = TopicAdmin(settings.log).describe([topic])
        return [
            (orjson.loads(message.key() or b"null"), orjson.loads(message.value() or b"null"))
            for partition in range(facts[topic].partitions if facts else 0)
            for message in read_range(settings.log, topic, partition)
        ]

    def arrived(self, table: str, count: int, deadline_s: float = 20.0) -> list[Record]:
        """The same, once there are so many."""

        def enough() -> list[Record]:
            found = self.records(table)
            assert len(found) >= count
            return found

        return wait_until(enough, deadline_s, f"{count} records of {table}")

    def toml(self, folder: Path, **sections: dict[str, Any]) -> Path:
        """The settings as a file, with more sections by their path (``sinks__cache``)."""
        document = {**self.document, **sections}
        if "spark" in document:
            document["spark"] = asking_seldom(document["spark"])
        lines = [f"name = {_toml(document.pop('name'))}"]
        for section, content in document.items():
            lines += [f"[{section.replace('__', '.')}]", *(f"{key} = {_toml(value)}" for key, value in content.items())]
        file = folder / "cdc.toml"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return file


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return orjson.dumps(value).decode()


def seen_from_inside(stack: Stack, database: str, kafka: str) -> dict[str, str]:
    """The options that Kafka Connect needs where it reaches the servers by other names than we do: in a container."""
    host, _, port = stack.inside("postgres").rpartition(":")
    place = conninfo_to_dict(database)
    wanted = {"signal.kafka.bootstrap.servers": stack.inside("kafka"), "database.hostname": host, "database.port": port}
    ours = {"signal.kafka.bootstrap.servers": kafka, "database.hostname": place["host"], "database.port": place["port"]}
    return {option: value for option, value in wanted.items() if value != ours[option]}


@pytest.fixture
def pipeline(
    stack: Stack, connect: str, kafka: str, database: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Pipeline]:
    """Tables ``a`` and ``b`` captured by a role of its own, whose password only the worker's file holds."""
    password = secrets.token_hex(8)
    secret = stack.hand_to_connect(f"{topic_prefix}.properties", f"password={password}\n")
    (tmp_path / "password").write_text(password, encoding="utf-8")
    place = conninfo_to_dict(database)
    with psycopg.connect(database, autocommit=True) as session:
        role = sql.Identifier(topic_prefix)
        session.execute(sql.SQL("create role {} login superuser password {}").format(role, sql.Literal(password)))
        session.execute(FULL)
        session.execute("create table a (id int primary key, v text, n numeric(10, 2) default 3)")
        session.execute("create table b (id int primary key, v text)")
        document = {
            "name": topic_prefix,
            "source": {
                "kind": "debezium",
                "dsn": make_conninfo(host=place["host"], port=place["port"], dbname=place["dbname"], user=topic_prefix),
                "password": f"file:{tmp_path}/password",
                "tables": ["public.a", "public.b"],
            },
            "log": {"bootstrap_servers": kafka, "partitions": 2},
            "debezium": {
                "url": connect,
                "database_password": f"${{file:{secret}:password}}",
                "heartbeat": "1s",
                "options": dict(QUICK),
            },
        }
        made = Pipeline(document, session, topic_prefix, seen_from_inside(stack, database, kafka))
        yield made
        with suppress(CdcError):
            made.connector().client.delete(topic_prefix)
        session.execute(sql.SQL("alter role {} nologin").format(role))
        session.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [topic_prefix])
        session.execute(sql.SQL("reassign owned by {} to current_user").format(role))
        session.execute(sql.SQL("drop owned by {}").format(role))
        session.execute(sql.SQL("drop role {}").format(role))


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
    (tmp_path / "password").write_text(password, encoding="utf-8")
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
                "password": f"file:{tmp_path}/password",
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
