"""Which topics get a boundary when offsets are reset: all that the connector writes to."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.state import TopicsState
from connectors.connect.connector_epochs import written_topics
from sinks.sections import parse_settings

NAMES = ["shop.public.a", "shop.state", "shopping.public.a", "orders", "former", "others.public.b", "_schemas"]


@pytest.mark.parametrize(
    ("topics", "known", "written"),
    [
        ({}, None, ["shop.public.a", "shop.state"]),
        ({"public.orders": "orders"}, None, ["shop.public.a", "shop.state", "orders"]),
        # A table whose topic the settings named before: its records are there, and their order starts over as well.
        (
            {"public.orders": "orders"},
            TopicsState(cluster_id="c", tables={"public.old": "former"}),
            ["shop.public.a", "shop.state", "orders", "former"],
        ),
        ({"public.gone": "not_there"}, None, ["shop.public.a", "shop.state"]),
    ],
)
def test_h91_a_renamed_topic_gets_its_epoch_with_the_others(
    topics: dict[str, str], known: TopicsState | None, written: list[str]
) -> None:
    document: dict[str, Any] = {
        "name": "shop",
        "source": {"kind": "debezium", "dsn": "host=127.0.0.1", "tables": ["public.*"], "topics": topics},
        "log": {"bootstrap_servers": "127.0.0.1:9092"},
        "debezium": {},
    }
    assert written_topics(NAMES, parse_settings(document), known) == written
