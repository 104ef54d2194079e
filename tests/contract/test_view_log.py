"""The doubles of a view's log keep the promises of the real one: one suite over both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import Producer

from cdc.capture.topic_specs import pipeline_topic_specs, table_topic_spec
from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import ActiveError
from cdc.record.position import Position
from cdc.record.progress import PROGRESS_KEY, Progress
from cdc.record.schema import TableSchema
from cdc.record.tables_aside import AsideState, Cause, TableState
from cdc.record.topic_names import dead_topic, progress_topic, schema_topic, state_topic, view_topic, views_topic
from cdc.settings.model import Settings, parse
from cdc.views.log_cut import Fence
from cdc.views.view_ports import ViewInput, ViewOutput
from cdc.views.view_records import ViewRecord
from cdc.wire.dead_letter import DeadLetter, Why
from cdc.wire.envelope import record_headers
from cdc.wire.records import BEGINNING, Headers, Span
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.dead_letters import DeadLetterTopic
from connectors.views.view_log import KafkaViewInput, KafkaViewOutput
from tests.contract.topics import ORDERS
from tests.memory_views import MemoryViewInput, MemoryViewOutput, MemoryViewTopic
from tests.waiting import wait_until

PARTITIONS = 2
POS = b"0" * 32
LETTER = DeadLetter(
    sink="capture",
    why=Why.REFUSED,
    topic="t",
    partition=1,
    offset=7,
    reason="larger than its topic takes",
    key=b'{"id":1}',
    value=None,
)
ASIDE = AsideState(
    table="public.t",
    epoch=1,
    state=TableState.ASIDE,
    cause=Cause.LOCKED,
    detail="a lock on it outlasted what is kept",
    since_lsn=8,
    since_ms=1,
)


@dataclass(frozen=True)
class Tables:
    """The topic of a table without records, and what capture does to the pipeline's topics."""

    source: ViewInput
    shape: TableSchema
    append: Callable[[int, str, Headers], None]
    """A record of this key to a partition, with headers behind its own."""
    progress: Callable[[Progress], None]
    put_aside: Callable[[DeadLetter], None]
    note: Callable[[AsideState, bool], None]
    """Write the document of a table that is set aside, or take it back."""

    @property
    def topic(self) -> str:
        return self.shape.topic


@pytest.fixture(params=["memory", "kafka"])
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    if request.param == "memory":
        yield memory_tables()
        return
    settings = pipeline(request)
    shape = replace(ORDERS, topic=f"{settings.name}.public.orders")
    own = pipeline_topic_specs(settings.log, settings.name)
    TopicAdmin(settings.log).create([*own, table_topic_spec(settings.log, shape.topic)])
    KafkaCompactedTopic(settings.log, schema_topic(settings.name)).write([(shape.topic_key(), shape.to_json())])
    state = KafkaCompactedTopic(settings.log, state_topic(settings.name))
    producer = Producer({"bootstrap.servers": settings.log.bootstrap_servers})

    def produce(topic: str, partition: int, key: bytes, value: bytes, headers: Any = None) -> None:
        producer.produce(topic, value, key, partition, headers=headers)
        assert producer.flush(30) == 0

    def note(document: AsideState, stands: bool) -> None:
        state.write([(document.key(), document.to_json() if stands else None)])

    with closing(KafkaViewInput(settings, 60.0, 86_400.0)) as source:
        yield Tables(
            source,
            shape,
            lambda partition, key, more: produce(shape.topic, partition, key.encode(), b"{}", [*own_headers(), *more]),
            lambda progress: produce(progress_topic(settings.name), 0, PROGRESS_KEY, progress.to_json()),
            lambda letter: DeadLetterTopic(settings.log, dead_topic(settings.name)).write([letter]),
            note,
        )


def pipeline(request: pytest.FixtureRequest) -> Settings:
    """The settings of a pipeline of two partitions on the real broker."""
    return parse(
        {
            "name": request.getfixturevalue("topic_prefix"),
            "source": {"dsn": "host=none", "tables": ["public.*"]},
            "log": {"bootstrap_servers": request.getfixturevalue("kafka"), "partitions": PARTITIONS},
        }
    )


def own_headers() -> list[tuple[str, bytes]]:
    return [("pos", POS), ("op", b"c"), ("ver", b"1")]


