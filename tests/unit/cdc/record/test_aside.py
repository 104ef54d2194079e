"""A table that is set aside is named by everything that a person or a program asks (H119)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cdc.cli.verify import conclude
from cdc.figures.capture_metrics import CaptureFigures, Health
from cdc.figures.capture_server import CaptureCollector
from cdc.freshness.rules import require_whole
from cdc.process.clock import ManualClock
from cdc.process.errors import DifferenceFound
from cdc.record.progress import Progress, Watermark
from cdc.record.tables_aside import AsideState, Cause, TableState, Unfollowed
from cdc.record.topic_names import TableName
from cdc.settings.model import LimitSettings
from cdc.status.facts import Reread
from cdc.status.rules import status_of
from cdc.verification.result import Kind, StoreVerdict, VerificationReport
from tests.unit.cdc.status.test_rules import FACTS, page

ASIDE = AsideState(
    table="public.t",
    epoch=1,
    state=TableState.ASIDE,
    cause=Cause.LOCKED,
    detail="it is locked",
    since_lsn=0x1000,
    since_ms=0,
)
WAITING = replace(ASIDE, table="public.w", state=TableState.WAITING)
SAID = {"shop.public.t": ASIDE.sentence()}


def test_h119_status_names_each_table_and_ends_with_1() -> None:
    shown = status_of(replace(FACTS, asides={"public.t": ASIDE, "public.w": WAITING}, tables=5), LimitSettings())
    assert shown.exit == 1
    assert ASIDE.sentence() in shown.passed
    assert WAITING.sentence() in shown.passed
    found = shown.document()["tables"]
    assert found["following"] == 3
    assert found["others"]["public.t"] == {
        "state": "aside", "cause": "locked", "detail": "it is locked", "since_lsn": "0/1000", "since_ms": 0,
    }  # fmt: skip
    assert any("aside" in line and "public.t, since 0/1000" in line for line in page(shown))
    both = status_of(
        replace(FACTS, asides={"public.t": ASIDE}, not_followed={"public.t": Unfollowed("renamed")}), LimitSettings()
    )
    assert list(both.passed) == ["renamed"], "one sentence is enough"


def test_h119_readiness_falls_in_time_the_metric_has_the_cause() -> None:
    clock = ManualClock()
    state = replace(ASIDE, since_ms=clock.now_ns() // 1_000_000)
    figures = CaptureFigures(phase="streaming", waiting_ready_s=60.0)
    figures.asides = lambda: {"public.t": state, "public.w": WAITING}
    health = Health(figures, clock)
    clock.advance(59)
    assert health.ready()[0]
    clock.advance(2)
    assert health.ready() == (False, state.sentence())
    registry = CollectorRegistry()
    registry.register(CaptureCollector(figures, clock))
    text = generate_latest(registry).decode()
    assert 'cdc_table_state{cause="locked",pipeline="",state="aside",table="public.t"} 1.0' in text
    assert 'cdc_table_state{cause="locked",pipeline="",state="waiting",table="public.w"} 1.0' in text


READING = replace(ASIDE, table="public.r", state=TableState.READING, from_lsn=0x2000)


def test_h119_a_table_that_is_being_read_again_is_named() -> None:
    """Its changes flow, and its rows are not whole: status, the metric and readiness say so until it is over."""
    said = "public.r was set aside, and is being read again"
    again = Reread(table="public.r", reason="", state="running", detail="", rows=0, share=0.0, first=False)
    shown = status_of(replace(FACTS, asides={"public.r": READING}, rereads=[again], tables=2), LimitSettings())
    assert (shown.exit, list(shown.passed)) == (1, [said])
    assert shown.document()["tables"]["others"]["public.r"]["state"] == "reading"
    assert any("reading public.r, since 0/1000" in " ".join(line.split()) for line in page(shown))
    clock = ManualClock()
    figures = CaptureFigures(phase="streaming", waiting_ready_s=60.0)
    state = replace(READING, since_ms=clock.now_ns() // 1_000_000)
    figures.asides = lambda: {"public.r": state}
    health, registry = Health(figures, clock), CollectorRegistry()
    registry.register(CaptureCollector(figures, clock))
    assert 'state="reading",table="public.r"} 1.0' in generate_latest(registry).decode()
    assert health.ready()[0]
    clock.advance(61)
    assert health.ready() == (False, said)
    figures.asides = dict
    assert health.ready()[0]
    assert "cdc_table_state{" not in generate_latest(registry).decode()


def test_h119_a_store_that_lacks_changes_of_a_table_is_not_fresh() -> None:
    held = Watermark.from_json(Watermark(epoch=1, lsn=0x2000, aside=SAID).to_json())
    assert held.aside == SAID
    require_whole("cache", replace(held, aside={}))
    with pytest.raises(DifferenceFound, match=r"cache shows all tables up to 0/2000 but these: public\.t is set aside"):
        require_whole("cache", held)


def test_h119_verify_fails_where_a_table_was_not_compared() -> None:
    conclude(VerificationReport(verdicts=[], fence=1, looks=1))
    report = VerificationReport(verdicts=[], fence=1, looks=1, not_compared={"public.t": ASIDE.sentence()})
    assert report.document()["not_compared"] == {"public.t": ASIDE.sentence()}
    with pytest.raises(DifferenceFound, match=r"not compared: public\.t"):
        conclude(report)


def test_h154_a_repair_is_advised_only_where_it_is_not_refused() -> None:
    verdict = StoreVerdict(sink="cache", table=TableName("public", "t"))
    verdict.add(Kind.MISSING, "1")
    report = VerificationReport(verdicts=[verdict], fence=1, looks=1)
    hints = []
    for repairable in (True, False):
        with pytest.raises(DifferenceFound) as found:
            conclude(report, repairable=repairable)
        hints.append(found.value.hint)
    assert ["--repair" in hint for hint in hints] == [True, False]


def test_h119_progress_says_which_topics_lack_changes() -> None:
    whole = Progress(epoch=1, lsn=8, offsets={})
    lacking = replace(whole, aside=SAID)
    assert Progress.from_json(lacking.to_json()) == lacking
    assert Progress.from_json(whole.to_json()) == whole
