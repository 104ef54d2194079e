"""Rows of Debezium's that have come from another key, through a sink's query: H585."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from cdc.testing import MemoryCompactedTopic
from cdc.wire.format import OLD_KEY
from connectors.kafka.schema_registry import EmbeddedShapes, SchemaRegistry
from sinks.memory import MemoryStore
from sinks.table_shapes import SchemaBook
from spark.apply import Outcome, Rules, apply_sorted, sort_out
from spark.debezium_feed import Translation
from spark.known_epochs import KnownEpochs
from tests.unit.cdc.wire.debezium.test_unsaid import SILENT, record
from tests.unit.spark.records import KafkaRecord, records_of
from tests.unit.spark.translating import InTasks

MOVED = [(OLD_KEY, b'{"id":7}'), ("__debezium.context.taskId", b"0")]
OTHERS = [("__debezium.context.taskId", b"0")]
ARRAY = SILENT["numeric[]"]


def create(offset: int, value: Any, headers: Sequence[tuple[str, bytes | None]] | None) -> KafkaRecord:
    sequence = orjson.dumps([str(8 * offset + 4096), "9"]).decode()
    return KafkaRecord(
        b'{"id":1}', record(ARRAY, value, op="c", sequence=sequence), headers, offset=offset, topic="d.s.t"
    )


def applied(way: type[Translation], *rows: KafkaRecord) -> tuple[MemoryStore, Outcome]:
    registry, store = SchemaRegistry(MemoryCompactedTopic()), MemoryStore()
    found = way(EmbeddedShapes(registry), KnownEpochs())(records_of(*rows))
    book = SchemaBook(registry.versions())
    return store, apply_sorted(sort_out(found, Rules(book=book)), store.open().sink, book)


def values(store: MemoryStore) -> list[Any]:
    return [orjson.loads(one.row or b"{}")["v"] for table in store.rows.values() for one in table.values()]


@pytest.mark.parametrize("way", [Translation, InTasks])
@pytest.mark.parametrize("before", [[], [create(0, ["2.0"], None)], [create(0, ["2.0"], OTHERS)]])
def test_h585_a_null_of_a_moved_row_is_refused(way: type[Translation], before: list[KafkaRecord]) -> None:
    """It went into the store, in the place of a long array that the update of the key had left as it was."""
    store, done = applied(way, *before, create(1, None, MOVED))
    (letter,) = done.letters
    assert letter.offset == 1
    assert "became NULL or did not change" in letter.reason
    assert values(store) == [["2.0"] for _ in before]


@pytest.mark.parametrize("way", [Translation, InTasks])
@pytest.mark.parametrize(("value", "headers"), [(None, None), (None, OTHERS), (["1.0"], MOVED)])
def test_other_creates_are_taken(
    way: type[Translation], value: Any, headers: Sequence[tuple[str, bytes | None]] | None
) -> None:
    store, done = applied(way, create(1, value, headers))
    assert done.letters == ()
    assert values(store) == [value]