def memory_tables() -> Tables:
    source = MemoryViewInput({ORDERS.topic: ORDERS})

    def append(partition: int, key: str, more: Headers) -> None:
        records = source.partitions.setdefault((ORDERS.topic, partition), [])
        if more:
            source.headers[ORDERS.topic, partition, len(records)] = (*own_headers(), *more)
        records.append((len(records), (key.encode(), b"{}", POS, b"c", b"1")))

    def progress(record: Progress) -> None:
        source.newest, source.progress_ms = record, SYSTEM_CLOCK.now_ns() // 1_000_000

    def note(document: AsideState, stands: bool) -> None:
        if stands:
            source.state[document.key()] = document.to_json()
        else:
            del source.state[document.key()]

    return Tables(source, ORDERS, append, progress, source.dead.append, note)


def test_the_newest_progress_record_is_known_with_its_time(tables: Tables) -> None:
    assert (tables.source.progress(), tables.source.progress_ms) == (None, 0)
    begun_ms = SYSTEM_CLOCK.now_ns() // 1_000_000
    for lsn in (8, 16):
        tables.progress(Progress(epoch=1, lsn=lsn, offsets={tables.topic: {0: 1}}))
    wanted = Progress(epoch=1, lsn=16, offsets={tables.topic: {0: 1}})
    wait_until(lambda: tables.source.progress() == wanted)
    assert begun_ms <= tables.source.progress_ms <= SYSTEM_CLOCK.now_ns() // 1_000_000


def test_h443_few_looks_reach_the_newest_progress_record(tables: Tables) -> None:
    for lsn in range(1, 301):
        tables.progress(Progress(epoch=1, lsn=lsn, offsets={}))
    seen: list[int] = []

    def is_newest() -> bool:
        if (newest := tables.source.progress()) is not None:
            seen.append(newest.lsn)
        return seen[-1:] == [300]

    wait_until(is_newest, 30)
    # The first may have been while the consumer fetched.
    assert len(seen) <= 5


def test_h185_records_beyond_offsets_are_seen_by_partition(tables: Tables) -> None:
    assert not tables.source.beyond({tables.topic: {}})
    tables.append(0, "a", ())
    assert tables.source.beyond({tables.topic: {}})
    assert not tables.source.beyond({tables.topic: {0: 1}})
    tables.append(1, "b", ())
    assert tables.source.beyond({tables.topic: {0: 1}})
    assert not tables.source.beyond({tables.topic: {0: 1, 1: 1}})
    assert not tables.source.beyond({})


def test_spans_bring_their_records_with_all_headers(tables: Tables) -> None:
    more: Headers = (("seen_lsn", b"16"),)
    for number, key in enumerate("abcd"):
        tables.append(0, key, more if number == 2 else ())
    tables.append(1, "e", ())
    spans = [Span(tables.topic, 0, 1, 3), Span(tables.topic, 1, BEGINNING, 1)]
    lots = list(tables.source.read(spans))
    found = [(lot.partition, *one) for lot in lots for one in zip(lot.offsets, lot.keys, lot.values, strict=True)]
    assert sorted(found) == [(0, 1, b"b", b"{}"), (0, 2, b"c", b"{}"), (1, 0, b"e", b"{}")]
    assert {mark for lot in lots for mark in zip(lot.pos, lot.op, lot.ver, strict=True)} == {(POS, b"c", b"1")}
    headers = [(lot.offsets[number], dict(found)["seen_lsn"]) for lot in lots for number, found in lot.headers.items()]
    assert headers == [(2, b"16")]
    assert list(tables.source.read([Span(tables.topic, 0, 2, 2)])) == []


def test_the_shape_of_a_record_is_found_by_its_version(tables: Tables) -> None:
    assert tables.source.shape(tables.topic, 1) == tables.shape


def test_letters_are_read_on_from_where_they_were_read_to(tables: Tables) -> None:
    assert tables.source.letters(0) == ([], 0)
    tables.put_aside(LETTER)
    found, behind = tables.source.letters(0)
    assert (list(found), behind) == ([LETTER], 1)
    tables.put_aside(replace(LETTER, offset=8))
    found, behind = tables.source.letters(behind)
    assert ([letter.offset for letter in found], behind) == ([8], 2)
    assert tables.source.letters(behind) == ([], 2)


def test_documents_say_which_tables_are_set_aside_now(tables: Tables) -> None:
    assert dict(tables.source.documents()) == {}
    tables.note(ASIDE, True)
    assert dict(tables.source.documents()) == {ASIDE.key(): ASIDE.to_json()}
    tables.note(ASIDE, False)
    assert dict(tables.source.documents()) == {}


