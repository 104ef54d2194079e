"""Which topics belong to tables that a pattern meets."""

from __future__ import annotations

from typing import Any

from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, parse
from connectors.connect.topics import named_tables, topics_of_patterns


def settings(tables: list[str], dsn: str = "host=127.0.0.1", **debezium: Any) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"kind": "debezium", "dsn": dsn, "tables": tables, "exclude": ["crm.secret"]},
            "log": {"bootstrap_servers": "127.0.0.1:9092"},
            "debezium": {"url": "http://127.0.0.1:8083", **debezium},
        }
    )


def test_a_pattern_takes_the_topics_of_its_tables_alone() -> None:
    topics = ["shop.crm.orders", "shop.crm.secret", "shop.hr.people", "shop.state", "shop.dead", "shopping.crm.a"]
    found = topics_of_patterns(settings(["crm.*"], database="mariadb"), topics)
    assert found == {"shop.crm.orders": "crm.orders"}


def test_sql_servers_topics_have_the_database_before() -> None:
    known = settings(["dbo.*"], dsn="host=127.0.0.1 dbname=app", database="sqlserver")
    assert topics_of_patterns(known, ["shop.app.dbo.orders", "shop.app.hr.people"]) == {
        "shop.app.dbo.orders": "dbo.orders"
    }


def test_tables_that_a_pattern_meets_get_topics_like_named_ones() -> None:
    met = [TableName("public", "a"), TableName("public", "b")]
    assert named_tables(settings(["public.*", "public.a"]), met) == {
        TableName("public", "a"): "shop.public.a",
        TableName("public", "b"): "shop.public.b",
    }
