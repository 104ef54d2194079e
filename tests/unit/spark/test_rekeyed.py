"""A table whose key changes under Debezium's connector: when that is noted, and when it is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
import pytest

from cdc.epochs import EpochsState
from cdc.errors import TopicError
from cdc.testing import MemoryCompactedTopic
from cdc.wire.records import Lot, Span
from connectors.kafka.schema_registry import EmbeddedShapes, SchemaRegistry
from spark.debezium_feed import Translation
from spark.known_epochs import KnownEpochs
from tests.unit.cdc.wire.debezium.recorded import Recorded
from tests.unit.spark.translating import Earlier, InTasks, records

TOPIC = "d.s.t"
FORMER, LATTER = ("id",), ("id", "v")
"""The columns of the key."""
WIDER = ("id", "v", "w")
"""The columns of a row, of a table that has got one more."""


@pytest.fixture(params=[Translation, InTasks])
def way(request: pytest.FixtureRequest) -> type[Translation]:
    """Where records are read: on the driver, or by tasks."""
    found: type[Translation] = request.param
    return found


def row(
    offset: int, key: tuple[str, ...], partition: int = 0, op: str = "u", columns: tuple[str, ...] = ("id", "v")
) -> Recorded:
    """A change with its embedded schema."""
    source = {"connector": "postgresql", "schema": "s", "table": "t", "snapshot": "false"}
    source["sequence"] = f'["{8 * (offset + 1)}","{8 * (offset + 2)}"]'
    after = {**dict.fromkeys(columns, "x"), "id": str(offset)}
    fields: list[dict[str, Any]] = [{"field": name, "type": "string", "optional": name not in key} for name in columns]
    schema = [
        {"field": "after", "type": "struct", "fields": fields},
        {"field": "source", "type": "struct"},
        {"field": "op", "type": "string"},
    ]
    payload = {"before": None, "after": after, "source": source, "op": op}
    value = orjson.dumps({"schema": {"type": "struct", "fields": schema}, "payload": payload})
    return Recorded(TOPIC, partition, offset, orjson.dumps({name: after[name] for name in key}), value)


def truncate(offset: int) -> Recorded:
    found = row(offset, FORMER, op="t")
    return found._replace(key=None)


class CutShort(Earlier):
    """``first``: partition -> its first offset that was not deleted. ``broken``: one that cannot be read at all."""

    def __init__(self, rows: list[Recorded], first: Mapping[int, int], broken: int | None) -> None:
        super().__init__(rows)
        self._first, self._broken = first, broken

    def read(self, spans: Iterable[Span]) -> Iterator[Lot]:
        for span in spans:
            if span.partition == self._broken or 0 <= span.start < self._first.get(span.partition, 0):
                raise TopicError("records are gone")
            yield from super().read([span])


class Pipeline:
    """Schema topic and notes that outlive runs. ``written``: what the topic holds."""

    def __init__(self, epochs: EpochsState | None = None) -> None:
        self.schemas = SchemaRegistry(MemoryCompactedTopic())
        self.known = KnownEpochs(epochs)

    def run(
        self,
        way: type[Translation],
        written: list[Recorded],
        *,
        read: int = 0,
        upto: int | None = None,
        earlier: Earlier | None = None,
    ) -> Translation:
        """A run that has begun behind the first ``read`` of what is written, and has read the rest, or that below
        ``upto``."""
        ends: dict[int, int] = {}
        for record in written:
            ends[record.partition] = record.offset + 1
        self.known.ends_at = {**self.known.ends_at, **ends}
        translation = way(EmbeddedShapes(self.schemas), self.known, earlier=lambda: earlier or Earlier(written))
        translation(records(written[read:upto]))
        return translation

    @property
    def noted(self) -> Mapping[str, int]:
        return self.known.state.keys

    @property
    def newest(self) -> tuple[str, ...]:
        """The key of the table's newest shape."""
        return tuple(column.name for column in self.schemas.versions()[-1].key)


@pytest.mark.parametrize(("begins", "rekeyed"), [(False, True), (True, False)])
def test_h230_another_key_is_noted_with_its_records_epoch(way: type[Translation], begins: bool, rekeyed: bool) -> None:
    """Where another epoch has begun since, what is under the former key is swept there."""
    pipeline = Pipeline(EpochsState().begin({TOPIC: {0: 2}}) if begins else None)
    pipeline.run(way, [row(0, FORMER), row(1, LATTER)])
    assert pipeline.noted == {TOPIC: 1}
    assert bool(pipeline.known.state.rekeyed()) is rekeyed


def test_h230_one_key_is_no_news(way: type[Translation]) -> None:
    pipeline = Pipeline()
    pipeline.run(way, [row(0, FORMER), row(1, FORMER), truncate(2)])
    pipeline.run(way, [truncate(0), row(1, FORMER)])
    assert pipeline.noted == {}


@pytest.mark.parametrize("partition", [0, 1])
def test_h230_a_run_that_begins_in_an_epoch_hears_of_it(way: type[Translation], partition: int) -> None:
    """What it has not read says so, in whichever partition that is. The partition of the new key may be empty."""
    pipeline = Pipeline()
    before = [row(0, FORMER), row(1, FORMER)]
    pipeline.run(way, before)
    pipeline.run(way, [*before, row(2 if partition == 0 else 0, LATTER, partition)], read=2)
    assert pipeline.noted == {TOPIC: 1}


def test_h235_a_note_that_was_lost_is_made_again(way: type[Translation]) -> None:
    """The shape is known by then, and says nothing any more."""
    pipeline = Pipeline()
    written = [row(0, FORMER), row(1, LATTER), row(2, LATTER)]
    pipeline.run(way, written)
    pipeline.known.state = EpochsState()
    pipeline.run(way, written, read=2)
    assert pipeline.noted == {TOPIC: 1}


