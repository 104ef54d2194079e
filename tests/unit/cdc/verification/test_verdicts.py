"""What a verification says at its end: to a program as JSON, to a person as lines, and by its exit code."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from cdc.cli.verify import conclude, show
from cdc.process.errors import DifferenceFound, Exit
from cdc.record.topic_names import TableName
from cdc.verification.result import KEPT_KEYS, Kind, StoreVerdict, VerificationReport

ORDERS = TableName("public", "orders")


def verdict_with(**found: int) -> StoreVerdict:
    """A verdict with so many keys of each kind."""
    verdict = StoreVerdict(sink="cache", table=ORDERS)
    for kind, count in found.items():
        for number in range(count):
            verdict.add(Kind(kind), f"{kind[0]}{number}", None if kind == "missing" else f"at {number}")
    return verdict


def printed(report: VerificationReport) -> str:
    """The lines that a person sees."""
    page = StringIO()
    show(report, Console(file=page, width=200))
    return page.getvalue()


def test_a_program_reads_every_figure_of_a_comparison() -> None:
    verdict = verdict_with(missing=2, extra=1, ahead=1)
    verdict.source_rows, verdict.store_rows, verdict.undecided = 10, 9, 4
    report = VerificationReport(
        verdicts=[verdict],
        fence=0x1_0000_2000,
        looks=3,
        not_compared={"public.t": "it is locked"},
        left_out={"view.orders": "its table has masks"},
        columns_left_out={"public.orders": {"f": "not of that kind"}},
    )
    assert report.document() == {
        "fence": "1/2000",
        "looks": 3,
        "differences": 4,
        "undecided": 4,
        "not_compared": {"public.t": "it is locked"},
        "left_out": {"view.orders": "its table has masks"},
        "columns_not_compared": {"public.orders": {"f": "not of that kind"}},
        "tables": [
            {
                "sink": "cache",
                "table": "public.orders",
                "source_rows": 10,
                "store_rows": 9,
                "missing": 2,
                "extra": 1,
                "stale": 0,
                "ahead": 1,
                "shared": 0,
                "undecided": 4,
                "keys": {"missing": ["m0", "m1"], "extra": ["e0"], "ahead": ["a0"]},
            }
        ],
    }


def test_a_store_that_nothing_was_read_of_counts_nothing() -> None:
    assert StoreVerdict(sink="cache", table=ORDERS).document() == {
        "sink": "cache",
        "table": "public.orders",
        "source_rows": 0,
        "store_rows": 0,
        "missing": 0,
        "extra": 0,
        "stale": 0,
        "ahead": 0,
        "shared": 0,
        "undecided": 0,
        "keys": {},
    }


def test_of_many_keys_five_are_named_and_all_are_counted() -> None:
    verdict = verdict_with(stale=7, extra=2)
    assert verdict.keys[Kind.STALE] == ["s0", "s1", "s2", "s3", "s4"]
    assert verdict.keys[Kind.EXTRA] == ["e0", "e1"]
    assert verdict.counts[Kind.STALE] == 7
    report = VerificationReport(verdicts=[verdict], fence=1, looks=1)
    lines = printed(report)
    assert "stale in cache: public.orders s0, s1, s2, s3, s4, ...\n" in lines
    assert "extra in cache: public.orders e0, e1\n" in lines
    assert "9 differences" in lines


def test_a_repair_takes_so_many_keys_and_no_more() -> None:
    verdict = verdict_with(missing=KEPT_KEYS - 1, ahead=2)
    assert verdict.differing[-2:] == [f"m{KEPT_KEYS - 2}", "a0"]
    assert len(verdict.differing) == KEPT_KEYS
    assert verdict.positions == {"a0": "at 0"}, "a key that the store lacks has no position"
    assert verdict.ahead == {"a0"}
    assert verdict.differences == KEPT_KEYS + 1, "what a repair leaves for the next is counted"


def test_a_verdict_that_starts_anew_forgets_what_it_counted() -> None:
    verdict = verdict_with(missing=1, ahead=2)
    verdict.restart(source_rows=20, store_rows=30)
    assert verdict.differences == 0
    assert (verdict.differing, verdict.positions, verdict.ahead) == ([], {}, set())
    assert (verdict.document()["source_rows"], verdict.document()["store_rows"]) == (20, 30)
    assert verdict.document()["keys"] == {}
    verdict.add(Kind.STALE, "7", "at 7")
    assert verdict.document()["keys"] == {"stale": ["7"]}
    assert verdict.counts == {Kind.MISSING: 0, Kind.EXTRA: 0, Kind.STALE: 1, Kind.AHEAD: 0, Kind.SHARED: 0}


def test_the_lsn_of_the_comparison_is_said() -> None:
    report = VerificationReport(verdicts=[], fence=0x2000, looks=2)
    assert report.document()["fence"] == "0/2000"
    assert "0 rows compared at 0/2000, in 2 looks: all equal" in printed(report)


def test_the_exit_code_is_1_and_the_words_count_each_kind() -> None:
    one, other = verdict_with(missing=2, ahead=1), verdict_with(missing=1)
    other.undecided = 3
    report = VerificationReport(verdicts=[one, other], fence=1, looks=1)
    assert (report.differences, report.undecided) == (4, 3)
    with pytest.raises(DifferenceFound, match=r"the stores differ from the source: 3 missing, 1 ahead$") as found:
        conclude(report)
    assert found.value.exit is Exit.DIFFERENCE
    assert "4 differences; 3 keys changed at every look" in printed(report)


def test_keys_that_none_could_decide_are_no_difference() -> None:
    moving = StoreVerdict(sink="cache", table=ORDERS, undecided=2)
    report = VerificationReport(verdicts=[moving], fence=1, looks=8)
    conclude(report)
    assert "all equal; 2 keys changed at every look" in printed(report)


def test_h333_a_person_reads_what_was_left_out() -> None:
    report = VerificationReport(verdicts=[], fence=1, looks=1, left_out={"view.orders": "its table has masks"})
    lines = printed(report).splitlines()
    assert "view.orders left out: its table has masks" in lines
    assert lines[-1] == "0 rows compared at 0/1, in 1 look: nothing compared; 1 left out"
