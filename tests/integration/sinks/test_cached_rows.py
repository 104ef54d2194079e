"""Programs read the cache: as the sink writes it, through rebuilds, by keys of any kind."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import Exit, SinkError, UsageError
from cdc.lsn import Lsn
from cdc.progress import Watermark
from cdc.read import Cache, CachedRow, ReadRow, Token
from cdc.wire.plain import PlainTable
from sinks.cache.cached_rows import key_text
from sinks.kinds import beside, open_generations, spec_for
from sinks.registry import open_sink
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, shape

SHAPES = Shapes(ORDERS)
ROW = {"id": 1, "status": "open", "note": None}
TABLE = "public.orders"


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


class Source:
    """A table of one row in the place of Postgres, and the insert LSN there."""

    def __init__(self) -> None:
        self.row: dict[str, Any] | None = dict(ROW)
        self.lsn = 100
        self.asked = 0

    def read(self) -> ReadRow:
        self.asked += 1
        return ReadRow(self.row, self.token())

    def token(self) -> Token:
        return Token("7", 1, Lsn(self.lsn))

    def write(self, status: str) -> Token:
        self.row = {**ROW, "status": status}
        self.lsn += 10
        return self.token()


def test_a_fill_is_read_until_a_change_comes(redis_url: str) -> None:
    store, topic, source = open_sink(spec_for("redis", prefix="shop", options={"url": redis_url})), Topic(), Source()
    with Cache(redis_url, "shop") as cache, contextlib.closing(store):

        def get(since: Token | None = None) -> Any:
            return cache.read_through(TABLE, [1], source.read, since=since)

        assert (get(), get(), source.asked) == (ROW, ROW, 1)
        assert cache.get(TABLE, 1) is None, "what the sink keeps has no fills in it"
        assert [row.num_rows for row in store.reader.scan(ORDERS)] == []
        store.sink.apply(batch(topic.upsert({**ROW, "status": "paid"}, at(2))), SHAPES)
        assert get() == {**ROW, "status": "paid"}
        store.sink.apply(batch(topic.delete(ROW, at(3))), SHAPES)
        assert (get(), source.asked) == (None, 1)


def test_a_late_fill_never_hides_a_newer_change(redis_url: str) -> None:
    """Between the reading and the fill the row changes, and the sink writes the change first."""
    store, topic, source = open_sink(spec_for("redis", prefix="shop", options={"url": redis_url})), Topic(), Source()
    with Cache(redis_url, "shop") as cache, contextlib.closing(store):

        def late() -> ReadRow:
            read = source.read()
            store.sink.apply(batch(topic.upsert({**ROW, "status": "paid"}, at(2))), SHAPES)
            return read

        assert cache.read_through(TABLE, [1], late) == ROW
        assert cache.read_through(TABLE, [1], source.read) == {**ROW, "status": "paid"}


def test_a_fill_from_before_the_readers_write_is_not_used(redis_url: str) -> None:
    source = Source()
    with Cache(redis_url, "shop") as cache:
        assert cache.read_through(TABLE, [1], source.read) == ROW
        written = source.write("paid")
        assert cache.read_through(TABLE, [1], source.read) == ROW, "who has not written may read it"
        assert cache.read_through(TABLE, [1], source.read, since=written) == {**ROW, "status": "paid"}
        assert source.asked == 2
        assert cache.read_through(TABLE, [1], source.read, since=written) == {**ROW, "status": "paid"}
        assert source.asked == 3, "it was read at the LSN of the token, perhaps before the commit showed"
        source.lsn += 1
        for since in (written, written):
            cache.read_through(TABLE, [1], source.read, since=since)
        assert source.asked == 4
        cache.read_through(TABLE, [1], source.read, since=Token("8", 1, Lsn(1)))
        assert source.asked == 5


def test_a_fill_expires_and_no_row_is_no_fill(redis_url: str) -> None:
    source = Source()
    with Cache(redis_url, "shop") as cache, redis.Redis.from_url(redis_url) as client:
        cache.read_through(TABLE, [1], source.read, keep_s=20)
        (key,) = client.keys("shop:_fill:*")
        assert key == b"shop:_fill:public.orders:1"
        assert 0 < client.pttl(key) <= 20_000
        client.set(key, b"[somebody else's]")
        assert cache.read_through(TABLE, [1], source.read) == ROW
        source.row = None
        assert cache.read_through(TABLE, [2], source.read) is None
        assert client.keys("shop:_fill:public.orders:2") == []


@pytest.mark.parametrize("value", [datetime(2026, 1, 1, tzinfo=UTC), Decimal("1.5"), {1}])
def test_a_row_that_fills_has_plain_values(redis_url: str, value: object) -> None:
    with Cache(redis_url, "shop") as cache, pytest.raises(UsageError, match="has plain values"):
        cache.read_through(TABLE, [1], lambda: ReadRow({"id": 1, "total": value}, Token("7", 1, Lsn(1))))
