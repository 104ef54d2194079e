"""What no store takes, over every store: refused with a reason, and the rest flows."""

from __future__ import annotations

from sinks.contract.batch import Event, events_of
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.stores import Store
from tests.contract.topics import Topic, at, batch


def test_h67_poison_is_refused_and_the_rest_flows(store: Store) -> None:
    sink, topic = store.open(), Topic()
    good = topic.upsert(order(1), at(1))
    key, pos = b'{"id":2}', at(2).text()
    value = topic.envelope("u", at(2), after=order(2))
    topic.raw(None, value, pos, "u", 1)
    topic.raw(b"not json", value, pos, "u", 1)
    topic.raw(b"[2]", value, pos, "u", 1)
    topic.raw(b'{"other":2}', value, pos, "u", 1)
    topic.raw(key, b"\xff\xfe", pos, "u", 1)
    topic.raw(b'{"id":3}', value[:-5], pos, "u", 1)
    topic.raw(b'{"id":4}', value.replace(b'"status":"open"', b'"status":"open'), pos, "u", 1)
    topic.raw(b'{"id":5}', b'{"after":null}', pos, "u", 1)
    topic.raw(b'{"id":6}', value, pos, "u", 99)
    topic.raw(b'{"id":7}', value, pos, "u", None)
    topic.raw(b'{"id":8}', value, None, "u", 1)
    topic.raw(b'{"id":9}', value, "0" * 31, "u", 1)
    topic.raw(b'{"id":10}', value, pos.upper().replace("0", "F", 1), "u", 1)
    topic.raw(b'{"id":13}', value, at(2, epoch=128).text(), "u", 1)
    topic.raw(b'{"id":14}', value, "0000000101000000016b3d4800000003", "u", 1)
    topic.raw(b'{"__truncate":1}', None, at(2, epoch=2**32 - 1).text(), "t", 1)
    topic.raw(b'{"id":11}', value, pos, "x", 1)
    topic.raw(b'{"id":12}', value, pos, None, 1)
    topic.raw(b'{"__mystery":1}', None, pos, "t", 1)
    topic.raw(b'{"__sweep":1}', b"{}", pos, "t", 1)
    done = sink.sink.apply(events_of(topic.events), SHAPES)
    assert done.applied == 1
    assert sorted(refused.offset for refused in done.refused) == [e.offset for e in topic.events if e != good]
    for refused in done.refused:
        original = topic.events[refused.offset]
        assert (refused.key, refused.value, refused.pos) == (original.key, original.value, original.pos)
        assert refused.reason
        assert "open" not in refused.reason
    assert statuses(sink) == {"1": "open"}


def test_h101_a_position_too_long_to_store_differs_from_none(store: Store) -> None:
    sink, topic = store.open(), Topic()
    last = topic.upsert(order(1, "last"), at(2**40, epoch=127))
    topic.raw(b'{"id":2}', topic.envelope("u", at(1), after=order(2)), at(1, epoch=128).text(), "u", 1)
    done = sink.sink.apply(events_of(topic.events), SHAPES)
    assert [refused.offset for refused in done.refused] == [last.offset + 1]
    assert "epoch is over 127" in done.refused[0].reason
    assert statuses(sink) == {"1": "last"}


def test_events_of_a_topic_that_is_not_ours_are_refused(store: Store) -> None:
    sink = store.open()
    foreign = Event("shop.public.strange", 0, 5, b'{"id":1}', b"{}", at(1).text(), "u", 1)
    done = sink.sink.apply(batch(foreign, Topic().upsert(order(1), at(1))), SHAPES)
    assert [refused.topic for refused in done.refused] == ["shop.public.strange"]
    assert done.applied == 1
