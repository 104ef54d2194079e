"""Which topics get a boundary when offsets are reset: all that the connector writes to."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.epochs import EpochsState
from cdc.state import TopicsState
from cdc.testing import MemoryCompactedTopic
from connectors.connect.connector_epochs import note_key, written_topics
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


class SeenBefore(MemoryCompactedTopic):
    """As a program sees the notes that has read them before another one wrote."""

    def read(self) -> dict[bytes, bytes]:
        return {}

    def written(self) -> dict[bytes, bytes]:
        return super().read()


def test_h235_notes_of_one_moment_keep_each_other() -> None:
    """Sinks of two tables note a changed key at once, and a third one something else of the epochs."""
    state = SeenBefore()
    seen = EpochsState.find(state.read()) or EpochsState()
    note_key(state, "a", 1)
    note_key(state, "b", 1)
    note_key(state, "a", 1)
    moved = seen.moved_on("another server")
    state.write([(moved.key(), moved.to_json())])
    found = EpochsState.find(state.written())
    assert found is not None
    assert (found.rekeyed(), found.moved) == (frozenset({"a", "b"}), "another server")


def test_h235_an_older_epochs_note_covers_no_newer_one() -> None:
    state = MemoryCompactedTopic()
    second = EpochsState().begin({})
    state.write([(second.key(), second.to_json())])
    note_key(state, "a", 2)
    note_key(state, "a", 1)
    note_key(state, "b", 1)
    found = EpochsState.find(state.read())
    assert found is not None
    assert (found.keys, found.rekeyed()) == ({"a": 2, "b": 1}, frozenset({"a"}))
