"""Tombstones whose deletes the cleaner has taken, through a sink's query: translated, sorted out, applied."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import orjson
import pytest

from cdc.testing import MemoryCompactedTopic
from cdc.wire.debezium.reading import PartitionReader
from connectors.kafka.schema_registry import EmbeddedShapes, SchemaRegistry
from sinks.memory import MemoryStore
from sinks.table_shapes import SchemaBook
from spark.apply import Rules, apply_sorted, sort_out
from spark.debezium_feed import Translation
from spark.known_epochs import KnownEpochs
from spark.source import parse
from tests.unit.cdc.wire.debezium.recorded import Recorded
from tests.unit.spark.test_rekeyed import FORMER, TOPIC, row
from tests.unit.spark.translating import Earlier, InTasks, records

LONE = partial(PartitionReader, lone=True)


@pytest.fixture(params=[Translation, InTasks])
def way(request: pytest.FixtureRequest) -> type[Translation]:
    """Where records are read: on the driver, or by tasks."""
    found: type[Translation] = request.param
    return found


def gone(offset: int, key: int, partition: int = 0) -> Recorded:
    return Recorded(TOPIC, partition, offset, orjson.dumps({"id": str(key)}), None)


class Runs:
    """Runs of a sink over one store, each beginning behind the one before."""

    def __init__(self, way: type[Translation]) -> None:
        self._way = way
        self._registry = SchemaRegistry(MemoryCompactedTopic())
        self._epochs = KnownEpochs()
        self.store = MemoryStore()
        self._sink = self.store.open().sink
        self.letters = 0

    def run(self, *batches: list[Recorded], left: Iterable[Recorded] = ()) -> None:
        """``left``: of the records before it, those that the cleaner has left."""
        earlier = list(left)
        shapes = EmbeddedShapes(self._registry)
        translate = self._way(shapes, self._epochs, earlier=lambda: Earlier(earlier), reader=LONE)
        for some in batches:
            found = translate(records(some))
            book = SchemaBook(self._registry.versions())
            done = apply_sorted(sort_out(found, Rules(book=book)), self._sink, book)
            self.letters += len(done.letters)

    def live(self) -> set[str]:
        return {key for held in self.store.rows.values() for key, one in held.items() if one.row is not None}


@pytest.mark.parametrize("left", [[], [row(2, FORMER)], [gone(1, 1), row(2, FORMER)]])
def test_h570_the_last_row_goes_while_the_sink_is_away(way: type[Translation], left: list[Recorded]) -> None:
    runs = Runs(way)
    runs.run([row(n, FORMER) for n in range(8)])
    assert "7" in runs.live()
    # Its delete at 8 was taken with it, and the tombstone at 9 is all that is left of the key.
    runs.run([gone(9, 7)], left=left)
    assert runs.live() == {str(n) for n in range(7)}
    assert runs.letters == 0


@pytest.mark.parametrize("behind", [[row(20, FORMER)], [row(20, FORMER, op="d")], [gone(12, 6), row(20, FORMER)]])
def test_h570_the_next_record_says_how_high_it_stood(way: type[Translation], behind: list[Recorded]) -> None:
    """No store has to be asked then, and a later row of the key is never taken for the one that was deleted."""
    runs = Runs(way)
    runs.run([row(n, FORMER) for n in range(8)])
    some = [gone(9, 7), *behind]
    translate = way(EmbeddedShapes(runs._registry), KnownEpochs(), reader=LONE)
    events = parse(translate(records(some))).events
    assert set(events["op"].to_pylist()) <= {"d", "u"}
    assert events["pos"].to_pylist() == [events["pos"].to_pylist()[-1]] * events.num_rows
    runs.run(some)
    assert "7" not in runs.live()


def test_h570_a_later_row_of_the_key_stays_through_a_replay(way: type[Translation]) -> None:
    runs = Runs(way)
    later = row(30, FORMER)._replace(offset=30, key=b'{"id":"7"}')
    later = later._replace(value=(later.value or b"").replace(b'"id":"30"', b'"id":"7"'))
    runs.run([row(n, FORMER) for n in range(8)])
    log = [gone(9, 7), row(20, FORMER), later, row(31, FORMER)]
    runs.run(log)
    assert "7" in runs.live()
    for upto in range(1, 5):
        runs.run(log[:upto])
        assert ("7" in runs.live()) == (upto > 2), "it is gone while the row behind is not read again"


def test_h570_it_stands_below_a_row_of_its_own_key(way: type[Translation]) -> None:
    some = [row(3, FORMER), gone(9, 20), row(20, FORMER)]
    shapes = EmbeddedShapes(SchemaRegistry(MemoryCompactedTopic()))
    before, tombstone, behind = parse(way(shapes, KnownEpochs(), reader=LONE)(records(some))).events["pos"].to_pylist()
    assert str(before) == str(tombstone) < str(behind)


def test_h570_an_unreadable_record_between_may_be_of_the_key(way: type[Translation]) -> None:
    some = [row(3, FORMER), gone(9, 7), Recorded(TOPIC, 0, 10, b'{"id":"7"}', b"what"), row(20, FORMER)]
    events = parse(
        way(EmbeddedShapes(SchemaRegistry(MemoryCompactedTopic())), KnownEpochs(), reader=LONE)(records(some))
    )
    assert events.events["op"].to_pylist() == ["u", "d?", "u"]
    assert events.events["pos"].to_pylist()[0] == events.events["pos"].to_pylist()[1]


def test_h570_partitions_say_nothing_of_each_other(way: type[Translation]) -> None:
    some = [row(3, FORMER), gone(9, 7), row(4, FORMER, partition=1), gone(9, 8, partition=1), gone(10, 9, partition=1)]
    some.append(row(20, FORMER, partition=1))
    found = way(EmbeddedShapes(SchemaRegistry(MemoryCompactedTopic())), KnownEpochs(), reader=LONE)(records(some))
    assert parse(found).events["op"].to_pylist() == ["u", "d?", "u", "d", "d", "u"]


def test_h576_a_row_read_from_its_table_says_nothing_of_it(way: type[Translation]) -> None:
    """It stands no lower than what was read before it, which may be all that is left below the deleted row."""
    runs = Runs(way)
    runs.run([row(n, FORMER) for n in range(8)])
    asked = row(9, FORMER, op="r")
    asked = asked._replace(value=(asked.value or b"").replace(b'"snapshot":"false"', b'"snapshot":"incremental"'))
    asked = asked._replace(offset=12, value=(asked.value or b"").replace(b'[\\"80\\"', b'[\\"8\\"'))
    runs.run([gone(11, 7), asked], left=[row(2, FORMER)])
    assert "7" not in runs.live()
    assert "9" in runs.live()


def test_h576_changes_that_are_sent_again_stand_behind_it(way: type[Translation]) -> None:
    """A worker was killed: what it sends again stands below what its partition had before the tombstone."""
    runs = Runs(way)
    again = row(6, FORMER)._replace(offset=22)
    runs.run([row(n, FORMER) for n in range(3)])
    runs.run([row(9, FORMER), gone(20, 6), row(5, FORMER)._replace(offset=21), again])
    assert {"5", "6", "9"} <= runs.live()


@pytest.mark.parametrize("followed", [True, False])
def test_h570_a_topic_that_begins_with_a_tombstone(way: type[Translation], followed: bool) -> None:
    """Its shape is that of the rows behind it. A table of which no shape is known is in no store."""
    runs = Runs(way)
    runs.run([gone(0, 7), gone(1, 8, partition=1), *([row(2, FORMER)] if followed else [])])
    assert (runs.live(), runs.letters) == ({"2"} if followed else set(), 0)
    held = {key for rows in runs.store.rows.values() for key in rows}
    assert held == ({"2", "7", "8"} if followed else set())
