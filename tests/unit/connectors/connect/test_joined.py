"""The tables that join, by the publication, the notes and the configuration in force."""

from __future__ import annotations

from typing import Any

from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, parse
from connectors.connect.connector_publication import Known, Published
from connectors.connect.connector_states import joined_tables
from connectors.debezium.connector_config import connector_config


def settings(*tables: str, database: str = "mysql") -> Settings:
    document: dict[str, Any] = {
        "name": "shop",
        "source": {"kind": "debezium", "dsn": "host=h user=cdc dbname=app", "tables": list(tables)},
        "log": {"bootstrap_servers": "127.0.0.1:1"},
        "debezium": {"url": "http://127.0.0.1:1", "database": database, "database_password": "${env:PASSWORD}"},
    }
    return parse(document)


def noted(*tables: str) -> TopicsState:
    return TopicsState(cluster_id="c", tables={table: f"shop.{table}" for table in tables})


def test_h257_a_configuration_alone_proves_no_reading() -> None:
    """A deploy that failed behind it had not asked for any row."""
    both = settings("crm.a", "crm.b")
    running = connector_config(both)
    assert joined_tables(both, Published(), Known(topics=noted("crm.a"), running=running)) == ("crm.b",)
    assert joined_tables(both, Published(), Known(topics=noted("crm.a", "crm.b"), running=running)) == ()
    before = connector_config(settings("crm.a"))
    assert joined_tables(both, Published(), Known(topics=noted("crm.a", "crm.b"), running=before)) == ("crm.b",)


def test_h257_all_join_where_the_connector_is_gone() -> None:
    both = settings("crm.a", "crm.b", "sales.*")
    assert joined_tables(both, Published(), Known(topics=noted("crm.a", "crm.b"))) == ("crm.a", "crm.b")
    assert joined_tables(both, Published(), Known()) == ()


def test_the_publication_says_it_where_it_is_ours() -> None:
    done = Published(added=(TableName("crm", "b"),))
    known = Known(topics=noted("crm.a"))
    assert joined_tables(settings("crm.a", "crm.b", database="postgres"), done, known) == ("crm.b",)
