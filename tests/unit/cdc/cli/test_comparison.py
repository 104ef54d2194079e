"""What a comparison prints, and when it ends with 1."""

from __future__ import annotations

from collections import Counter
from io import StringIO

import pytest
from rich.console import Console

from cdc.cli.comparison import conclude_comparison, show_comparison
from cdc.comparison.verdict import Comparison, TableVerdict
from cdc.errors import DifferenceFound


def comparison(*, theirs: int = 10, ours: int = 10, unexplained: int = 0) -> Comparison:
    verdict = TableVerdict(
        table="public.orders",
        theirs=theirs,
        ours=ours,
        equal=8,
        by_rule=Counter({"D14": 60, "D3": 2}),
        unexplained=unexplained,
        words=("public.orders u {}: Debezium 1 | ours 2",) * unexplained,
    )
    return Comparison(encoding="readable", begin=0x1000, end=0x2000, verdicts=(verdict,))


def shown(found: Comparison) -> str:
    out = StringIO()
    show_comparison(found, Console(file=out, width=120, force_terminal=False))
    return out.getvalue()


def test_each_rule_that_was_needed_is_said_with_its_reason() -> None:
    text = shown(comparison())
    assert "D3 2, D14 60" in text
    assert "an old row by key holds the key and no invented value" in text
    assert "10 records compared between 0/1000 and 0/2000: every difference is explained" in text
    conclude_comparison(comparison())


def test_what_no_rule_explains_is_shown_and_ends_with_1() -> None:
    found = comparison(unexplained=1)
    assert "unexplained: public.orders u {}: Debezium 1 | ours 2" in shown(found)
    with pytest.raises(DifferenceFound, match="1 differences are explained by no rule"):
        conclude_comparison(found)
    assert found.document()["tables"][0]["explained"] == {"D14": 60, "D3": 2}


def test_nothing_compared_is_no_proof() -> None:
    with pytest.raises(DifferenceFound, match="nothing was compared"):
        conclude_comparison(comparison(theirs=0, ours=0))
