"""A sink in shares: who feeds a table, one watermark of all, and another number of shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import UsageError
from cdc.freshness.wanted import EpochLsn, Wanted
from cdc.lsn import Lsn
from cdc.progress import SharedWatermark, Watermark
from cdc.shares import MOST, Share, moved, owner, together
from cdc.source_lineage import SourceLineage
from cdc.tokens import Standing, Token, standing

NAMES = [f"shop.public.t{number}" for number in range(40)]
topics = st.sets(st.sampled_from(NAMES), min_size=1)
counts = st.integers(1, 6)


@st.composite
def stores(draw: st.DrawFn) -> tuple[int, list[Watermark | None]]:
    """A number of shares, and what each of them says of its tables. One that has not begun says nothing."""
    count, every = draw(counts), draw(topics)
    found: list[Watermark | None] = []
    for number in range(1, count + 1):
        mine = {topic for topic in every if owner(topic, count) == number}
        begun = draw(st.booleans()) or draw(st.booleans())
        epoch, lsn = draw(st.integers(1, 3)), draw(st.integers(0, 50))
        offsets = {topic: {0: draw(st.integers(0, 9))} for topic in mine}
        mark = Watermark(epoch=epoch, lsn=lsn, offsets=offsets, topic_ids=dict.fromkeys(mine, "id"), level_ms=lsn + 1)
        found.append(mark if begun and mine else None)
    return count, found


@given(st.sampled_from(NAMES), counts)
def test_each_table_is_in_one_share(topic: str, count: int) -> None:
    assert [number for number in range(1, count + 1) if Share(number, count).has(topic)] == [owner(topic, count)]


@given(st.sampled_from(NAMES), st.integers(1, MOST - 1))
def test_one_more_share_moves_tables_to_it_alone(topic: str, count: int) -> None:
    assert owner(topic, count + 1) in (owner(topic, count), count + 1)


def test_the_tables_are_spread_over_the_shares() -> None:
    owners = [owner(f"shop.public.t{number}", 4) for number in range(2_000)]
    assert all(400 < owners.count(number) < 600 for number in range(1, 5))
    # Whoever runs tomorrow's version has to find the same.
    assert [owner(name, 3) for name in NAMES[:8]] == PINNED


PINNED = [1, 2, 2, 2, 2, 1, 1, 2]


def test_all_generations_of_a_view_are_in_one_share() -> None:
    assert len({owner(f"shop.view.order_search.{number}", 50) for number in range(9)}) == 1
    assert len({owner(f"shop.public.orders.{number}", 50) for number in range(9)}) > 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "1/0", "1", "1/101", "1/3 ", "-1/3", "1/3/3", "01/3", ""])
def test_a_text_that_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no share"):
        Share.parse(text)


@given(stores())
def test_the_whole_claims_what_each_share_claims(store: tuple[int, list[Watermark | None]]) -> None:
    _, shares = store
    whole = together(shares)
    if whole is None:
        assert not any(shares)
        return
    assert all(share is not None for share in shares) or whole.lsn == 0
    claimed = [(share.epoch, share.lsn) for share in shares if share is not None]
    assert all((whole.epoch, whole.lsn) <= one for one in claimed)


@given(stores(), counts)
def test_a_move_reads_on_and_claims_no_more(store: tuple[int, list[Watermark | None]], count: int) -> None:
    before = together(store[1])
    if before is None:
        return
    after = moved(before, count)
    assert len(after) == count
    owners = {topic: share for share in store[1] if share is not None for topic in share.topic_ids}
    seen: dict[str, object] = {}
    for number, share in enumerate(after, 1):
        for topic in share.topic_ids if share is not None else ():
            assert share is not None and owner(topic, count) == number
            was = owners[topic]
            assert share.offsets[topic] == was.offsets[topic]
            assert (share.epoch, share.lsn) <= (was.epoch, was.lsn)
            assert share.level_ms <= was.level_ms
            seen[topic] = share
        if None in store[1] and share is not None:
            assert share.lsn == 0
    assert seen.keys() == owners.keys()


@given(stores(), counts)
def test_a_move_there_and_back_claims_no_more(store: tuple[int, list[Watermark | None]], count: int) -> None:
    before = together(store[1])
    between = together(moved(before, count)) if before is not None else None
    if before is None or between is None:
        return
    [back] = moved(between, 1)
    assert back is not None
    assert (back.epoch, back.lsn) <= (before.epoch, before.lsn) or None in store[1]
    assert back.offsets == before.offsets
    assert not isinstance(back, SharedWatermark)


LINEAGE = SourceLineage("7", 1)


def _mark(topic: str, lsn: int) -> Watermark:
    return Watermark(epoch=1, lsn=lsn, topic_ids={topic: "id"}, lineage=LINEAGE)


def test_a_token_shows_when_each_share_shows_it() -> None:
    both = together([_mark("shop.public.a", 9), _mark("shop.public.b", 5)])
    assert standing(Token("7", 1, Lsn(5)), both) is Standing.SHOWN
    assert standing(Token("7", 1, Lsn(6)), both) is Standing.BEHIND
    assert standing(Token("7", 1, Lsn(0)), together([_mark("shop.public.a", 9), None])) is Standing.SHOWN
    assert standing(Token("7", 1, Lsn(1)), together([_mark("shop.public.a", 9), None])) is Standing.BEHIND


def test_a_share_of_an_older_timeline_shows_no_newer_one() -> None:
    promoted = Watermark(epoch=1, lsn=4, topic_ids={"shop.public.a": "id"}, lineage=SourceLineage("7", 2, ((1, 3),)))
    both = together([promoted, _mark("shop.public.b", 9)])
    assert standing(Token("7", 2, Lsn(4)), both) is Standing.PROMOTION


@pytest.mark.parametrize("token", [Token("7", 1, Lsn(6)), EpochLsn(1, Lsn(6))])
def test_the_shares_of_the_tables_that_are_read_count(token: Token | EpochLsn) -> None:
    both = together([_mark("shop.public.a", 9), _mark("shop.public.b", 5)])
    assert Wanted("cache", token, frozenset({"public.a"})).met(both)
    assert not Wanted("cache", token, frozenset({"public.b"})).met(both)
    assert not Wanted("cache", token, frozenset({"public.a", "public.b"})).met(both)
    assert not Wanted("cache", token, frozenset({"public.other"})).met(both)
    assert not Wanted("cache", token).met(both)
