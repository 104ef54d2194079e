"""How far everything is, and which limits are passed."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import orjson
import pytest
from rich.console import Console

from cdc.cli.status import view
from cdc.figures.measures import Quantiles
from cdc.operate.rebuild import RebuildState
from cdc.process.errors import Exit, LogError, SinkError, SourceError
from cdc.record.ports import Unknown
from cdc.record.progress import Hold, Mark, Watermark
from cdc.record.state import ReadingState, RequestState, SnapshotState
from cdc.settings.model import LimitSettings
from cdc.status.board import board_of, document_of
from cdc.status.facts import ConnectorFacts, FreshFacts, Reread, SinkFacts, SourceState, StatusFacts, rereads_of
from cdc.status.pace import LiveLook
from cdc.status.rules import Status, status_of
from cdc.status.view_lines import Age, ViewFacts, aged, lag_of
from tests.unit.cdc.checks.test_postgres import KNOWN, SERVER, SLOT

NOW_MS = 1_000_000
HEAD = 100_000_000
SNAPSHOT = SnapshotState(epoch=1, state="complete", consistent_point=10, last_cut_lsn=500, tables=["a"], rows=1234)
SOURCE = SourceState(
    address="127.0.0.1:5432/shop",
    server=replace(SERVER, wal_lsn=HEAD),
    slot=replace(SLOT, active_pid=7, retained_bytes=16 * 1024**2),
)
FACTS = StatusFacts(
    name="shop",
    slot_name="cdc_shop",
    now_ms=NOW_MS,
    source=SOURCE,
    slot=KNOWN,
    snapshot=SNAPSHOT,
    marks=[Mark(1, 400, NOW_MS - 9000), Mark(1, HEAD - 50, NOW_MS - 200)],
    sinks=[SinkFacts(name="cache", kind="redis", watermark=Watermark(epoch=1, lsn=HEAD - 50))],
)
LIMITS = LimitSettings()
HOLD = Hold(table="public.a", reason="public.a: column n is text in the store, and integer in the source now")
HOLDING = Watermark(epoch=1, lsn=HEAD - 50, held={"shop.public.a": HOLD})


def sink(**change: Any) -> StatusFacts:
    return replace(FACTS, sinks=[replace(FACTS.sinks[0], **change)])


def test_all_is_well() -> None:
    shown = status_of(FACTS, LIMITS)
    assert shown.passed == ()
    assert (shown.lag_bytes, shown.lag_s) == (50, 0.0)
    assert [(s.state, s.lag_bytes, s.lag_s) for s in shown.sinks] == [("consistent", 50, 0.0)]


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (sink(watermark=None), "empty"),
        (sink(watermark=Watermark(epoch=1, lsn=0)), "filling"),
        (sink(watermark=Watermark(epoch=1, lsn=500)), "bootstrapping"),
        (sink(watermark=Watermark(epoch=1, lsn=501)), "consistent"),
        (replace(FACTS, snapshot=replace(SNAPSHOT, state="running")), "bootstrapping"),
        (sink(watermark=Unknown(SinkError("no answer"))), "unreachable"),
        (sink(watermark=HOLDING), "holding"),
    ],
)
def test_h20_each_state_of_a_store(facts: StatusFacts, state: str) -> None:
    assert [s.state for s in status_of(facts, LIMITS).sinks] == [state]


def test_a_store_is_as_old_as_the_first_thing_it_does_not_show() -> None:
    facts = sink(watermark=Watermark(epoch=1, lsn=400))
    assert status_of(facts, LIMITS).sinks[0].lag_s == 0.2
    assert lag_of(FACTS.marks, (1, 399), NOW_MS).seconds == 9.0
    assert lag_of(FACTS.marks, (2, 0), NOW_MS) == Age(0.0)


def standing(now_ms: int, level_ms: int) -> Status:
    """With a store that stands still under load. The log has the progress records of the last 110 s."""
    marks = [Mark(1, 500 + at_ms, at_ms) for at_ms in range(now_ms - 110_000, now_ms + 1, 500)]
    store = replace(FACTS.sinks[0], watermark=Watermark(epoch=1, lsn=400, level_ms=level_ms))
    return status_of(replace(FACTS, now_ms=now_ms, marks=marks, sinks=[store]), LIMITS)


def test_y4_the_age_of_a_store_that_stands_still_grows() -> None:
    """The log keeps two minutes of progress, and the store said when it was last level."""
    looks = [standing(NOW_MS + after_s * 1000, NOW_MS) for after_s in (120, 240, 360)]
    ages = [(look.sinks[0].lag_s, look.sinks[0].lag_at_least) for look in looks]
    assert ages == [(120.0, False), (240.0, False), (360.0, False)]
    assert "cache is 6 min behind" in looks[-1].passed[0]


def test_y4_an_age_that_nothing_tells_is_at_least_so_much() -> None:
    [shown] = standing(NOW_MS, 0).sinks
    assert (shown.lag_s, shown.lag_at_least) == (110.0, True)
    assert shown.document()["lag_at_least"] is True
    assert aged(shown.lag_s, shown.lag_at_least) == "> 110.0 s"
    [view] = status_of(replace(FACTS, views=[ViewFacts(name="v", epoch=1, lsn=1)]), LIMITS).views
    assert (view.lag_at_least, view.document()["lag_at_least"]) == (True, True)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (replace(FACTS, marks=[Mark(1, HEAD - 300 * 1024**2, NOW_MS - 1)]), "the log is 300.0 MB behind"),
        (sink(watermark=Watermark(epoch=1, lsn=1)), "cache is > 61.0 s behind; the limit is 60.0 s"),
        (sink(parked=1), "cache: 1 key is parked in the dead letters"),
        (sink(parked=3), "cache: 3 keys are parked in the dead letters"),
        (
            sink(watermark=HOLDING),
            "cache holds public.a: column n is text in the store, and integer in the source now; its changes wait in "
            "the log: cdc rebuild cache",
        ),
        (sink(watermark=Unknown(SinkError("cannot reach Redis"))), "cache: cannot reach Redis"),
        (replace(FACTS, source=Unknown(SourceError("cannot connect"))), "cannot connect"),
        (sink(watermark=None), "cache is empty, and the log is not"),
        (replace(FACTS, source=replace(SOURCE, slot=None)), "the slot cdc_shop is gone"),
        (replace(FACTS, source=replace(SOURCE, slot=SLOT)), "nobody reads the slot cdc_shop"),
        (
            replace(FACTS, source=replace(SOURCE, slot=replace(SLOT, wal_status="unreserved"))),
            "the slot cdc_shop is unreserved",
        ),
    ],
)
def test_each_limit_and_fault_is_a_sentence(facts: StatusFacts, said: str) -> None:
    facts = replace(facts, marks=[Mark(1, 400, NOW_MS - 61_000), *facts.marks[-1:]])
    assert any(words.startswith(said) for words in status_of(facts, LIMITS).passed)


def test_the_page_fits_80_columns() -> None:
    worst = replace(
        FACTS,
        sinks=[
            SinkFacts(
                name="warehouse-of-reports", kind="delta", watermark=Watermark(epoch=1, lsn=HEAD - 50), parked=999
            ),
            SinkFacts(name="cache", kind="redis", watermark=Unknown(SinkError("cannot reach it"))),
        ],
        source=replace(SOURCE, server=replace(SERVER, wal_lsn=0xFFFFFFFF_FFFFFFFF)),
    )
    text = StringIO()
    Console(file=text, width=80).print(view(status_of(worst, LIMITS)))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("warehouse-of-reports" in line and "999" in line for line in lines)


def test_y13_a_rebuild_shows_how_far_it_is() -> None:
    run = RebuildState(sink="cache", generation=2, previous=1, step="building", share=0.41)
    shown = status_of(sink(rebuild=run), LIMITS)
    assert shown.document()["sinks"]["cache"]["rebuild"] == {"generation": 2, "step": "building", "share": 0.41}
    text = StringIO()
    Console(file=text, width=80).print(view(shown))
    assert "consistent, rebuild 41%" in text.getvalue()
    [stores] = [
        one for one in board_of(document_of(LiveLook(shown=shown, at_ms=NOW_MS))).grids if one.title == "Stores"
    ]
    assert (stores.rows[0][1].text, stores.rows[0][1].share) == ("consistent, rebuild 41%", 0.41)


def test_json_has_it_all() -> None:
    shown = orjson.loads(orjson.dumps(status_of(FACTS, LIMITS).document()))
    assert shown["slot"]["active_pid"] == 7
    assert shown["sinks"]["cache"] == {
        "kind": "redis",
        "state": "consistent",
        "lsn": "0/5F5E0CE",
        "lag_bytes": 50,
        "lag_seconds": 0.0,
        "lag_at_least": False,
        "lag_records": None,
        "parked": 0,
        "held": {},
        "error": None,
        "fill": None,
        "rebuild": None,
        "freshness": None,
        "freshness_known": False,
    }


def test_h110_no_table_is_followed_before_the_first_snapshot() -> None:
    facts = replace(FACTS, tables=3)
    assert status_of(facts, LIMITS).document()["tables"] == {"following": 3, "others": {}}
    before = replace(facts, slot=None, snapshot=None, marks=[])
    assert status_of(before, LIMITS).document()["tables"] == {"following": 0, "others": {}}


def test_tables_that_are_read_again_are_shown_until_it_is_over() -> None:
    asked = RequestState(id="a", table="public.a", after_lsn=0, reason="public.a was rewritten", serial=2)
    first = RequestState(id="b", table="public.b", after_lsn=0, reason="came", serial=3, first=True)
    old = ReadingState(id="a", table="public.a", serial=1, epoch=1, state="done", rows=9)
    under_way = ReadingState(id="b", table="public.b", serial=3, epoch=1, state="running", rows=5, share=0.5)
    failed = ReadingState(id="c", table="public.c", serial=4, epoch=1, state="failed", detail="no right")
    held = {one.key(): one.to_json() for one in (asked, first, old, under_way, failed)}
    found = rereads_of(held)
    assert [(one.table, one.state, one.rows) for one in found] == [
        ("public.a", "waiting", 0),
        ("public.b", "running", 5),
        ("public.c", "failed", 0),
    ]
    assert [one.first for one in found] == [False, True, False]


def test_h109_without_the_log_nothing_is_judged_by_it() -> None:
    silent = Unknown(LogError("cannot reach Kafka", hint="start it"))
    facts = replace(
        FACTS, slot=silent, snapshot=silent, marks=[], log=silent, sinks=[replace(FACTS.sinks[0], parked=None)]
    )
    shown = status_of(facts, LIMITS)
    assert (shown.snapshot, shown.log_lsn, shown.lag_bytes, shown.lag_s) == ("unknown", None, None, None)
    assert [(s.state, s.lag_s, s.parked) for s in shown.sinks] == [("unjudged", None, None)]
    assert shown.passed == ("cannot reach Kafka",)
    assert shown.exit is Exit.UNAVAILABLE
    lines = page(shown)
    assert "log       not known, it was not read" in lines
    assert "snapshot  not known" in lines


def test_h109_a_slot_that_was_not_seen_is_not_none() -> None:
    lines = page(status_of(replace(FACTS, source=Unknown(SourceError("no answer"))), LIMITS))
    assert "slot      cdc_shop: not known, Postgres does not answer" in lines
    assert "slot      cdc_shop: none" in page(status_of(replace(FACTS, source=replace(SOURCE, slot=None)), LIMITS))


def test_h109_a_filling_store_has_no_distance_in_wal() -> None:
    """Its LSN is 0, and the distance from there was the absolute LSN."""
    (filling,) = status_of(sink(watermark=Watermark(epoch=1, lsn=0)), LIMITS).sinks
    assert (filling.lag_bytes, filling.lag_s) == (None, None)
    (former,) = status_of(
        replace(sink(watermark=Watermark(epoch=1, lsn=7)), slot=replace(KNOWN, epoch=2)), LIMITS
    ).sinks
    assert former.lag_bytes is None


def test_h109_a_log_of_a_former_epoch_is_measured_from_the_slot() -> None:
    begun = replace(FACTS, slot=replace(KNOWN, epoch=2, consistent_point=HEAD - 7))
    assert status_of(begun, LIMITS).lag_bytes == 7


def test_an_empty_store_is_a_fault_once_there_are_rows() -> None:
    assert status_of(sink(watermark=None), LIMITS).exit is Exit.DIFFERENCE
    [said] = status_of(replace(sink(watermark=None), snapshot=None), LIMITS).passed
    assert "empty" not in said


def test_a_pipeline_without_a_first_snapshot_is_a_fault() -> None:
    """All would look well to a watcher of exit codes, and nothing is captured."""
    before = replace(FACTS, snapshot=None, slot=None, marks=())
    shown = status_of(before, LIMITS)
    assert (shown.snapshot, shown.exit) == ("none", Exit.DIFFERENCE)
    assert shown.passed[0].startswith("nothing is captured before the first snapshot: cdc snapshot ")
    elsewhere = replace(before, source=None)
    assert not any("first snapshot" in said for said in status_of(elsewhere, LIMITS).passed)


def page(shown: Status) -> list[str]:
    text = StringIO()
    Console(file=text, width=80).print(view(shown))
    return [line.rstrip() for line in text.getvalue().splitlines()]


CONNECTOR = ConnectorFacts(
    name="shop",
    database="mariadb",
    address="db:3306",
    state="RUNNING",
    snapshot="complete",
)
ENDS = {"shop.crm.a": {0: 10, 1: 5}}


def other_source(offsets: dict[int, int], **change: Any) -> StatusFacts:
    held = Watermark(epoch=1, lsn=0, offsets={"shop.crm.a": offsets})
    facts = replace(FACTS, source=None, slot=None, snapshot=None, marks=[], connector=CONNECTOR, ends=ENDS)
    return replace(facts, **{"sinks": [SinkFacts(name="cache", kind="redis", watermark=held)], **change})


@pytest.mark.parametrize(
    ("facts", "state", "records"),
    [
        (other_source({0: 10, 1: 5}), "level", 0),
        (other_source({0: 10}), "behind", 5),
        (other_source({0: 12, 1: 5}), "level", 0),
        (other_source({}, log=Unknown(LogError("away"))), "unjudged", 15),
    ],
)
def test_h130_a_source_without_lsns_is_not_asked(facts: StatusFacts, state: str, records: int) -> None:
    shown = status_of(facts, LIMITS)
    assert [(s.state, s.lag_records, s.lag_bytes) for s in shown.sinks] == [(state, records, None)]
    words = "".join(printed(shown).split())
    assert "mariadbatdb:3306,whichisnotasked" in words
    assert "connectorshop,RUNNINGsourcemariadb" in words
    assert "Postgres" not in words
    assert "slot" not in words
    assert (shown.passed == ()) == (state != "unjudged")
    assert shown.snapshot == "complete"


@pytest.mark.parametrize(
    ("connector", "said", "exit"),
    [
        (replace(CONNECTOR, state="STOPPED"), "the connector shop is stopped", Exit.DIFFERENCE),
        (replace(CONNECTOR, fault="no slot"), "the connector shop failed: no slot", Exit.DIFFERENCE),
        (Unknown(SourceError("Kafka Connect cannot be reached")), "Kafka Connect cannot be reached", Exit.UNAVAILABLE),
    ],
)
def test_h130_a_connector_that_does_not_run_is_said(connector: Any, said: str, exit: Exit) -> None:
    shown = status_of(other_source({0: 10, 1: 5}, connector=connector), LIMITS)
    assert shown.passed[0].startswith(said)
    assert shown.exit is exit


def test_h130_a_connector_on_postgres_says_how_far_the_log_is() -> None:
    connector = replace(CONNECTOR, database="postgres", position="0/1", lsn=HEAD - 70)
    facts = replace(FACTS, slot=None, snapshot=None, marks=[], connector=connector)
    shown = status_of(facts, LIMITS)
    assert (shown.log_lsn, shown.lag_bytes, shown.snapshot) == (HEAD - 70, 70, "complete")
    assert [s.state for s in shown.sinks] == ["consistent"]
    reading = replace(facts, connector=replace(connector, snapshot="running", lsn=None))
    assert [s.state for s in status_of(reading, LIMITS).sinks] == ["bootstrapping"]


def test_a_table_that_is_read_again_has_a_line() -> None:
    asked = Reread(table="public.a", reason="", state="paused", detail="as asked", rows=1_200, share=0.4, first=False)
    assert "again   public.a, paused, 40%, 1,200 rows: as asked" in printed(
        status_of(replace(FACTS, rereads=[asked]), LIMITS)
    )


def printed(shown: Status) -> str:
    out = StringIO()
    Console(file=out, width=80).print(view(shown))
    return out.getvalue()


def shown_text(facts: StatusFacts) -> str:
    console = Console(file=StringIO(), width=80)
    console.print(view(status_of(facts, LIMITS)))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_freshness_is_what_the_processes_say_and_else_not_known() -> None:
    assert "freshness not known: no process answers" in shown_text(FACTS)
    asked = replace(FACTS, fresh=FreshFacts(asked=frozenset(["log"]), log=Quantiles(0.02, 0.5, 12)))
    assert "to the log  p50 0.02 s, p99 0.50 s" in shown_text(asked)
    assert "to cache  not known" in shown_text(asked)
    quiet = replace(FACTS, fresh=FreshFacts(asked=frozenset(["cache"])))
    assert "to cache  nothing came in the last 5 minutes" in shown_text(quiet)
    document = status_of(asked, LIMITS).document()
    assert document["log"]["freshness"] == {"p50_seconds": 0.02, "p99_seconds": 0.5, "changes": 12}
    cache = document["sinks"]["cache"]
    assert (cache["freshness"], cache["freshness_known"]) == (None, False)
