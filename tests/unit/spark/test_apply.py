"""A batch sorted and applied: what is set aside, which version of a refused key shows, and what a letter holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import orjson
import pyarrow as pa
import pytest

from cdc.record.position import Position
from cdc.record.progress import Offsets, Progress
from cdc.wire.dead_letter import DeadLetter, Why
from sinks.contract.batch import Event, events_of
from sinks.contract.batch_plan import event_rows
from sinks.contract.memory_store import MemoryStore
from sinks.contract.port import Applied, Refused, Schemas, Sink
from sinks.contract.table_places import SchemaBook
from spark.records.foreign_records import FOREIGN, LogReach
from spark.stores.apply import (
    Outcome,
    Rules,
    apply_events,
    apply_sorted,
    compact,
    earlier,
    events_of_letters,
    letters_of,
    refused_letters,
    replayed,
    sort_out,
    split_parked,
    with_keys,
)
from tests.unit.spark.doubles import orders
from tests.unit.spark.records import TOPIC, KafkaRecord, records_of, sound
from tests.unit.spark.test_store import TABLE, row

BOOK = SchemaBook([orders()])
RULES = Rules(book=BOOK)
OTHER = "shop.public.others"
KEY = b'{"id":1}'
FLOOR = KafkaRecord(b'{"__truncate":"public.orders"}', None, sound(400, op="t"), 40)
STRANGER = KafkaRecord(b"x", b"\x00", [("who", b"me")], 50)


@dataclass
class Counted:
    """A store in memory, and the offsets that each call brought."""

    memory: MemoryStore = field(default_factory=MemoryStore)
    calls: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sink = self.memory.open().sink
        self.prepare, self.show, self.close = self._sink.prepare, self._sink.show, self._sink.close

    def apply(self, events: pa.Table, schemas: Schemas) -> Applied:
        self.calls.append(offsets_of(events))
        return self._sink.apply(events, schemas)

    def status(self) -> str | None:
        stored = self.memory.table(TABLE).get("1")
        return orjson.loads(stored.row)["status"] if stored is not None and stored.row is not None else None


def offsets_of(some: pa.Table) -> list[int]:
    """In their order."""
    return [event.offset for event in event_rows(some.sort_by("offset"))]


def broken(offset: int) -> KafkaRecord:
    return row(1, offset)._replace(value=b'{"before":null,"aft')


def events(*records: KafkaRecord) -> pa.Table:
    return sort_out(records_of(*records), RULES).events


def without_key(some: pa.Table) -> pa.Table:
    return some.set_column(3, "key", pa.nulls(some.num_rows, pa.binary()))


def refusal(offset: int, key: bytes | None = KEY, pos: str | None = "", op: str | None = "u") -> Refused:
    place = Position(1, 8 * (offset + 1), 1).text() if pos == "" else pos
    return Refused(
        topic=TOPIC, partition=0, offset=offset, key=key, value=None, pos=place, op=op, ver=None, reason="no"
    )


@pytest.mark.parametrize(("bad", "shown", "tries"), [(0, "good", 1), (1, "good", 2), (3, "good", 4), (4, None, 4)])
def test_h67_up_to_three_versions_before_a_refused_one_are_tried(bad: int, shown: str | None, tries: int) -> None:
    """The bound keeps a key with many broken versions from holding up the batch."""
    store = Counted()
    applied = apply_events(events(row(1, 6, status="good"), *(broken(7 + n) for n in range(bad))), store, BOOK)
    assert (store.status(), len(store.calls)) == (shown, tries)
    assert [one.offset for one in applied.refused] == [7 + n for n in reversed(range(bad))]


def test_h67_a_refused_key_without_an_earlier_event_is_left() -> None:
    store = Counted()
    applied = apply_events(events(broken(7)), store, BOOK)
    assert (store.calls, len(applied.refused)) == ([[7]], 1)


def test_h67_events_before_a_refused_newest_are_asked_for() -> None:
    store, asked = Counted(), []
    every = events(row(1, 6, status="good"), broken(7), row(2, 8))

    def history(keys: Mapping[str, list[bytes]]) -> pa.Table:
        asked.append(dict(keys))
        return with_keys(every, dict(keys))

    apply_events(pa.concat_tables([every.slice(1), without_key(every.slice(0, 1))]), store, BOOK, history)
    assert asked == [{TOPIC: [KEY]}]
    assert (store.status(), store.calls[1:]) == ("good", [[6]])


@pytest.mark.parametrize("order", [(7, 8), (8, 7)])
def test_h67_earlier_is_what_lies_before_each_refused_event(order: tuple[int, int]) -> None:
    every = events(row(1, 5), row(1, 6), row(1, 7), row(1, 8), row(2, 4), row(1, 3)._replace(topic=OTHER))
    found = earlier(every, [refusal(offset) for offset in order])
    assert offsets_of(found) == [5, 6]


@pytest.mark.parametrize("one", [refusal(9, key=None), refusal(9, pos=None), refusal(9, op="t")])
def test_h67_nothing_is_earlier_than_what_has_no_place(one: Refused) -> None:
    every = events(row(1, 6))
    assert earlier(pa.concat_tables([every, without_key(every)]), [one]).num_rows == 0


def test_h67_a_floor_is_no_earlier_version_of_a_key() -> None:
    assert offsets_of(earlier(events(FLOOR._replace(key=KEY, offset=4), row(1, 6)), [refusal(99)])) == [6]


def test_records_are_sorted_by_kind() -> None:
    ahead = row(7, 60, lsn=1 << 40)
    reach = LogReach(Progress(epoch=1, lsn=1000, offsets={TOPIC: {0: 99}}))
    parked = {TOPIC: {b'{"id":2}': (0, 7)}}
    found = sort_out(
        records_of(row(1, 6), row(2, 6), row(2, 7), FLOOR, STRANGER, ahead), replace(RULES, reach=reach, parked=parked)
    )
    assert offsets_of(found.events) == [6, 6, 40]
    assert offsets_of(found.floors) == [40]
    assert offsets_of(found.behind) == [7]
    assert [(one.offset, one.reason == FOREIGN) for one in found.unreadable] == [(50, False), (60, True)]
    assert [(one.offset, one.why) for one in letters_of(found)] == [
        (50, Why.UNREADABLE), (60, Why.UNREADABLE), (7, Why.BEHIND),
    ]  # fmt: skip
    assert letters_of(found.unheld({TOPIC})) == ()


def test_only_a_held_table_s_records_go_unreadable_or_not() -> None:
    found = sort_out(records_of(row(1, 6), STRANGER, STRANGER._replace(topic=OTHER)), RULES).unheld({TOPIC})
    assert (found.events.num_rows, [one.topic for one in found.unreadable]) == (0, [OTHER])


@pytest.mark.parametrize(
    ("first", "offsets", "again"),
    [
        ((1, 7), {TOPIC: {1: 6}}, True),
        ((1, 7), {TOPIC: {1: 7}}, False),
        ((1, 7), {TOPIC: {0: 9, 1: 6}}, True),
        ((1, 7), {TOPIC: {0: 6, 1: 9}}, False),
        ((1, 1), {}, True),
        ((1, 0), {}, False),
    ],
)
def test_h67_a_key_is_replayed_if_its_first_letter_is_ahead(
    first: tuple[int, int], offsets: Offsets, again: bool
) -> None:
    parked = {TOPIC: {KEY: first}}
    behind = split_parked(events(row(1, 7)._replace(partition=1)), parked)[1]
    assert replayed(behind, parked, offsets) == ({TOPIC: [KEY]} if again else {})


def test_nothing_waits_where_nothing_is_parked() -> None:
    free, behind = split_parked(events(row(1, 6)), {})
    assert (free.num_rows, behind.num_rows) == (1, 0)


def test_a_batch_is_compacted_to_what_decides() -> None:
    """A key whose newest is a delete lacks nothing. A version that nobody knows yet names no columns that may lack."""
    gone = KafkaRecord(b'{"id":2}', None, sound(200, op="d"), 9)
    lacking = row(3, 11, status="__debezium_unavailable_value")
    every = [row(1, 6), row(1, 7), row(2, 8), gone, row(3, 10), lacking]
    made = events(*every)
    assert offsets_of(compact(made, BOOK)) == [7, 9, 10, 11]
    assert offsets_of(compact(made, SchemaBook())) == [7, 9, 11]
    assert offsets_of(compact(made.slice(0, 4), BOOK)) == [7, 9]
    # Each record of a history is a row.
    assert offsets_of(compact(made, SchemaBook([replace(orders(), history=True)]))) == offsets_of(made)


def test_outcomes_are_summed() -> None:
    assert Outcome().records == 0
    both = Outcome(records=3, letters=refused_letters([refusal(1)])) + Outcome(records=4)
    assert (both.records, [one.offset for one in both.letters]) == (7, [1])


def test_h67_a_letter_holds_every_header_of_its_record() -> None:
    more: list[tuple[str, bytes | None]] = [*sound(64), ("trace", b"\xff"), ("none", None)]
    sink: Sink = Counted()
    good, bad = (KafkaRecord(KEY, value, more, 7) for value in (row(1, 7).value, b"{"))
    [refused] = apply_sorted(sort_out(records_of(bad), RULES), sink, BOOK).letters
    parked = replace(RULES, parked={TOPIC: {KEY: (0, 6)}})
    [behind] = apply_sorted(sort_out(records_of(good), parked), sink, BOOK).letters
    assert refused.headers == behind.headers == tuple(more)


def test_h67_a_letter_without_its_record_has_the_headers_it_had() -> None:
    [letter] = refused_letters([refusal(7)])
    assert letter.headers == (("pos", Position(1, 64, 1).text().encode()), ("op", b"u"))
    [bare] = refused_letters([refusal(7, pos=None, op=None)])
    assert bare.headers == ()


def test_a_letter_s_headers_that_cannot_be_read_are_none_of_ours() -> None:
    headers = (("pos", None), ("op", b"\xff"), ("ver", b"one"), ("other", b"\xfe"))
    letter = DeadLetter(
        sink="cache", why=Why.REFUSED, topic=TOPIC, partition=0, offset=7, reason="no", key=KEY, value=None,
        headers=headers,
    )  # fmt: skip
    event = Event(TOPIC, 0, 7, KEY, None, "", "\ufffd", None)
    assert event_rows(events_of_letters([letter])) == [event]
    assert events_of([event]).equals(events_of_letters([letter]))
