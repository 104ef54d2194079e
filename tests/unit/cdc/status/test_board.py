"""The parts of the page: each figure is the document's, and none is older than its look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from cdc.figures.measures import Quantiles
from cdc.figures.process_status import FillShare
from cdc.process.errors import SinkError, SourceError
from cdc.record.ports import Unknown
from cdc.record.progress import Watermark
from cdc.status.board import Board, Shown, board_of, document_of, first_board, old_board
from cdc.status.facts import ConnectorFacts, Reread, SinkFacts, StatusFacts
from cdc.status.pace import LiveLook, LiveLooks, utc_text
from cdc.status.view_lines import RunnerState, ViewFacts
from tests.unit.cdc.checks.test_postgres import SLOT
from tests.unit.cdc.status.test_live_looks import AT_MS, AWAY, FILLING, seen
from tests.unit.cdc.status.test_rules import FACTS, HEAD, SOURCE
from tests.unit.cdc.status.test_status_faults import aside

ODD = "a/b~c<script>"
BUSY = replace(
    FILLING,
    sinks=[*FILLING.sinks, SinkFacts(name=ODD, kind="redis", watermark=Watermark(epoch=1, lsn=HEAD - 50), parked=3)],
    fresh=replace(FILLING.fresh, log=Quantiles(0.02, 0.5, 12), sinks={ODD: Quantiles(0.3, 1.25, 9)}),
    views=[
        ViewFacts(name="slim", generation=1, epoch=1, lsn=HEAD, state=RunnerState(waiting=7, parked=0, size_bytes=2048))
    ],
    rereads=[Reread(table=ODD, reason="rewritten", state="running", detail="", rows=1_200, share=0.4, first=False)],
)
"""Everything at once."""


def looked(facts: StatusFacts, before: StatusFacts) -> LiveLook:
    looks = LiveLooks()
    seen(before, looks, 0)
    return seen(facts, looks, 10)


def board(facts: StatusFacts, before: StatusFacts = FACTS) -> tuple[Board, dict[str, Any]]:
    document = orjson.loads(orjson.dumps(document_of(looked(facts, before))))
    return board_of(document), document


def figures(found: Board) -> Iterator[Shown]:
    yield from (found.at, found.verdict)
    for one in found.tiles:
        yield from (shown for _, shown in one.lines)
    for grid in found.grids:
        for cells in grid.rows:
            assert len(cells) == len(grid.columns)
            yield from cells


def tile(found: Board, title: str) -> dict[str, Shown]:
    return dict(next(one for one in found.tiles if one.title == title).lines)


def row(found: Board, title: str, name: str) -> dict[str, Shown]:
    grid = next(one for one in found.grids if one.title == title)
    return next(dict(zip(grid.columns, cells, strict=True)) for cells in grid.rows if cells[0].text == name)


def pointed(document: Any, pointer: str) -> Any:
    for word in pointer.split("/")[1:]:
        step = word.replace("~1", "/").replace("~0", "~")
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def test_every_figure_is_the_document_s() -> None:
    found, document = board(BUSY, FILLING)
    placed = [shown for shown in figures(found) if shown.at]
    assert len(placed) > 30
    assert [shown.value for shown in placed] == [pointed(document, shown.at) for shown in placed]


def test_a_busy_pipeline() -> None:
    found, _ = board(BUSY)
    assert found.title == "shop, epoch 1"
    assert found.at.text == utc_text(AT_MS + 10_000)
    assert found.verdict == Shown("2 faults", tone="warn")
    slot = tile(found, "Slot")
    assert [slot[name].text for name in ("keeps", "WAL", "read by")] == ["1.0 GB", "reserved", "process 7"]
    log = tile(found, "Log")
    assert [log[name].text for name in ("behind", "age", "p99")] == ["50 B", "0.0 s", "0.50 s"]
    assert tile(found, "Tables")["not followed now"] == Shown("1", tone="warn")
    filled = row(found, "Stores", "warehouse-of-reports")
    assert (filled["state"].text, filled["state"].share, filled["shows"].text) == ("filling 41%", 0.414, "-")
    assert filled["caught up in"].text == "75.0 s"
    good = row(found, "Stores", ODD)
    assert [good[name].text for name in ("behind", "p50", "p99", "parked keys")] == ["50 B", "0.30 s", "1.25 s", "3"]
    assert row(found, "Views", "slim")["waiting"].text == "7"
    assert row(found, "Tables set aside", "public.a")["state"].tone == "warn"
    assert row(found, "Tables read again", ODD)["done"].share == 0.4


def test_h110_a_silent_part_shows_no_figure() -> None:
    """All that is worked out from it is not known, since its first look without an answer."""
    found, _ = board(AWAY, BUSY)
    since = utc_text(AT_MS + 10_000)
    assert found.verdict == Shown("not known: log, source, cache", tone="bad")
    for title in ("Source", "Slot", "Tables"):
        assert {(shown.text, shown.tone) for shown in tile(found, title).values()} == {("?", "unknown")}
    notes = {one.title: one.notes for one in found.tiles}
    assert notes["Source"] == (f"not known: the source since {since}",)
    assert notes["Tables"] == (f"not known: the log since {since}",)
    log = tile(found, "Log")
    assert [log[name].text for name in ("holds", "behind", "age", "grows by")] == ["?"] * 4
    assert notes["Log"][0] == f"not known: the log since {since}, the source since {since}"
    assert [shown.text for shown in row(found, "Views", "slim").values()] == ["slim", *"???????"]
    cache = row(found, "Stores", "cache")
    assert cache["state"] == Shown("unreachable", "/sinks/cache/state", "unreachable", "bad")
    assert [cache[name].text for name in ("shows", "behind", "age", "takes up", "caught up in")] == ["?"] * 5
    [stores] = [one for one in found.grids if one.title == "Stores"]
    assert stores.notes[0] == f"not known: the log since {since}, the source since {since}, cache since {since}"


@pytest.mark.parametrize(
    ("away", "unknown"), [("source", "behind"), ("cache", "age"), ("log", "age"), ("log", "behind")]
)
def test_h110_one_silent_part_hides_no_other(away: str, unknown: str) -> None:
    facts = {
        "source": replace(FACTS, source=AWAY.source),
        "cache": replace(FACTS, sinks=AWAY.sinks),
        "log": replace(FACTS, slot=AWAY.slot, log=AWAY.log, marks=[]),
    }[away]
    found, _ = board(facts)
    cache = row(found, "Stores", "cache")
    assert cache[unknown].tone == "unknown"
    assert (cache["shows"].tone == "unknown") == (away == "cache")
    assert (tile(found, "Source")["at"].tone == "unknown") == (away == "source")
    assert (tile(found, "Log")["holds"].tone == "unknown") == (away == "log")


def test_h110_an_old_look_shows_no_figure_at_all() -> None:
    found = old_board(document_of(looked(BUSY, FACTS)), 90.0, AT_MS + 100_000)
    assert found.verdict.text == f"not known since {utc_text(AT_MS + 10_000)}"
    assert found.faults[0].startswith("The last look began 90.0 s ago")
    assert (found.tiles, found.grids) == ((), ())
    assert first_board("shop").verdict.text == "looking for the first time"


def test_no_slot_and_no_reader_are_told_from_not_known() -> None:
    none, _ = board(replace(FACTS, source=replace(SOURCE, slot=None)))
    assert tile(none, "Slot") == {"slot": Shown("none", tone="bad")}
    unread, _ = board(replace(FACTS, source=replace(SOURCE, slot=replace(SLOT, active_pid=None))))
    assert tile(unread, "Slot")["read by"] == Shown("nobody", tone="bad")


def test_a_source_that_is_not_asked_has_its_connector() -> None:
    connector = ConnectorFacts(name="shop-cdc", database="mysql", address="db:3306", state="RUNNING")
    facts = replace(FACTS, source=None, slot=None, snapshot=None, marks=[], connector=connector, ends={"t": {0: 9}})
    found, _ = board(facts)
    assert [one.title for one in found.tiles] == ["Connector", "Tables"]
    assert tile(found, "Connector")["state"] == Shown("RUNNING", "/connector/state", "RUNNING", "good")
    assert row(found, "Stores", "cache")["behind"].text == "9 records"
    silent, _ = board(replace(facts, connector=Unknown(SourceError("no answer"))))
    assert tile(silent, "Connector")["state"].tone == "unknown"


def test_no_password_of_a_url_is_shown() -> None:
    leaking = SinkFacts(name="cache", kind="redis", watermark=Unknown(SinkError("cannot reach redis://u:hunter2@h/0")))
    found, document = board(replace(FACTS, sinks=[leaking]))
    assert "hunter2" not in orjson.dumps(document).decode()
    assert found.faults == ("cache: cannot reach redis://***@h/0",)


def test_all_is_well() -> None:
    assert board(FACTS)[0].verdict == Shown("all is well", tone="good")


def test_a_figure_without_text_is_none() -> None:
    """A browser shows nothing there."""
    assert row(board(BUSY)[0], "Tables read again", ODD)["detail"] == Shown("-")


def test_a_silence_of_another_day_names_it_on_the_page() -> None:
    looks = LiveLooks()
    seen(AWAY, looks, 0)
    found = board_of(document_of(seen(AWAY, looks, 3 * 86_400)))
    assert found.tiles[0].notes == ("not known: the source since 2023-11-14 22:13 UTC",)


def test_what_a_connector_does_not_count_is_not_0() -> None:
    connector = ConnectorFacts(name="shop-cdc", database="mysql", address="db", state="RUNNING", snapshot="complete")
    facts = replace(FACTS, source=None, slot=None, snapshot=None, marks=[], connector=connector, ends={"t": {0: 9}})
    found, document = board(facts)
    assert [tile(found, "Tables")[name].text for name in ("rows of it", "followed")] == ["-", "-"]
    assert (document["snapshot"]["rows"], document["tables"]["following"]) == (None, None)
    assert tile(board(replace(facts, tables=3))[0], "Tables")["followed"].text == "3"


def test_that_nothing_came_is_told_from_that_nobody_says_it() -> None:
    unasked, _ = board(FACTS)
    idle, _ = board(replace(FACTS, fresh=replace(FACTS.fresh, asked=frozenset(["log", "cache"]))))
    assert (tile(unasked, "Log")["freshness p50"].text, tile(idle, "Log")["freshness p50"].text) == ("?", "-")
    assert (row(unasked, "Stores", "cache")["p99"].text, row(idle, "Stores", "cache")["p99"].text) == ("?", "-")
    assert [one.notes for one in idle.tiles if one.title == "Log"] == [()]
    [notes] = [one.notes for one in unasked.tiles if one.title == "Log"]
    assert notes == ("freshness is not known: no process answers at [capture] and [spark] http_address",)


def test_h110_a_silent_log_does_not_hide_tables_set_aside() -> None:
    found, _ = board(AWAY)
    grids = {one.title: one for one in found.grids}
    for title in ("Tables set aside", "Tables read again"):
        assert (grids[title].rows, len(grids[title].notes)) == ([], 1)
    assert {one.title for one in board(FACTS)[0].grids} == {"Stores"}


def test_what_is_nearly_done_is_not_done() -> None:
    store = "warehouse-of-reports"
    found, _ = board(replace(BUSY, fresh=replace(BUSY.fresh, fills={store: FillShare(0.9996, 1e17)})))
    shown = row(found, "Stores", store)
    assert (shown["state"].text, shown["caught up in"].text) == ("filling 99%", "> 999 days")


def test_a_page_has_a_bound() -> None:
    """Two hundred tables set aside are a fault each, and a row each."""
    many = {f"public.t{number:03}": aside(f"public.t{number:03}") for number in range(200)}
    found, _ = board(replace(FACTS, tables=200, asides=many))
    assert (len(found.faults), found.faults[-1]) == (9, "and 192 more: cdc status prints them all")
    [grid] = [one for one in found.grids if one.title == "Tables set aside"]
    assert (len(grid.rows), grid.notes) == (20, ("and 180 more: cdc status prints them all",))
    assert found.verdict.text == "200 faults"


def test_half_a_character_and_a_password_in_a_name_are_not_shown() -> None:
    odd = {"redis://u:hunter2@h/\udcff": aside("x")}
    _, document = board(replace(FACTS, asides=odd, tables=1))
    assert list(document["tables"]["others"]) == ["redis://***@h/\N{REPLACEMENT CHARACTER}"]


def test_parked_keys_are_seen() -> None:
    assert row(board(BUSY)[0], "Stores", ODD)["parked keys"].tone == "warn"
    assert not row(board(FACTS)[0], "Stores", "cache")["parked keys"].tone


def test_a_store_that_comes_no_nearer_is_told_from_not_known() -> None:
    written = replace(SOURCE, server=replace(SOURCE.server, wal_lsn=HEAD + 5000))
    found, _ = board(replace(FACTS, source=written))
    assert row(found, "Stores", "cache")["caught up in"] == Shown("no nearer")
