"""A store that several applications feed, in the status: one line for each, and which of them is behind."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from cdc.cli.status_text import PageRoom, view
from cdc.progress import Mark, Watermark
from cdc.shares import together
from cdc.status.board import board_of, document_of
from cdc.status.facts import SinkFacts, StatusFacts
from cdc.status.live_looks import LiveLook
from cdc.status.rules import status_of
from tests.unit.cdc.status.test_rules import FACTS, HEAD, LIMITS, NOW_MS


def fed(*lsns: int | None) -> StatusFacts:
    """A cache whose shares show these LSNs. None: it has not begun."""
    marks = [
        Watermark(epoch=1, lsn=lsn, offsets={f"shop.public.t{n}": {0: 5}}, topic_ids={f"shop.public.t{n}": "id"})
        if lsn is not None
        else None
        for n, lsn in enumerate(lsns)
    ]
    sinks = [SinkFacts(name="cache", kind="redis", watermark=together(marks))]
    return replace(FACTS, marks=[Mark(1, 400, NOW_MS - 90_000), Mark(1, HEAD - 50, NOW_MS - 200)], sinks=sinks)


def page(facts: StatusFacts, room: PageRoom | None = None) -> list[str]:
    text = StringIO()
    console = Console(file=text, width=80)
    console.print(view(status_of(facts, LIMITS), room=room) if room is not None else view(status_of(facts, LIMITS)))
    return text.getvalue().splitlines()


def test_each_share_has_a_line() -> None:
    lines = page(fed(HEAD - 50, HEAD - 50))
    at = next(number for number, line in enumerate(lines) if line.startswith("cache"))
    assert [line.split()[0] for line in lines[at : at + 3]] == ["cache", "1/2", "2/2"]
    assert all("consistent" in line for line in lines[at : at + 3])
    assert max(map(len, lines)) <= 80
    assert not any("1/2" in line for line in page(fed(HEAD - 50, HEAD - 50), PageRoom(1, 1)))


def test_the_store_is_where_the_least_is_and_the_fault_names_it() -> None:
    shown = status_of(fed(HEAD - 50, 399), LIMITS)
    [store] = shown.sinks
    assert store.lsn == 399
    assert [(share.name, share.lsn, share.lag_s) for share in store.shares] == [
        ("1/2", HEAD - 50, 0.0),
        ("2/2", 399, 90.0),
    ]
    assert list(shown.passed) == ["cache is > 90.0 s behind, by its share 2/2; the limit is 60.0 s"]


def test_a_share_that_has_not_begun_is_a_fault() -> None:
    shown = status_of(fed(HEAD - 50, None), LIMITS)
    [store] = shown.sinks
    assert (store.state, [share.state for share in store.shares]) == ("filling", ["consistent", "empty"])
    assert list(shown.passed) == ["cache: the share 2/2 has not begun: cdc sink cache --share 2/2 feeds its tables"]


def test_records_behind_are_of_the_share_s_own_topics() -> None:
    ends = {"shop.public.t0": {0: 5}, "shop.public.t1": {0: 9}}
    shown = status_of(replace(fed(0, 0), source=None, ends=ends), LIMITS)
    [store] = shown.sinks
    assert store.lag_records == 4
    assert [(share.state, share.lag_records) for share in store.shares] == [("level", 0), ("behind", 4)]


def test_scripts_and_the_page_have_the_shares() -> None:
    look = LiveLook(shown=status_of(fed(HEAD - 50, None), LIMITS), at_ms=NOW_MS)
    document = document_of(look)
    first, second = document["sinks"]["cache"]["shares"]
    assert first == {
        "share": "1/2",
        "state": "consistent",
        "lsn": "0/5F5E0CE",
        "lag_bytes": 50,
        "lag_seconds": 0.0,
        "lag_at_least": False,
        "lag_records": None,
        "held": {},
        "error": None,
    }
    assert (second["share"], second["state"], second["lsn"]) == ("2/2", "empty", None)
    [stores] = [grid for grid in board_of(document).grids if grid.title == "Stores"]
    assert [row[0].text for row in stores.rows] == ["cache", "cache 1/2", "cache 2/2"]
    assert [len(row) for row in stores.rows] == [len(stores.columns)] * 3


@pytest.mark.parametrize("count", [1, 2])
def test_one_application_has_no_line_of_its_own(count: int) -> None:
    shown = status_of(fed(*[HEAD - 50] * count), LIMITS)
    assert len(shown.sinks[0].shares) == (0 if count == 1 else count)
