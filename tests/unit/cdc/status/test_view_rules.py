"""The lines of views in ``cdc status``, and which of them are faults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.process.errors import LogError
from cdc.record.ports import Unknown
from cdc.record.progress import Mark
from cdc.status.rules import status_of
from cdc.status.view_lines import RunnerState, ViewFacts
from tests.unit.cdc.status.test_rules import FACTS, HEAD, LIMITS, NOW_MS, page

VIEW = ViewFacts(
    name="order_search",
    generation=1,
    epoch=1,
    lsn=HEAD - 50,
    state=RunnerState(waiting=12_345, parked=0, size_bytes=3 * 1024**2),
)


def test_h172_each_view_has_a_line() -> None:
    shown = status_of(replace(FACTS, views=[VIEW, ViewFacts(name="new", generation=1)]), LIMITS)
    assert shown.passed == ()
    document = shown.document()["views"]
    assert document["order_search"] == {
        "state": "consistent",
        "generation": 1,
        "lsn": "0/5F5E0CE",
        "lag_bytes": 50,
        "lag_seconds": 0.0,
        "lag_at_least": False,
        "waiting": 12_345,
        "parked": 0,
        "state_bytes": 3 * 1024**2,
        "held": None,
        "fed": True,
    }
    assert (document["new"]["state"], document["new"]["lsn"], document["new"]["waiting"]) == ("building", None, None)
    (line,) = [line for line in page(shown) if line.startswith("order_search")]
    assert "12,345" in line
    assert "3.0 MB" in line


def test_y12_a_view_that_goes_to_no_store_is_said_and_no_fault() -> None:
    shown = status_of(replace(FACTS, views=[replace(VIEW, fed=False)]), LIMITS)
    assert shown.passed == ()
    assert "the view order_search goes to no store" in page(shown)


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (ViewFacts(name="order_search"), "the view order_search was never published: cdc view run order_search"),
        (
            replace(VIEW, held="public.orders is set aside"),
            "the view order_search is held, and its LSN stays: public.o",
        ),
        (replace(VIEW, lsn=None, held="public.orders is set aside"), "the view order_search is held, and its LSN"),
        (replace(VIEW, lsn=399), "the view order_search is > 61.0 s behind; the limit is 60.0 s"),
        (replace(VIEW, state=RunnerState(waiting=0, parked=1, size_bytes=1)), "the view order_search: 1 document is"),
        (replace(VIEW, state=RunnerState(waiting=0, parked=2, size_bytes=1)), "the view order_search: 2 documents are"),
    ],
)
def test_h172_a_view_that_is_not_well_is_a_fault(view: ViewFacts, said: str) -> None:
    facts = replace(FACTS, marks=[Mark(1, 400, NOW_MS - 61_000), *FACTS.marks[-1:]], views=[view])
    (passed,) = status_of(facts, LIMITS).passed
    assert passed.startswith(said)


def test_h172_without_the_log_nothing_is_said_of_views() -> None:
    silent = Unknown(LogError("no broker answers"))
    shown = status_of(replace(FACTS, slot=silent, snapshot=silent, marks=[], log=silent), LIMITS)
    assert shown.document()["views"] == {}
    assert not any("view" in words for words in shown.passed)
