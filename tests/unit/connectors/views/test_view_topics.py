"""Which views a sink takes, and which tables cannot stand beside views."""

from __future__ import annotations

from cdc.record.topic_names import TableName
from cdc.views.known_views import KnownView, Views
from connectors.postgres.server.table_problems import unlike_views
from connectors.views.view_topics import taken_views


def known(*names: str) -> Views:
    made = {
        name: KnownView(
            view=name, generation=1, topic=f"shop.view.{name}.1", topic_id="", partitions=1, digest="", shape=""
        )
        for name in names
    }
    return Views(made, {})


def taken(*patterns: str) -> list[str]:
    return [table.table for table in taken_views(known("orders", "sales"), patterns)]


def test_a_sink_takes_the_views_that_it_names() -> None:
    assert taken("public.*", "view.orders") == ["orders"]
    assert taken("view.*") == ["orders", "sales"]
    assert taken('"view"."sales"') == ["sales"]


def test_patterns_for_tables_take_no_view() -> None:
    assert taken() == taken("public.*") == taken("*.*") == taken("*.orders") == []


def test_a_table_of_a_schema_called_view_is_refused() -> None:
    assert unlike_views(TableName("public", "view")) == []
    (problem,) = unlike_views(TableName("stream", "orders"), "stream")
    assert "taken for a stream" in problem.message
    (problem,) = unlike_views(TableName("view", "orders"))
    assert "would be taken for a view" in problem.message
    assert "rename its schema" in problem.hint