@pytest.mark.parametrize("read", [0, 1])
def test_h236_an_epoch_that_begins_under_its_key_is_sound(way: type[Translation], read: int) -> None:
    """Nobody wrote under the new key before the reset: the new epoch's own snapshot is the first that has it."""
    pipeline = Pipeline(EpochsState().begin({TOPIC: {0: 1, 1: 0}}))
    pipeline.run(way, [row(0, FORMER)])
    pipeline.run(way, [row(0, FORMER), row(1, LATTER), row(0, LATTER, partition=1)], read=read)
    assert pipeline.noted == {}
    assert pipeline.newest == LATTER


def test_h236_a_rebuild_across_a_cured_change_notes_nothing(way: type[Translation]) -> None:
    """A slice that spans the boundary has records of both, each of its own epoch."""
    pipeline = Pipeline(EpochsState().begin({TOPIC: {0: 2}}))
    written = [row(0, FORMER), row(1, FORMER), row(2, LATTER), row(3, LATTER)]
    for _ in range(3):
        pipeline.run(way, written)
    assert pipeline.noted == {}
    assert pipeline.newest == LATTER


def test_h236_a_key_that_comes_back_is_the_tables_again(way: type[Translation]) -> None:
    """Stores take the newest shape's key for the table's: it is not the one that was given up."""
    pipeline = Pipeline(EpochsState().begin({TOPIC: {0: 1}}).begin({TOPIC: {0: 2}}))
    written = [row(0, FORMER), row(1, LATTER), row(2, FORMER), row(3, FORMER)]
    pipeline.run(way, written)
    assert (pipeline.newest, pipeline.noted) == (FORMER, {})
    written.append(row(0, FORMER, partition=1))
    for read in (0, 3, 4):
        pipeline.run(way, written, read=read)
    assert (pipeline.newest, pipeline.noted) == (FORMER, {})
    assert len(pipeline.schemas.versions()) == 3


def test_h236_a_reader_behind_takes_no_key_back(way: type[Translation]) -> None:
    """It reads what was written before the change. Another one has met the change, and noted it."""
    pipeline = Pipeline()
    written = [row(0, FORMER), row(1, FORMER), row(2, LATTER)]
    pipeline.run(way, written)
    pipeline.run(way, written[:2])
    assert (pipeline.newest, pipeline.noted) == (LATTER, {TOPIC: 1})


def test_h236_a_change_in_the_newest_epoch_is_noted_with_it(way: type[Translation]) -> None:
    pipeline = Pipeline(EpochsState().begin({TOPIC: {0: 1}}))
    pipeline.run(way, [row(0, LATTER), row(1, FORMER), row(2, LATTER)])
    assert pipeline.noted == {TOPIC: 2}
    assert pipeline.known.state.rekeyed() == {TOPIC}


@pytest.mark.parametrize("read", [0, 2])
@pytest.mark.parametrize("last", [True, False])
def test_h236_a_shape_of_an_epoch_that_is_over_takes_no_key(way: type[Translation], read: int, last: bool) -> None:
    """A second partition has a shape that nobody has numbered, under the key that the reset has ended. The key of now
    may stand in what another run has read alone."""
    pipeline = Pipeline(EpochsState().begin({TOPIC: {0: 1, 1: 2}}))
    written = [row(0, FORMER), row(1, LATTER, columns=WIDER)]
    pipeline.run(way, written[:read])
    more = [row(0, FORMER, 1), row(1, FORMER, 1, columns=WIDER), row(2, LATTER, 1, columns=WIDER)]
    pipeline.run(way, [*written, *more[: 3 if last else 2]], read=read)
    assert (pipeline.newest, pipeline.noted) == (LATTER, {})
    assert [len(shape.columns) for shape in pipeline.schemas.versions()] == [2, 3, 3, 3]


@pytest.mark.parametrize("broken", [0, 1])
def test_h236_a_partition_unread_is_no_key_that_is_alone(way: type[Translation], broken: int) -> None:
    """The first one that cannot be read hides the second one's key, or the second one its own."""
    pipeline = Pipeline()
    written = [row(0, FORMER), row(0, FORMER, 1), row(1, LATTER, 1)]
    pipeline.run(way, written)
    pipeline.known.state = EpochsState()
    pipeline.run(way, written, upto=1, earlier=CutShort(written, {}, broken))
    assert pipeline.newest == LATTER
    assert pipeline.noted == ({TOPIC: 1} if broken == 0 else {})


def test_h236_a_partition_cut_at_its_beginning_is_read(way: type[Translation]) -> None:
    """Where deleted records lie in what is looked at, those behind them are few."""
    pipeline = Pipeline()
    written = [row(0, FORMER), row(100, LATTER, 1)]
    pipeline.run(way, written)
    pipeline.known.state = EpochsState()
    pipeline.run(way, written, upto=1, earlier=CutShort(written, {1: 99}, None))
    assert (pipeline.newest, pipeline.noted) == (LATTER, {TOPIC: 1})


def test_h236_a_partition_without_records_hides_no_key(way: type[Translation]) -> None:
    """The cleaner has left none, and its end is where it was."""
    pipeline = Pipeline(EpochsState().begin({TOPIC: {0: 1}}))
    written = [row(0, FORMER), row(1, LATTER)]
    pipeline.run(way, written)
    pipeline.known.state = pipeline.known.state.begin({TOPIC: {0: 2}})
    pipeline.known.ends_at = {1: 7}
    pipeline.run(way, [*written, row(2, FORMER)], read=2)
    assert (pipeline.newest, pipeline.noted) == (FORMER, {})
