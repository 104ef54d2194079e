"""Programs read the cache: as the sink writes it, through rebuilds, by keys of any kind."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import DamagedError, Exit, SinkError, UsageError
from cdc.read import Cache, CachedRow, NotShown, ReadRow, Token
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from cdc.record.source_lineage import SourceLineage
from cdc.wire.plain import PlainTable
from sinks.cache.cached_rows import key_text
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.sink_spec import open_sink
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, shape
from tests.hostile_documents import EVERY

SHAPES = Shapes(ORDERS)
ROW = {"id": 1, "status": "open", "note": None}
TABLE = "public.orders"


def taken(lsn: int) -> Token:
    return Token("7", 1, Lsn(lsn))


def mark(lsn: int) -> Watermark:
    return Watermark(epoch=1, lsn=lsn, lineage=SourceLineage("7", 1), topic_ids={ORDERS.topic: "id"})


def test_rows_are_read_as_the_sink_writes_them(redis_url: str) -> None:
    store, topic = open_sink(spec_for("redis", prefix="shop", options={"url": redis_url})), Topic()
    with Cache(redis_url, "shop") as cache, contextlib.closing(store):
        assert (cache.get(TABLE, 1), cache.watermark()) == (None, None)
        store.sink.apply(batch(topic.upsert(ROW, at(1)), topic.upsert({**ROW, "id": 2}, at(2))), SHAPES)
        assert cache.get(TABLE, 1) == ROW
        assert cache.rows(TABLE, [(2,), (3,), (1,)]) == [
            CachedRow({**ROW, "id": 2}, at(2)), None, CachedRow(ROW, at(1)),
        ]  # fmt: skip
        store.sink.apply(batch(topic.delete(ROW, at(3))), SHAPES)
        assert cache.get(TABLE, 1) is None
        deleted = cache.row(TABLE, 1)
        assert deleted is not None and deleted.row is None and deleted.position > at(2)
        store.commit(Watermark(epoch=1, lsn=9, offsets={ORDERS.topic: {0: 9}}))
        shown = cache.watermark()
        assert shown is not None and shown.lsn == 9


def test_a_reader_follows_a_rebuild_and_its_rollback(redis_url: str) -> None:
    """A cache that is open meanwhile never shows the generation that is no longer in use."""
    spec = spec_for("redis", prefix="shop", options={"url": redis_url})
    with contextlib.ExitStack() as opened:
        cache = opened.enter_context(Cache(redis_url, "shop"))
        for place, status in ((spec, "old"), (beside(spec, 2), "rebuilt")):
            store = opened.enter_context(contextlib.closing(open_sink(place)))
            store.sink.apply(batch(Topic().upsert({**ROW, "status": status}, at(1))), SHAPES)
            store.commit(Watermark(epoch=1, lsn=len(status), offsets={ORDERS.topic: {0: 1}}))
        generations = opened.enter_context(contextlib.closing(open_generations(spec)))
        for number, status in ((1, "old"), (2, "rebuilt"), (1, "old")):
            generations.switch(number, [ORDERS])
            assert cache.get(TABLE, 1) == {**ROW, "status": status}
            shown = cache.watermark()
            assert shown is not None and shown.lsn == len(status)


def test_what_cannot_be_read_is_one_sentence(redis_url: str) -> None:
    with Cache("redis://127.0.0.1:1/0", "shop", timeout_s=0.5) as away, pytest.raises(SinkError) as silent:
        away.get(TABLE, 1)
    assert (silent.value.exit, "127.0.0.1:1 does not answer" in silent.value.message) == (Exit.UNAVAILABLE, True)
    with Cache(redis_url, "shop") as cache:
        with pytest.raises(UsageError, match="has no schema"):
            cache.get("orders", 1)
        for value in (1.5, datetime(2026, 1, 1, tzinfo=UTC), b"x"):
            with pytest.raises(UsageError, match="a key is made of"):
                cache.get(TABLE, value)  # type: ignore[arg-type]


KINDS: dict[str, tuple[Any, Any]] = {
    "int8": (-42, -42), "text": ("a:b%c.d", "a:b%c.d"), "bool": (True, True),
    "date": ("2026-11-24Z", date(2026, 11, 24)), "numeric": ("0.000000010", Decimal("0.000000010")),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_has_the_text_that_the_sink_writes(kind: str) -> None:
    wire, value = KINDS[kind]
    table = shape(column("id", kind, key=1))
    assert key_text([value]) == PlainTable(table).key(orjson.dumps({"id": wire}))


def test_what_is_not_ours_is_no_row(redis_url: str) -> None:
    with Cache(redis_url, "shop") as cache, redis.Redis.from_url(redis_url) as server:
        for number, fields in enumerate(({"row": "{}"}, {"pos": "1", "row": "{}"}, {"pos": at(1).text(), "row": "{"})):
            server.hset(f"shop:{TABLE}:{number}", mapping=fields)
            assert cache.row(TABLE, number) is None


@given(st.lists(st.text(), min_size=1), st.lists(st.text(), min_size=1))
def test_different_keys_have_different_texts(one: list[str], other: list[str]) -> None:
    assert (key_text(one) == key_text(other)) == (one == other)


def test_a_row_is_refused_that_does_not_show_the_readers_write(redis_url: str) -> None:
    """A switch between the wait and the read: the generation that is in use then may be behind the one before."""
    spec, topic = spec_for("redis", prefix="shop", options={"url": redis_url}), Topic()
    with contextlib.ExitStack() as opened:
        cache = opened.enter_context(Cache(redis_url, "shop"))
        one, two = (opened.enter_context(contextlib.closing(open_sink(place))) for place in (spec, beside(spec, 2)))
        for store in (one, two):
            store.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
            store.commit(mark(100))
        paid = {**ROW, "status": "paid"}
        one.sink.apply(batch(topic.upsert(paid, at(2))), SHAPES)
        one.commit(mark(200))
        assert cache.get(TABLE, 1, since=taken(200)) == paid
        generations = opened.enter_context(contextlib.closing(open_generations(spec)))
        generations.switch(2, [ORDERS])
        with pytest.raises(NotShown, match="stands at 0/64, and the token at 0/C8"):
            cache.rows(TABLE, [(1,)], since=taken(200))
        assert cache.get(TABLE, 1) == ROW
        two.sink.apply(batch(topic.upsert(paid, at(2))), SHAPES)
        two.commit(mark(200))
        assert cache.get(TABLE, 1, since=taken(200)) == paid


def test_notes_that_are_not_the_sinks_are_said_as_such(redis_url: str) -> None:
    with Cache(redis_url, "shop") as cache, redis.Redis.from_url(redis_url) as server:
        server.hset("shop:_watermark", "generation", "garbage")
        for look in (cache.watermark, lambda: cache.get(TABLE, 1)):
            with pytest.raises(DamagedError, match="the generation in use, as the cache says it"):
                look()
        server.delete("shop:_watermark")
        server.set("shop:_watermark", "a string")
        for look in (cache.watermark, lambda: cache.get(TABLE, 1)):
            with pytest.raises(SinkError, match="is no hash, and so not of the sink"):
                look()
        server.delete("shop:_watermark")
        server.set(f"shop:{TABLE}:1", "a string")
        assert cache.get(TABLE, 1) is None


def test_a_user_without_rights_is_told_so(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as server:
        server.execute_command("ACL SETUSER", "stranger", "on", ">secret", "~other:*", "+@all")
        url = redis_url.replace("redis://", "redis://stranger:secret@")
        with Cache(url, "shop") as cache, pytest.raises(SinkError, match="refuses a reader"):
            cache.get(TABLE, 1)
        server.execute_command("ACL DELUSER", "stranger")


TYPES: dict[str, tuple[str, Any, Any]] = {
    "born": ("date", "1950-04-11Z", date(1950, 4, 11)),
    "never": ("date", "infinity", "infinity"),
    "caesar": ("date", "-0043-03-15Z", "-0043-03-15Z"),
    "opens": ("time", "08:00:00Z", time(8)),
    "midnight": ("time", "24:00:00Z", "24:00:00Z"),
    "shift": ("timetz", "08:00:00.5Z", time(8, 0, 0, 500_000, UTC)),
    "made": ("timestamp", "2016-11-04T13:51:30.1Z", datetime(2016, 11, 4, 13, 51, 30, 100_000)),
    "sent": ("timestamptz", "2016-11-04T11:51:30.123456Z", datetime(2016, 11, 4, 11, 51, 30, 123_456, UTC)),
    "takes": ("interval", "P0Y0M0DT9H30M0S", timedelta(hours=9, minutes=30)),
    "back": ("interval", "P0Y0M-1DT0H0M-1.5S", timedelta(days=-1, seconds=-1.5)),
    "a_month": ("interval", "P0Y1M0DT0H0M0S", "P0Y1M0DT0H0M0S"),
    "price": ("money", "1234.10", Decimal("1234.10")),
    "rate": ("numeric", "NaN", Decimal("NaN")),
    "far": ("float8", "-Infinity", float("-inf")),
    "bytes": ("bytea", "3q2+7w==", bytes.fromhex("deadbeef")),
    "uid": ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    "name": ("text", "1950-04-11Z", "1950-04-11Z"),
    "nothing": ("date", None, None),
}


def test_y15_values_are_of_python_s_types_where_asked(redis_url: str) -> None:
    columns = [column(name, kind) for name, (kind, _, _) in TYPES.items()]
    table = shape(column("id", "int8", key=1), *columns, column("days", "date", array=True), table="typed")
    wire = {"id": 1, **{name: plain for name, (_, plain, _) in TYPES.items()}, "days": ["2020-02-29Z", None]}
    store, topic = open_sink(spec_for("redis", prefix="shop", options={"url": redis_url})), Topic(table)
    with contextlib.closing(store), Cache(redis_url, "shop", typed=True) as cache, Cache(redis_url, "shop") as plain:
        store.sink.apply(batch(topic.upsert(wire, at(1))), Shapes(table))
        assert plain.get("public.typed", 1) == wire
        found = cache.get("public.typed", 1)
        filled = cache.read_through("public.typed", [2], lambda: ReadRow({**wire, "id": 2}, taken(9)))
    wanted = {"id": 1, **{name: value for name, (_, _, value) in TYPES.items()}, "days": [date(2020, 2, 29), None]}
    assert repr(found) == repr(wanted), "NaN is not equal to itself"
    assert repr(filled) == repr({**wanted, "id": 2})


def test_y18_a_table_that_the_cache_does_not_have(redis_url: str) -> None:
    store, topic = open_sink(spec_for("redis", prefix="shop", options={"url": redis_url})), Topic()
    with contextlib.closing(store), Cache(redis_url, "shop") as cache:
        assert cache.get("public.nothing", 1) is None, "before any watermark nothing is known"
        store.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
        store.commit(mark(9))
        assert cache.get(TABLE, 7) is None
        with pytest.raises(UsageError, match=r"fed with no table public\.nothing"):
            cache.get("public.nothing", 1)


def test_w6_a_document_of_any_depth_is_read(redis_url: str) -> None:
    table = shape(column("id", "int8", key=1), column("doc", "json"), table="documents")
    store, topic = open_sink(spec_for("redis", prefix="shop", options={"url": redis_url})), Topic(table)
    with contextlib.closing(store), Cache(redis_url, "shop") as cache:
        for number, text in enumerate(EVERY.values()):
            topic.upsert({"id": number, "doc": text}, at(number))
        store.sink.apply(batch(topic.events), Shapes(table))
        found = cache.rows("public.documents", [(number,) for number in range(len(EVERY))])
        assert [name for name, row in zip(EVERY, found, strict=True) if row is None] == []
        named = dict(zip(EVERY, found, strict=True))
        exact = named["1e400"]
        assert exact is not None and exact.row is not None and exact.row["doc"] == Decimal("1e400")
