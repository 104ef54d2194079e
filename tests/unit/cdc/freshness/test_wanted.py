"""Whether a watermark shows a token, of the tables that are read: pure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from cdc.freshness.rules import (
    EpochLsn,
    NotShown,
    TokenWaits,
    WaitUseless,
    Wanted,
    bounded,
    named_tables,
    topics_of,
)
from cdc.process.errors import UsageError
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from tests.unit.cdc.freshness.asked import HOLD, at, put, wanted


def test_one_look_answers_all_whom_it_decides() -> None:
    waiting = TokenWaits()
    first, second, third = (put(waiting, wanted(lsn)) for lsn in (10, 20, 30))
    waiting.settle(at(20))
    assert (first.result(0), second.result(0), third.done(), len(waiting)) == (at(20), at(20), False, 1)
    assert third.cancel()
    waiting.settle(at(20))
    assert len(waiting) == 0


def test_a_wait_that_is_given_up_leaves_at_once() -> None:
    waiting, wait = TokenWaits(), wanted(10)
    waiting.add(wait)
    waiting.drop(wait)
    waiting.drop(wait)
    assert (len(waiting), wait.answer.cancelled()) == (0, True)


def test_nothing_of_another_server_is_ever_shown() -> None:
    waiting = TokenWaits()
    strange, later = (put(waiting, asked) for asked in (wanted(1, system="8"), wanted(1, timeline=3)))
    waiting.settle(None)
    assert len(waiting) == 2
    for mark in (Watermark(epoch=9, lsn=10**9), at(10**9)):
        waiting.settle(mark)
    assert not later.done()
    with pytest.raises(WaitUseless, match="shows server 7/2, and the token is of 8/2"):
        strange.result(0)


def test_an_lsn_counts_in_its_epoch_alone() -> None:
    for epoch, lsn, met in ((1, 50, True), (1, 51, False), (2, 1, False)):
        assert Wanted("the cache", EpochLsn(epoch, Lsn(lsn))).met(at(50)) is met
    late = Wanted("the cache", EpochLsn(2, Lsn(1))).refusal(at(50), 0.5)
    assert late.message == "the cache stands at 0/32 of epoch 1, and the LSN is 0/1 of epoch 2; waited 0.5 s"


def test_h265_a_table_that_the_store_does_not_read_is_not_shown() -> None:
    for table in ("public.c", "orders.a", "public.A", "view.total", "shop.public"):
        asked = wanted(50, "public.a", table)
        asked.look(at(50))
        assert (asked.answer.done(), asked.late(0.2).message) == (
            False, f"the cache does not read {table}; waited 0.2 s",
        )  # fmt: skip
    read = wanted(50, "public.a", "view.totals", "shop.public.b")
    read.look(at(50))
    assert read.answer.result(0) == at(50)


def test_topics_are_found_by_the_name_of_their_table() -> None:
    topics = ["shop.public.order_items", "shop.view.a.1", "shop.view.a.2", "shop.view.ab.1", "shop.views"]
    assert topics_of("public.order items", topics) == topics[:1]
    assert topics_of("view.a", topics) == topics[1:3]
    assert topics_of("public.order", topics) == []


@pytest.mark.parametrize("tables", ["public.a", [""], ["orders"], [".orders"], ["public."], [1], [None]])
def test_tables_that_are_no_names_are_refused(tables: Any) -> None:
    with pytest.raises(UsageError, match="no list of names with a schema"):
        named_tables(tables)


@pytest.mark.parametrize("timeout_s", [-1, -0.001, math.nan, math.inf, 1e30])
def test_a_time_that_is_none_is_refused(timeout_s: float) -> None:
    with pytest.raises(UsageError, match="no number of seconds"):
        bounded(timeout_s)


def test_one_look_decides_for_who_asks_once() -> None:
    for mark, words in ((None, "has no watermark yet"), (at(9), "stands at 0/9, and the token at 0/A")):
        asked = wanted(10, once=True)
        asked.look(mark)
        with pytest.raises(NotShown, match=words):
            asked.answer.result(0)
    asked.look(at(10))
    shown = wanted(10, once=True)
    shown.look(at(10))
    assert shown.answer.result(0) == at(10)


def test_a_commit_that_is_lost_is_refused_at_once() -> None:
    waiting = TokenWaits()
    answer = put(waiting, wanted(91, timeline=1))
    waiting.settle(at(10**9))
    with pytest.raises(NotShown, match="a promotion left 7/1:0/5B behind"):
        answer.result(0)


def test_a_held_table_counts_where_it_is_read() -> None:
    holds = replace(at(50), held={"shop.public.a": HOLD})
    for tables, refused in (((), True), (("public.a",), True), (("public.b",), False)):
        waiting = TokenWaits()
        answer = put(waiting, wanted(50, *tables))
        waiting.settle(holds)
        assert isinstance(answer.exception(0), NotShown) is refused


def test_h119_a_table_that_is_set_aside_is_named() -> None:
    waiting = TokenWaits()
    answer = put(waiting, wanted(50))
    waiting.settle(replace(at(50), aside={"shop.public.a": "public.a is set aside"}))
    with pytest.raises(NotShown, match="is set aside"):
        answer.result(0)
    other = put(waiting, wanted(50, "public.b"))
    waiting.settle(replace(at(50), aside={"shop.public.a": "public.a is set aside"}))
    assert other.result(0).lsn == 50
    read = put(waiting, wanted(50, "public.b", "public.a"))
    waiting.settle(replace(at(50), aside={"shop.public.a": "public.a is set aside"}))
    assert isinstance(read.exception(0), WaitUseless)
