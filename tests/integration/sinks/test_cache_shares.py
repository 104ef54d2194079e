"""Programs read a cache that several applications feed, also while their number changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from cdc.lsn import Lsn
from cdc.progress import Watermark
from cdc.read import Cache, Freshness, NotShown, ReadRow, Token
from cdc.shares import Share, owner
from cdc.source_lineage import SourceLineage
from sinks.kinds import open_store_notes, spec_for
from sinks.registry import open_sink
from sinks.shared_notes import change
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch

SHAPES = Shapes(ORDERS)
ROW = {"id": 1, "status": "open", "note": None}
TABLE = "public.orders"
OTHER = next(f"shop.public.t{n}" for n in range(9) if owner(f"shop.public.t{n}", 2) != owner(ORDERS.topic, 2))
MINE, OTHERS = owner(ORDERS.topic, 2), 3 - owner(ORDERS.topic, 2)


def taken(lsn: int) -> Token:
    return Token("7", 1, Lsn(lsn))


def mark(lsn: int, topic: str = ORDERS.topic) -> Watermark:
    return Watermark(
        epoch=1, lsn=lsn, lineage=SourceLineage("7", 1), topic_ids={topic: "id"}, offsets={topic: {0: lsn}}
    )


@pytest.fixture
def say(redis_url: str, request: pytest.FixtureRequest) -> Callable[[int, Watermark], None]:
    """Commit as the application of a share of two."""
    spec = spec_for("redis", prefix="shop", options={"url": redis_url})
    stores = {n: open_sink(replace(spec, share=Share(n, 2), leads=True)) for n in (1, 2)}
    for store in stores.values():
        request.addfinalizer(store.close)
    stores[MINE].sink.apply(batch(Topic().upsert(ROW, at(1))), SHAPES)
    return lambda number, watermark: stores[number].commit(watermark)


def test_a_table_is_as_fresh_as_its_share(redis_url: str, say: Callable[[int, Watermark], None]) -> None:
    say(MINE, mark(9))
    with ExitStack() as stack:
        cache = stack.enter_context(Cache(redis_url, "shop"))
        fresh = stack.enter_context(Freshness("redis", "shop", url=redis_url))
        assert cache.get(TABLE, 1, since=taken(9)) == ROW
        fresh.wait(taken(9), tables=[TABLE])
        for _ in range(2):
            with pytest.raises(NotShown):
                fresh.wait(taken(9), timeout_s=0)
            say(OTHERS, mark(5, OTHER))
        with pytest.raises(NotShown):
            cache.get(TABLE, 1, since=taken(10))
        say(OTHERS, mark(9, OTHER))
        assert fresh.wait(taken(9), timeout_s=0).lsn == 9
        shown = cache.watermark()
        assert shown is not None and len(shown.parts) == 2


def test_an_open_reader_follows_the_number_of_shares(redis_url: str, say: Callable[[int, Watermark], None]) -> None:
    say(MINE, mark(9))
    say(OTHERS, mark(7, OTHER))
    spec = spec_for("redis", prefix="shop", options={"url": redis_url})
    with Cache(redis_url, "shop") as cache, closing(open_store_notes(spec)) as opened:
        for count, shown in ((2, 9), (1, 7), (2, 7), (1, 7)):
            change(opened.notes, count)
            assert cache.get(TABLE, 1, since=taken(shown)) == ROW
            with pytest.raises(NotShown):
                cache.get(TABLE, 1, since=taken(shown + 1))
            assert cache.get(TABLE, 1) == ROW


def test_a_kept_row_goes_when_the_share_of_its_table_passes_it(
    redis_url: str, say: Callable[[int, Watermark], None]
) -> None:
    """Another share that is behind keeps nothing alive."""
    say(MINE, mark(4))
    say(OTHERS, mark(2, OTHER))
    read: list[int] = []

    def row(status: str, lsn: int) -> Callable[[], ReadRow]:
        def now() -> ReadRow:
            read.append(lsn)
            return ReadRow({**ROW, "id": 2, "status": status}, taken(lsn))

        return now

    with Cache(redis_url, "shop") as cache:
        for lsn in (5, 6):
            found = cache.read_through(TABLE, [2], row("old", lsn))
            assert found is not None and found["status"] == "old"
        say(MINE, mark(8))
        found = cache.read_through(TABLE, [2], row("new", 9))
        assert found is not None and found["status"] == "new"
    assert read == [5, 9]
