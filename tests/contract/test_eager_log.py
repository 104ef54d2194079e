"""The doubles of an eager view's log keep the promises of the real one: one suite over both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer

from cdc.clock import ManualClock
from cdc.epochs import EpochsState
from cdc.errors import TopicError
from cdc.position import Position
from cdc.progress import Progress
from cdc.schema import TableSchema
from cdc.settings import Settings, parse
from cdc.state import TopicsState
from cdc.topic import TableName, state_topic, view_topic, views_topic
from cdc.topic_specs import pipeline_topic_specs, table_topic_spec
from cdc.views.eager import EagerProgress, ShownLsns, TopicsReach
from cdc.views.fences import Fence
from cdc.views.known_views import claim_key
from cdc.views.memory_views import MemoryEagerInput, MemoryEagerOutput, MemoryViewTopic
from cdc.views.view_plan import planned
from cdc.views.view_ports import ViewInput, ViewOutput
from cdc.views.view_records import ViewRecord
from cdc.views.view_state import ViewState
from cdc.wire.envelope import record_headers
from cdc.wire.records import BEGINNING, Span
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.view_eager import EagerViewInput, EagerViewOutput, SourceLooks
from connectors.view_embedded import shape_in
from connectors.view_topics import ViewTopicsChanged
from tests.unit.cdc.wire.debezium.recorded import Recorded, changes, recorded
from tests.unit.cdc.wire.debezium.test_unsaid import SILENT, record
from tests.waiting import wait_until

PARTITIONS = 2
ORDERS = [record for record in recorded("mariadb") if record.partition == 0]


def pipeline(request: pytest.FixtureRequest) -> Settings:
    return parse(
        {
            "name": request.getfixturevalue("topic_prefix"),
            "source": {"kind": "debezium", "dsn": "host=none", "tables": ["shop.*"]},
            "log": {"bootstrap_servers": request.getfixturevalue("kafka"), "partitions": PARTITIONS},
        }
    )


@dataclass(frozen=True)
class Eager:
    """A view's topic. ``open``: a writer, and what it says that cuts show."""

    open: Callable[[], tuple[ViewOutput, ShownLsns]]
    topic: str


@pytest.fixture(params=["memory", "kafka"])
def eager(request: pytest.FixtureRequest) -> Eager:
    if request.param == "memory":
        topic = MemoryViewTopic()
        return Eager(lambda: (MemoryEagerOutput(topic), ShownLsns()), "v")
    settings = pipeline(request)
    name = view_topic(settings.name, "v", 1)
    TopicAdmin(settings.log).create(
        [table_topic_spec(settings.log, name), table_topic_spec(settings.log, views_topic(settings.name))]
    )

    def opened() -> tuple[ViewOutput, ShownLsns]:
        output = EagerViewOutput(settings, "v", 1, name, PARTITIONS)
        return output, output.shown

    return Eager(opened, name)


def document(eager: Eager, partition: int, fence: Fence) -> ViewRecord:
    headers = record_headers(Position(*fence, 1), "u", 1)
    return ViewRecord(eager.topic, partition, b'{"id":1}', b"{}", headers)


def test_h198_the_newest_version_is_that_of_the_topic(eager: Eager) -> None:
    output, shown = eager.open()
    assert output.behind({}) == ([], {})
    assert output.claimed() is None
    for lsn, partition in ((24, 0), (16, 1)):
        shown.note(Fence(1, lsn), Fence(1, 11))
        output.publish([document(eager, partition, Fence(1, lsn))], Fence(1, lsn))
    again, _ = eager.open()
    keys, ends = again.behind({})
    assert (len(keys), set(ends)) == (2, {0, 1})
    assert again.claimed() == Fence(1, 24)
    rest, _ = eager.open()
    assert rest.behind(ends)[0] == []


