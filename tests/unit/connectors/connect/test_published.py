"""A deploy knows the tables that the connector never read."""

from __future__ import annotations

from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, parse
from connectors.connect.connector_publication import Published, with_unread
from connectors.debezium.connector_config import connector_config


def settings(tables: list[str]) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"kind": "debezium", "dsn": "host=h user=cdc dbname=app", "tables": tables},
            "log": {"bootstrap_servers": "127.0.0.1:9092"},
            "debezium": {"database_password": "${env:PASSWORD}"},
        }
    )


def noted(**tables: str) -> TopicsState:
    return TopicsState(cluster_id="k", tables={f"crm.{table}": topic for table, topic in tables.items()})


def test_h197_tables_that_the_connector_never_read() -> None:
    a, b = TableName("crm", "a"), TableName("crm", "b")
    done = Published(tables=(a, b))
    running = connector_config(settings(["crm.a"]))
    both = connector_config(settings(["crm.*"]))
    assert with_unread(done, noted(a="x", b="y"), both).added == ()
    assert with_unread(done, noted(a="x"), both).added == (b,)
    assert with_unread(done, noted(a="x", b="y"), running).added == (b,)
    assert with_unread(done, noted(a="x", b="y"), None).added == (a, b)
    assert with_unread(done, None, running).added == ()
