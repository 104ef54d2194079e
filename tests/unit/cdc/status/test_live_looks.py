"""Looks that follow each other: what is silent, since when, and what a person reads of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from cdc.cli.app import run
from cdc.cli.status import Watching, fitted, view, watched
from cdc.figures.process_status import FillShare
from cdc.process.clock import ManualClock
from cdc.process.errors import Exit, LogError, SinkError, SourceError
from cdc.record.ports import Unknown
from cdc.record.progress import Watermark
from cdc.settings.model import LimitSettings
from cdc.status.facts import FreshFacts, SinkFacts, StatusFacts
from cdc.status.pace import LiveLook, LiveLooks, Pace, utc_text
from cdc.status.rules import status_of
from cdc.status.view_lines import ViewFacts
from tests.unit.cdc.checks.test_postgres import SLOT
from tests.unit.cdc.cli.test_app import CONFIG
from tests.unit.cdc.status.test_rules import FACTS, HEAD, SOURCE
from tests.unit.cdc.status.test_status_faults import aside

AT_MS = 1_700_000_000_000
AWAY = replace(
    FACTS,
    source=Unknown(SourceError("cannot connect")),
    slot=Unknown(LogError("no broker")),
    log=Unknown(LogError("no broker")),
    sinks=[SinkFacts(name="cache", kind="redis", watermark=Unknown(SinkError("refused")))],
    views=[ViewFacts(name="slim", known=False)],
)
FILLING = replace(
    FACTS,
    source=replace(SOURCE, slot=replace(SLOT, active_pid=7, retained_bytes=2**30, safe_wal_bytes=2**30)),
    tables=12,
    asides={"public.a": aside("public.a")},
    sinks=[SinkFacts(name="warehouse-of-reports", kind="delta", watermark=Watermark(epoch=1, lsn=0))],
    fresh=FreshFacts(asked=frozenset(["warehouse-of-reports"]), fills={"warehouse-of-reports": FillShare(0.414, 75.0)}),
)


def seen(facts: StatusFacts, looks: LiveLooks, after_s: float) -> LiveLook:
    """A look that begins so long after a ManualClock does."""
    shown = status_of(facts, LimitSettings())
    return looks.add(shown, AT_MS / 1000 + after_s, AT_MS + round(after_s * 1000))


def lines(look: LiveLook) -> list[str]:
    out = StringIO()
    Console(file=out, width=80).print(view(look.shown, look))
    return out.getvalue().splitlines()


def test_silence_is_counted_from_its_first_look() -> None:
    looks = LiveLooks()
    assert seen(FACTS, looks, 0).since_ms == {}
    assert seen(AWAY, looks, 2).since_ms == dict.fromkeys(("log", "source", "cache"), AT_MS + 2000)
    back = replace(AWAY, source=FACTS.source)
    assert seen(back, looks, 4).since_ms == dict.fromkeys(("log", "cache"), AT_MS + 2000)
    assert seen(AWAY, looks, 6).since_ms["source"] == AT_MS + 6000


def test_a_silent_part_is_shown_as_not_known_since_then() -> None:
    looks = LiveLooks()
    seen(AWAY, looks, 0)
    page = lines(seen(AWAY, looks, 61))
    since = f"not known since {utc_text(AT_MS)}"
    assert page[0] == f"pipeline shop, at {utc_text(AT_MS + 61_000)}"
    assert page[1:4] == ["! no broker", "! cannot connect", "! cache: refused"]
    assert f"source    {since}, it does not answer" in page
    assert f"slot      cdc_shop: {since}, Postgres does not answer" in page
    assert f"log       {since}, it was not read" in page
    assert f"snapshot  {since}" in page
    assert any(line.startswith("slim  -") and "unknown" in line for line in page)
    assert not any("never published" in line for line in page)


def test_a_fill_a_slot_in_danger_and_tables_set_aside() -> None:
    looks = LiveLooks()
    grown = replace(FILLING, source=replace(SOURCE, slot=replace(SLOT, retained_bytes=2**20, safe_wal_bytes=2**30)))
    seen(grown, looks, 0)
    page = lines(seen(FILLING, looks, 10))
    assert "tables    11 followed, 1 not" in page
    assert any(line.startswith("warehouse-of-reports  -") and "filling 41%" in line for line in page)
    assert "  warehouse-of-reports is filled to 41%, 75.0 s left" in page
    assert "  the slot is lost in 10.0 s if this goes on" in page
    assert max(map(len, page)) <= 80


def test_faults_stand_above_what_a_low_terminal_cuts_off() -> None:
    look = seen(AWAY, LiveLooks(), 0)
    assert [number for number, line in enumerate(lines(look)) if line.startswith("! ")] == [1, 2, 3]
    still = StringIO()
    Console(file=still, width=80).print(view(look.shown))
    assert still.getvalue().splitlines()[-3:] == lines(look)[1:4]


def test_a_low_terminal_gets_the_page_without_empty_lines() -> None:
    looks = LiveLooks()
    seen(FACTS, looks, 0)
    look = seen(FACTS, looks, 2)
    full = lines(look)
    for height in (len(full) + 1, len(full)):
        out = StringIO()
        console = Console(file=out, width=80, height=height)
        console.print(fitted(partial(view, look.shown, look), console))
        kept = full if height > len(full) else [line for line in full if line]
        assert out.getvalue().splitlines() == kept
    assert "" in full


def test_a_look_is_one_document() -> None:
    looks = LiveLooks()
    seen(FACTS, looks, 0)
    document = orjson.loads(orjson.dumps(seen(FILLING, looks, 2).document()))
    assert document["at_ms"] == AT_MS + 2000
    assert document["pace"]["seconds"] == 2.0
    assert document["sinks"]["warehouse-of-reports"]["fill"] == {"share": 0.414, "remaining_seconds": 75.0}
    assert seen(AWAY, looks, 4).document()["unknown_since_ms"]["log"] == AT_MS + 4000
    assert isinstance(looks.add(seen(FACTS, looks, 6).shown, AT_MS / 1000 + 7, AT_MS + 7000).pace, Pace)


def test_a_silent_source_does_not_make_a_store_come_no_nearer() -> None:
    looks, cache = LiveLooks(), FACTS.sinks[0]
    seen(FACTS, looks, 0)
    moved = replace(cache, watermark=Watermark(epoch=1, lsn=HEAD - 10))
    assert not any(
        "nearer" in line for line in lines(seen(replace(FACTS, source=AWAY.source, sinks=[moved]), looks, 2))
    )


def test_a_silence_of_another_day_names_it() -> None:
    looks = LiveLooks()
    seen(AWAY, looks, 0)
    page = lines(seen(AWAY, looks, 86_400))
    assert "source    not known since 2023-11-14 22:13 UTC, it does not answer" in page


def drawn(look: LiveLook, height: int) -> list[str]:
    out = StringIO()
    console = Console(file=out, width=80, height=height)
    console.print(fitted(partial(view, look.shown, look), console))
    return out.getvalue().splitlines()


def watched_twice(facts: StatusFacts) -> LiveLook:
    looks = LiveLooks()
    seen(facts, looks, 0)
    return seen(facts, looks, 2)


def test_many_tables_set_aside_leave_room_for_the_stores() -> None:
    many = {f"public.t{number:03}": aside(f"public.t{number:03}") for number in range(200)}
    page = drawn(watched_twice(replace(FACTS, tables=200, asides=many)), 24)
    assert len(page) < 24
    assert any(line.startswith("cache ") and "consistent" in line for line in page)
    assert sum(line.startswith("! ") for line in page) >= 3
    more = [line for line in page if line.startswith("  and ")]
    assert len(more) == 2, page
    assert [int(line.split()[1]) for line in more] == [197, 197]


@pytest.mark.parametrize("count", [8, 40])
def test_stores_are_shown_rather_than_their_rates(count: int) -> None:
    """The one that is not well is among the first, however many there are."""
    sinks = [replace(FACTS.sinks[0], name=f"cache-{number:02}") for number in range(count)]
    sinks[-1] = replace(AWAY.sinks[0], name=sinks[-1].name)
    page = drawn(watched_twice(replace(FACTS, sinks=sinks)), 24)
    assert len(page) < 24
    rows = [line for line in page if line.startswith("cache-")]
    assert any("unreachable" in line for line in rows)
    assert len(rows) == count if count == 8 else f"  and {count - len(rows)} more" in page


def test_a_long_name_is_cut_and_no_figure_is() -> None:
    name = "a_very_long_store_name_of_the_reports_department_63_letters_long"
    views = [ViewFacts(name=name, generation=1, epoch=1, lsn=HEAD)]
    page = lines(seen(replace(FACTS, sinks=[replace(FACTS.sinks[0], name=name)], views=views), LiveLooks(), 0))
    rows = [line for line in page if line.startswith("a_very") and "consistent" in line]
    assert len(rows) == 2
    for row in rows:
        assert "0/5F5E0CE" in row or "0/5F5E100" in row
        assert "…" in row


def test_h110_a_silent_log_makes_its_tables_not_known() -> None:
    page = lines(seen(AWAY, LiveLooks(), 0))
    since = utc_text(AT_MS)
    assert f"tables    not known since {since}, nor which are set aside or read again" in page


def test_every_fault_is_printed_where_nothing_is_watched() -> None:
    many = {f"public.t{number:03}": aside(f"public.t{number:03}") for number in range(200)}
    out = StringIO()
    Console(file=out, width=80).print(view(seen(replace(FACTS, tables=200, asides=many), LiveLooks(), 0).shown))
    assert sum(line.startswith("! ") for line in out.getvalue().splitlines()) == 200


@pytest.mark.parametrize(("term", "drawn_anew"), [("xterm", True), ("dumb", False)])
def test_a_terminal_that_cannot_draw_gets_page_after_page(
    term: str, drawn_anew: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", term)
    shown = status_of(FACTS, LimitSettings())
    watched(lambda: shown, Watching(2.0, 2, as_json=False), ManualClock())
    said = capsys.readouterr().out
    assert said.count("pipeline shop") == (3 if drawn_anew else 2)
    assert ("looking for the first time" in said) == drawn_anew
    assert ("-" * 20 in said) != drawn_anew


@pytest.mark.parametrize("every", ["inf", "nan", "1e300", "0.1", "-1"])
def test_an_interval_that_is_none_is_refused(every: str, tmp_path: Path) -> None:
    settings = tmp_path / "cdc.toml"
    settings.write_text(CONFIG, encoding="utf-8")
    assert run(["--config", str(settings), "status", "--watch", "--every", every]) == Exit.USAGE


@pytest.mark.parametrize("every_s", [1.0, 60.0, 3600.0])
def test_looks_are_as_far_apart_as_was_asked(every_s: float, capsys: pytest.CaptureFixture[str]) -> None:
    clock, shown = ManualClock(), status_of(FACTS, LimitSettings())
    begun = clock.monotonic()
    watched(lambda: shown, Watching(every_s, 3, as_json=True), clock)
    assert clock.monotonic() - begun == 2 * every_s
    assert len(capsys.readouterr().out.splitlines()) == 3