def test_readers_are_told_what_is_shown_and_never_less(request: pytest.FixtureRequest) -> None:
    settings = pipeline(request)
    name = view_topic(settings.name, "v", 1)
    specs = [table_topic_spec(settings.log, topic) for topic in (name, views_topic(settings.name))]
    TopicAdmin(settings.log).create(specs)

    def told() -> tuple[int, int] | None:
        value = KafkaCompactedTopic(settings.log, views_topic(settings.name)).read().get(claim_key("v", 1))
        found = None if value is None else Progress.from_json(value)
        return None if found is None else (found.epoch, found.lsn)

    output = EagerViewOutput(settings, "v", 1, name, PARTITIONS)
    output.publish([], Fence(1, 8))
    assert told() is None, "nobody knows what that shows"
    output.shown.note(Fence(1, 16), Fence(1, 11))
    output.publish([], Fence(1, 24))
    # The brokers show a transaction a moment after its commit.
    wait_until(lambda: told() == (1, 11))
    again = EagerViewOutput(settings, "v", 1, name, PARTITIONS)
    again.behind({})
    again.claimed()
    again.publish([], Fence(1, 32))
    assert told() == (1, 11)
    again.shown.note(Fence(1, 40), Fence(1, 7))
    again.publish([], Fence(1, 40))
    assert told() == (1, 11)


@dataclass(frozen=True)
class Looked:
    source: ViewInput
    topic: str
    append: Callable[[list[Recorded]], None]


@pytest.fixture(params=["memory", "kafka"])
def looked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Looked]:
    real = request.param == "kafka"
    settings = pipeline(request) if real else None
    topic = f"{settings.name}.shop.orders" if settings is not None else "shop.orders"
    shape = shape_in(topic, 0, [(0, ORDERS[0].key, ORDERS[0].value)])
    assert shape is not None
    plan = planned("select o.id, o.status from orders o", [shape], search_path=("shop",))
    topics = {TableName("shop", "orders"): topic}
    with closing(ViewState(tmp_path / "state", plan, 1)) as state:
        if settings is None:
            yield memory_looked(shape, state, topics)
            return
        TopicAdmin(settings.log).create(
            [*pipeline_topic_specs(settings.log, settings.name), table_topic_spec(settings.log, topic)]
        )
        producer = Producer({"bootstrap.servers": settings.log.bootstrap_servers})

        def append(records: list[Recorded]) -> None:
            for record in records:
                producer.produce(topic, record.value, record.key, 0)
            assert producer.flush(30) == 0

        source = EagerViewInput(settings, state, topics, ShownLsns(), compaction_lag_s=60.0, retention_s=86_400.0)
        with closing(source):
            yield Looked(source, topic, append)


def memory_looked(shape: TableSchema, state: ViewState, topics: dict[TableName, str]) -> Looked:
    source = MemoryEagerInput({shape.topic: shape}, kept=state, topics=topics)
    read: list[Recorded] = []

    def append(records: list[Recorded]) -> None:
        """As the translation has them."""
        read.extend(records)
        found = [(n, (c.key, c.value, c.pos.text().encode(), c.op.encode(), b"1")) for n, c in enumerate(changes(read))]
        source.partitions[shape.topic, 0] = found
        source.looked = TopicsReach(offsets={shape.topic: {0: len(found), 1: 0}})

    append([])
    return Looked(source, shape.topic, append)


def test_a_look_is_a_cut_of_all_that_is_there(looked: Looked) -> None:
    first = looked.source.progress()
    assert isinstance(first, EagerProgress)
    assert (first.epoch, first.offsets) == (1, {looked.topic: {0: 0, 1: 0}})
    looked.append(ORDERS[:3])
    second = looked.source.progress()
    assert second is not None
    assert second.offsets == {looked.topic: {0: 3, 1: 0}}
    lots = list(looked.source.read([Span(looked.topic, 0, BEGINNING, 3)]))
    rows = [orjson.loads(value or b"")["after"] for lot in lots for value in lot.values]
    assert [(row["id"], row["status"], row["big"]) for row in rows] == [
        (1, "open", "18446744073709551615"),
        (2, None, None),
        (1, "paid", "18446744073709551615"),
    ]
    pos = [one for lot in lots for one in lot.pos]
    assert None not in pos
    assert pos == sorted(pos, key=bytes)  # type: ignore[arg-type]
    assert {one for lot in lots for one in lot.ver} == {b"1"}
    shape = looked.source.shape(looked.topic, 1)
    assert (str(shape.table), [c.name for c in shape.key]) == ("shop.orders", ["id"])
    assert looked.source.shape(looked.topic, 0) == shape
    assert not looked.source.beyond({looked.topic: {0: 3}})
    assert looked.source.beyond({looked.topic: {0: 2}})
    assert looked.source.letters(5) == ((), 5) or looked.source.letters(0) == ([], 0)
    assert dict(looked.source.documents()) == {}