def test_the_times_that_the_cleaner_keeps_are_positive(tables: Tables) -> None:
    assert tables.source.retention_s > tables.source.compaction_lag_s > 0


@dataclass(frozen=True)
class View:
    """A view's empty topic. ``open``: its writer, from here on the only one."""

    open: Callable[[], ViewOutput]
    topic: str

    def record(self, partition: int, key: str) -> ViewRecord:
        return ViewRecord(self.topic, partition, key.encode(), b"{}", own_headers())


@pytest.fixture(params=["memory", "kafka"])
def view(request: pytest.FixtureRequest) -> View:
    if request.param == "memory":
        memory = MemoryViewTopic()
        return View(lambda: MemoryViewOutput(memory), "v")
    settings = pipeline(request)
    topic = view_topic(settings.name, "v", 1)
    names = (topic, views_topic(settings.name))
    TopicAdmin(settings.log).create([table_topic_spec(settings.log, name) for name in names])
    return View(lambda: KafkaViewOutput(settings, "v", 1, topic, PARTITIONS), topic)


def wait_for(output: ViewOutput, claim: Fence, keys: list[bytes]) -> None:
    """A commit is answered before its markers are in the topics: a reader may see it a moment later."""
    wait_until(lambda: output.claimed() == claim, 30, output.claimed)
    wait_until(lambda: sorted(output.behind({})[0]) == keys, 30, lambda: output.behind({}))


def test_v4_records_and_claim_are_committed_together(view: View) -> None:
    output = view.open()
    assert output.behind({}) == ([], {})
    assert output.claimed() is None
    output.publish([view.record(0, "a"), view.record(1, "b"), view.record(0, "c")], Fence(1, 800))
    wait_for(view.open(), Fence(1, 800), [b"a", b"b", b"c"])


def test_v4_the_ends_of_a_commit_lie_behind_its_records(view: View) -> None:
    output = view.open()
    ends = output.publish([view.record(0, "a"), view.record(1, "b")], Fence(1, 800))
    assert sorted(ends) == [0, 1]
    output.publish([view.record(0, "c")], None)
    wait_for(output, Fence(1, 800), [b"a", b"b", b"c"])
    keys, reached = view.open().behind(ends)
    assert keys == [b"c"]
    assert (reached[0] > ends[0], reached[1]) == (True, ends[1])
    assert view.open().behind(reached) == ([], reached)


def test_h244_the_newest_position_behind_the_ends_is_known(view: View) -> None:
    output = view.open()
    output.behind({})
    assert output.newest() is None
    headers = record_headers(Position(1, 816, 1), "u", 1)
    output.publish([view.record(0, "a"), ViewRecord(view.topic, 1, b"b", b"{}", headers)], Fence(1, 800))
    wait_for(output, Fence(1, 800), [b"a", b"b"])
    again, rest = view.open(), view.open()
    _, ends = again.behind({})
    assert again.newest() == Position(1, 816, 1), "the claim is below it"
    rest.behind(ends)
    assert rest.newest() is None


def test_a_claim_may_come_without_records_and_the_reverse(view: View) -> None:
    output = view.open()
    output.publish([view.record(0, "a")], None)
    output.publish([], Fence(1, 800))
    wait_for(output, Fence(1, 800), [b"a"])
    output.publish([view.record(0, "b")], None)
    wait_for(output, Fence(1, 800), [b"a", b"b"])
    output.publish([], Fence(2, 8))
    wait_for(output, Fence(2, 8), [b"a", b"b"])


def test_a_reason_for_not_publishing_changes_no_claim(view: View) -> None:
    output = view.open()
    output.publish([view.record(0, "a")], Fence(1, 800))
    output.tell(["the log lacks rows of public.t"])
    wait_for(view.open(), Fence(1, 800), [b"a"])
    again = view.open()
    assert again.claimed() == Fence(1, 800)
    again.tell([])
    wait_for(again, Fence(1, 800), [b"a"])


def test_h16_a_second_writer_ends_the_first_one(view: View) -> None:
    first = view.open()
    first.publish([view.record(0, "a")], Fence(1, 8))
    second = view.open()
    with pytest.raises(ActiveError, match="another runner keeps this view now"):
        first.publish([view.record(0, "of the first")], Fence(1, 16))
    second.publish([view.record(0, "b")], Fence(1, 24))
    wait_for(second, Fence(1, 24), [b"a", b"b"])
