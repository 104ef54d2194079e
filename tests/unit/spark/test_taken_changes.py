"""Updates that lack a value, behind a change that the cleaner has taken meanwhile, through a sink's query: H593."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from cdc.clock import ManualClock
from cdc.testing import MemoryCompactedTopic
from cdc.wire.debezium.present_run import UNBROKEN_FROM
from cdc.wire.format import UNAVAILABLE
from connectors.kafka.schema_registry import EmbeddedShapes, SchemaRegistry
from sinks.memory import MemoryStore
from sinks.table_shapes import SchemaBook
from spark.apply import Rules, apply_sorted, sort_out
from spark.debezium_feed import Translation
from spark.known_epochs import KnownEpochs
from tests.unit.cdc.wire.debezium.recorded import Recorded
from tests.unit.cdc.wire.debezium.test_unsaid import SAID, SILENT, record
from tests.unit.spark.records import KafkaRecord, records_of
from tests.unit.spark.translating import Earlier, InSlices, InTasks

TOPIC = "d.s.t"
LAG_S = 60.0
TEXT, ARRAY = (SAID["text"], "LA", UNAVAILABLE), (SILENT["numeric[]"], None, None)
"""A column, a value that is stored, and what Debezium writes where it did not change."""
Typed = tuple[dict[str, Any], Any, Any]


@pytest.fixture(params=[Translation, InTasks, InSlices])
def way(request: pytest.FixtureRequest) -> type[Translation]:
    """Where records are read: on the driver, or by tasks."""
    found: type[Translation] = request.param
    return found


class AwaySink:
    """A sink over one store, which ends and comes back."""

    def __init__(self, way: type[Translation], typed: Typed = TEXT) -> None:
        self._way, self._typed = way, typed
        self._registry, self._epochs = SchemaRegistry(MemoryCompactedTopic()), KnownEpochs()
        self.clock, self.store = ManualClock(), MemoryStore()
        self._sink = self.store.open().sink
        self.reasons: list[str] = []
        self.start([])

    def start(self, left: Sequence[int]) -> None:
        """``left``: the offsets below it that the cleaner has left."""
        earlier = [Recorded(TOPIC, 0, n, *self._bytes(n, "u", self._typed[1])) for n in left]
        shapes = EmbeddedShapes(self._registry)
        self._translate = self._way(
            shapes, self._epochs, compaction_lag_s=LAG_S, earlier=lambda: Earlier(earlier), clock=self.clock
        )

    def _bytes(self, offset: int, op: str, value: Any, key: int = 1) -> tuple[bytes, bytes]:
        sequence = orjson.dumps([str(8 * offset + 4096), "9"]).decode()
        return orjson.dumps({"id": key}), record(self._typed[0], value, op=op, sequence=sequence)

    def row(self, offset: int, op: str, value: Any, age_s: int = 0, key: int = 1) -> KafkaRecord:
        time_ms = self.clock.now_ns() // 1_000_000 - age_s * 1000
        return KafkaRecord(*self._bytes(offset, op, value, key), None, offset, TOPIC, 0, time_ms)

    def lacking(self, offset: int, age_s: int = 0) -> KafkaRecord:
        return self.row(offset, "u", self._typed[2], age_s)

    def batch(self, *rows: KafkaRecord) -> None:
        found = self._translate(records_of(*rows))
        book = SchemaBook(self._registry.versions())
        done = apply_sorted(sort_out(found, Rules(book=book)), self._sink, book)
        self.reasons += [letter.reason for letter in done.letters]

    def begin(self) -> None:
        self.batch(self.row(0, "c", self._typed[1]))
        assert self.reasons == []

    def held(self) -> list[bytes]:
        return [one.row or b"" for table in self.store.rows.values() for one in table.values()]


@pytest.mark.parametrize("typed", [TEXT, ARRAY])
@pytest.mark.parametrize("left", [[], [0]])
def test_h593_a_sink_away_while_the_cleaner_takes_a_change(
    way: type[Translation], typed: Typed, left: list[int]
) -> None:
    """The store had the value of before for good, and no letter said so: 1 is the change that was taken."""
    sink = AwaySink(way, typed)
    sink.begin()
    before = sink.held()
    sink.clock.advance(1000)
    sink.start(left)
    sink.batch(sink.lacking(2, age_s=900))
    assert len(sink.reasons) == 1
    assert "the cleaner may have taken a change" in sink.reasons[0]
    assert sink.held() == before
    assert UNBROKEN_FROM not in str(before)


@pytest.mark.parametrize("typed", [TEXT, ARRAY])
@pytest.mark.parametrize(("offset", "age_s"), [(1, 900), (2, 59), (9, 0)])
def test_a_sink_away_for_a_moment_fills_as_before(
    way: type[Translation], typed: Typed, offset: int, age_s: int
) -> None:
    """No offset is missing, or the record is so young that the cleaner took nothing for its sake."""
    sink = AwaySink(way, typed)
    sink.begin()
    sink.clock.advance(1000)
    sink.start([0])
    sink.batch(sink.lacking(offset, age_s))
    assert sink.reasons == []
    assert UNBROKEN_FROM not in str(sink.held())
    assert [orjson.loads(row)["v"] for row in sink.held()] == [typed[1]]


@pytest.mark.parametrize(("pause_s", "refused"), [(500, False), (700, True)])
def test_h593_a_query_that_stood_still_is_as_one_away(way: type[Translation], pause_s: int, refused: bool) -> None:
    sink = AwaySink(way)
    sink.begin()
    sink.clock.advance(pause_s)
    sink.batch(sink.row(2, "u", "other", key=2), sink.lacking(4, age_s=100))
    assert len(sink.reasons) == refused


def test_h593_a_row_of_this_run_fills_behind_gaps(way: type[Translation]) -> None:
    sink = AwaySink(way)
    sink.begin()
    sink.clock.advance(1000)
    sink.start([0])
    sink.batch(sink.row(3, "u", "LB", age_s=900))
    sink.batch(sink.lacking(5, age_s=800))
    assert sink.reasons == []
    assert [orjson.loads(row)["v"] for row in sink.held()] == ["LB"]


def test_h593_a_young_update_behind_a_doubtful_one(way: type[Translation]) -> None:
    sink = AwaySink(way)
    sink.begin()
    sink.clock.advance(1000)
    sink.start([0])
    sink.batch(sink.lacking(2, age_s=900), sink.lacking(3))
    assert len(set(sink.reasons)) == 1
    assert [orjson.loads(row)["v"] for row in sink.held()] == ["LA"]


def test_a_fresh_store_reads_a_cleaned_topic(way: type[Translation]) -> None:
    sink = AwaySink(way)
    sink.batch(sink.row(3, "c", "LA", age_s=900))
    sink.batch(sink.row(7, "u", "other", age_s=900, key=2), sink.lacking(9, age_s=900))
    assert sink.reasons == []