def test_h237_a_look_asks_whose_epoch_the_states_is(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The log was put back, and has given the number of the state's epoch again."""
    settings = pipeline(request)
    topic, table = f"{settings.name}.shop.orders", TableName("shop", "orders")
    shape = shape_in(topic, 0, [(0, ORDERS[0].key, ORDERS[0].value)])
    assert shape is not None
    plan = planned("select o.id, o.status from orders o", [shape], search_path=("shop",))
    specs = [*pipeline_topic_specs(settings.log, settings.name), table_topic_spec(settings.log, topic)]
    TopicAdmin(settings.log).create(specs)
    epochs = EpochsState().begin({topic: {0: 0, 1: 0}}, "another")
    KafkaCompactedTopic(settings.log, state_topic(settings.name)).write([(epochs.key(), epochs.to_json())])
    with closing(ViewState(tmp_path / "state", plan, 1)) as state:
        source = EagerViewInput(
            settings, state, {table: topic}, ShownLsns(), compaction_lag_s=60.0, retention_s=86_400.0
        )
        with closing(source):
            found = source.progress()
            assert isinstance(found, EagerProgress)
            assert (found.epoch, found.epoch_id) == (2, "another")
            with state.transaction():
                state.note(fence=Fence(2, 8), epoch_id="second", built=True)
            with pytest.raises(TopicError, match="made in another epoch 2 than the log's"):
                source.progress()


def test_h573_topics_that_are_refused_are_looked_at_again(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """By the next try at once: what was noted of them may be another one's."""
    settings = pipeline(request)
    topic, table = f"{settings.name}.shop.orders", TableName("shop", "orders")
    shape = shape_in(topic, 0, [(0, ORDERS[0].key, ORDERS[0].value)])
    assert shape is not None
    plan = planned("select o.id, o.status from orders o", [shape], search_path=("shop",))
    specs = [*pipeline_topic_specs(settings.log, settings.name), table_topic_spec(settings.log, topic)]
    TopicAdmin(settings.log).create(specs)
    noted = TopicsState(cluster_id="", topics={}, tables={str(table): "another"})
    KafkaCompactedTopic(settings.log, state_topic(settings.name)).write([(noted.key(), noted.to_json())])
    with closing(ViewState(tmp_path / "state", plan, 1)) as state:
        source = EagerViewInput(
            settings, state, {table: topic}, ShownLsns(), compaction_lag_s=60.0, retention_s=86_400.0,
            looks=SourceLooks(settings, None, ManualClock()),
        )  # fmt: skip
        with closing(source):
            for _ in range(2):
                with pytest.raises(ViewTopicsChanged, match="are in the topic another"):
                    source.progress()


def test_h199_a_record_read_again_is_translated_alike(looked: Looked) -> None:
    looked.append(ORDERS[:4])
    spans = [Span(looked.topic, 0, BEGINNING, 4)]
    first = [(lot.keys, lot.values, lot.pos) for lot in looked.source.read(spans)]
    assert [(lot.keys, lot.values, lot.pos) for lot in looked.source.read(spans)] == first
    given = looked.source.read(spans)
    next(given)
    del given  # A turn that failed in between.
    rest = [key for lot in looked.source.read([Span(looked.topic, 0, 2, 4)]) for key in lot.keys]
    assert rest == [record.key for record in ORDERS[2:4]]


def test_h574_the_input_tells_such_a_null(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """An array of numbers that becomes NULL or did not change: no value of the column's type."""
    settings = pipeline(request)
    topic, table = f"{settings.name}.s.t", TableName("s", "t")
    values = [record(SILENT["numeric[]"], ["1.0"], op="c"), record(SILENT["numeric[]"], None)]
    shape = shape_in(topic, 0, [(0, b'{"id":1}', values[0])])
    assert shape is not None
    TopicAdmin(settings.log).create(
        [*pipeline_topic_specs(settings.log, settings.name), table_topic_spec(settings.log, topic)]
    )
    producer = Producer({"bootstrap.servers": settings.log.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, b'{"id":1}', 0)
    assert producer.flush(30) == 0
    with closing(ViewState(tmp_path / "state", planned("select t.id, t.v from s.t", [shape]), 1)) as state:
        source = EagerViewInput(
            settings, state, {table: topic}, ShownLsns(), compaction_lag_s=60.0, retention_s=86_400.0
        )
        with closing(source):
            assert source.progress() is not None
            lots = list(source.read([Span(topic, 0, BEGINNING, 2)]))
    assert [orjson.loads(value or b"")["after"]["v"] for lot in lots for value in lot.values] == [["1.0"], {}]
