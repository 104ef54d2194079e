"""The tables that join, by the publication, the notes and the configuration in force."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, parse
from connectors.debezium.config import connector_config
from connectors.debezium.tables import joined_tables

A, B = TableName("crm", "a"), TableName("crm", "b")
DATABASES = ("postgres", "mysql", "mongodb")


def running(database: str, *tables: str) -> dict[str, str]:
    return connector_config(settings(database, *tables))


def settings(database: str, *tables: str) -> Settings:
    document: dict[str, Any] = {
        "name": "shop",
        "source": {
            "kind": "debezium",
            "dsn": "mongodb://cdc@h/" if database == "mongodb" else "host=h user=cdc dbname=app",
            "tables": list(tables),
        },
        "log": {"bootstrap_servers": "127.0.0.1:1"},
        "debezium": {"url": "http://127.0.0.1:1", "database": database, "database_password": "${env:PASSWORD}"},
    }
    return parse(document)


def noted(*tables: str) -> TopicsState:
    return TopicsState(cluster_id="c", tables={f"crm.{table}": f"shop.crm.{table}" for table in tables})


@pytest.mark.parametrize("database", DATABASES)
def test_h257_a_configuration_alone_proves_no_reading(database: str) -> None:
    """A deploy that failed behind it had not asked for any row."""
    both = running(database, "crm.a", "crm.b")
    assert joined_tables([A, B], [], noted("a"), both) == ("crm.b",)
    assert joined_tables([A, B], [], noted("a", "b"), both) == ()
    assert joined_tables([A, B], [], noted("a", "b"), running(database, "crm.a")) == ("crm.b",)


@pytest.mark.parametrize("database", DATABASES)
def test_h257_all_join_where_the_connector_is_gone(database: str) -> None:
    assert joined_tables([A, B], [], noted("a", "b"), None) == ("crm.a", "crm.b")
    assert joined_tables([A, B], [], None, None) == ()


def test_h197_tables_that_the_connector_never_read() -> None:
    every = running("postgres", "crm.*")
    assert joined_tables([A, B], [], noted("a", "b"), every) == ()
    assert joined_tables([A, B], [], noted("a"), every) == ("crm.b",)
    assert joined_tables([A, B], [], None, every) == ()


def test_a_table_that_the_publication_lacked_joins() -> None:
    every = running("postgres", "crm.*")
    assert joined_tables([A, B], [B], noted("a", "b"), every) == ("crm.b",)
    assert joined_tables([A, B], [B], None, every) == ("crm.b",)
