"""Rows that a cache lacks are read from Postgres, and none of them hides what the sink wrote."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
import redis

from cdc.process.errors import SinkError, UsageError
from cdc.read import Cache, ReadRow, Token
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from cdc.record.source_lineage import SourceLineage
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.sink_spec import open_sink
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch

SHAPES = Shapes(ORDERS)
ROW = {"id": 1, "status": "open", "note": None}
PAID = {**ROW, "status": "paid"}
TABLE = "public.orders"


def taken(lsn: int) -> Token:
    return Token("7", 1, Lsn(lsn))


def mark(lsn: int, system: str = "7") -> Watermark:
    return Watermark(epoch=1, lsn=lsn, lineage=SourceLineage(system, 1), topic_ids={ORDERS.topic: "id"})


def never() -> ReadRow:
    raise AssertionError("Postgres is not to be asked")


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
        assert key == b"shop:_fill:1:public.orders:1"
        assert 0 < client.pttl(key) <= 20_000
        client.set(key, b"[somebody else's]")
        assert cache.read_through(TABLE, [1], source.read) == ROW
        source.row = None
        assert cache.read_through(TABLE, [2], source.read) is None
        assert client.keys("shop:_fill:1:public.orders:2") == []


@pytest.mark.parametrize(
    "value", [datetime(2026, 1, 1, tzinfo=UTC), Decimal("1.5"), {1}, float("nan"), [{"x": float("inf")}]]
)
def test_a_row_that_fills_has_plain_values(redis_url: str, value: object) -> None:
    with Cache(redis_url, "shop") as cache, pytest.raises(UsageError, match="has plain values"):
        cache.read_through(TABLE, [1], lambda: ReadRow({"id": 1, "total": value}, Token("7", 1, Lsn(1))))


@pytest.mark.parametrize("row", [(1, "open"), [("id", 1)], "open"])
def test_a_row_without_its_columns_fills_nothing(redis_url: str, row: Any) -> None:
    with Cache(redis_url, "shop") as cache, redis.Redis.from_url(redis_url) as client:
        with pytest.raises(UsageError, match="is a mapping of columns to values") as refused:
            cache.read_through(TABLE, [1], lambda: ReadRow(row, taken(1)))
        assert "dict_row" in refused.value.hint
        with pytest.raises(UsageError, match="a row and a token"):
            cache.read_through(TABLE, [1], lambda: row)
        assert client.keys("shop:_fill:*") == []


def test_h269_an_evicted_row_gives_way_to_no_older_fill(redis_url: str) -> None:
    store, topic = open_sink(spec_for("redis", prefix="shop", options={"url": redis_url})), Topic()
    with Cache(redis_url, "shop") as cache, contextlib.closing(store), redis.Redis.from_url(redis_url) as client:
        store.commit(mark(50))
        assert cache.read_through(TABLE, [1], lambda: ReadRow(ROW, taken(100))) == ROW
        assert cache.read_through(TABLE, [1], never) == ROW
        store.sink.apply(batch(topic.upsert(PAID, at(2))), SHAPES)
        store.commit(mark(200))
        client.delete(f"shop:{TABLE}:1")  # as Redis evicts it
        assert cache.read_through(TABLE, [1], lambda: ReadRow(PAID, taken(300))) == PAID


def test_h269_who_has_read_the_row_reads_no_older_fill(redis_url: str) -> None:
    """Also while the store is filled: its watermark is no help then."""
    store, topic = open_sink(spec_for("redis", prefix="shop", options={"url": redis_url})), Topic()
    with Cache(redis_url, "shop") as cache, contextlib.closing(store), redis.Redis.from_url(redis_url) as client:
        cache.read_through(TABLE, [1], lambda: ReadRow(ROW, taken(100)))
        store.sink.apply(batch(topic.upsert(PAID, at(2))), SHAPES)
        assert cache.read_through(TABLE, [1], never) == PAID
        client.delete(f"shop:{TABLE}:1")
        assert cache.read_through(TABLE, [1], lambda: ReadRow(PAID, taken(300))) == PAID


def test_h269_an_older_fill_does_not_replace_a_newer(redis_url: str) -> None:
    with Cache(redis_url, "shop") as cache:

        def slow() -> ReadRow:
            cache.read_through(TABLE, [1], lambda: ReadRow(PAID, taken(2**33)))
            return ReadRow(ROW, taken(100))

        assert cache.read_through(TABLE, [1], slow) == ROW
        assert cache.read_through(TABLE, [1], never) == PAID
        assert cache.read_through(TABLE, [1], lambda: ReadRow(ROW, taken(2**34)), since=taken(2**33)) == ROW
        assert cache.read_through(TABLE, [1], never) == ROW, "a newer one replaces it"
        cache.read_through(TABLE, [1], lambda: ReadRow(None, taken(2**35)), since=taken(2**34))
        assert cache.read_through(TABLE, [1], lambda: ReadRow(PAID, taken(2**36))) == PAID, "the row was gone meanwhile"


def test_h269_a_fill_ends_with_its_generation(redis_url: str) -> None:
    spec, topic = spec_for("redis", prefix="shop", options={"url": redis_url}), Topic()
    with contextlib.ExitStack() as opened:
        cache = opened.enter_context(Cache(redis_url, "shop"))
        one = opened.enter_context(contextlib.closing(open_sink(spec)))
        assert cache.read_through(TABLE, [1], lambda: ReadRow(ROW, taken(100))) == ROW
        one.sink.apply(batch(topic.upsert(ROW, at(1)), topic.delete(ROW, at(2))), SHAPES)
        two = opened.enter_context(contextlib.closing(open_sink(beside(spec, 2))))
        two.commit(mark(50))
        opened.enter_context(contextlib.closing(open_generations(spec))).switch(2, [ORDERS])
        assert cache.read_through(TABLE, [1], lambda: ReadRow(None, taken(301))) is None


def test_a_fill_of_another_server_is_not_used(redis_url: str) -> None:
    store = open_sink(spec_for("redis", prefix="shop", options={"url": redis_url}))
    with Cache(redis_url, "shop") as cache, contextlib.closing(store):
        cache.read_through(TABLE, [1], lambda: ReadRow(ROW, taken(100)))
        store.commit(mark(50, "8"))
        now = ReadRow(PAID, Token("8", 1, Lsn(60)))
        assert cache.read_through(TABLE, [1], lambda: now) == PAID
        assert cache.read_through(TABLE, [1], never) == PAID


@pytest.mark.parametrize("deleted", [False, True])
def test_since_counts_for_the_row_of_the_sink_too(redis_url: str, deleted: bool) -> None:
    store, topic = open_sink(spec_for("redis", prefix="shop", options={"url": redis_url})), Topic()
    with Cache(redis_url, "shop") as cache, contextlib.closing(store):
        store.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
        if deleted:
            store.sink.apply(batch(topic.delete(ROW, at(2))), SHAPES)
        store.commit(mark(50))
        assert cache.read_through(TABLE, [1], lambda: ReadRow(PAID, taken(301)), since=taken(300)) == PAID
        assert cache.read_through(TABLE, [1], never, since=taken(300)) == PAID, "the fill is of behind the token"
        assert cache.read_through(TABLE, [1], never) == (None if deleted else ROW)
        store.sink.apply(batch(topic.upsert(PAID, at(3))), SHAPES)
        store.commit(mark(300))
        assert cache.read_through(TABLE, [1], never, since=taken(300)) == PAID


def test_a_user_who_may_not_fill_is_told_so(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as server:
        server.execute_command("ACL SETUSER", "looker", "on", ">secret", "%R~shop:*", "+@all")
        url = redis_url.replace("redis://", "redis://looker:secret@")
        with Cache(url, "shop") as cache, pytest.raises(SinkError, match="refuses a reader"):
            cache.read_through(TABLE, [1], lambda: ReadRow(ROW, taken(1)))
        server.execute_command("ACL DELUSER", "looker")
