"""``cdc check`` names each captured table that is not followed as the others are, with what ends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cdc.checks.findings import Finding, Level, exit_code
from cdc.checks.preflight import preflight
from cdc.figures.process_status import Process, Trouble
from cdc.process.errors import Exit, SourceError
from cdc.record.server_facts import PublicationFacts
from cdc.record.state import Document, ReadingState, RequestState, SnapshotState, TopicsState
from cdc.record.tables_aside import OPERATIONS, AsideState, Cause, TableState, Unfollowed
from tests.unit.cdc.checks.test_postgres import FACTS, KNOWN
from tests.unit.cdc.checks.test_preflight import Probes, fails, settings

TOPICS = TopicsState(cluster_id="c", tables={"public.orders": "shop.public.orders", "public.t": "shop.public.t"})
ASIDE = AsideState(
    table="public.t",
    epoch=1,
    state=TableState.ASIDE,
    cause=Cause.CHANGED,
    detail="the key of public.t changed",
    since_lsn=0x1000,
    since_ms=0,
)

AWAY = fails(SourceError("no Postgres"))


def found(*more: Document, left: Mapping[str, Unfollowed] | None = None) -> list[Finding]:
    probes = Probes(state=lambda: [TOPICS, KNOWN, *more], not_followed=lambda: left or {})
    return [finding for finding in preflight(settings(), probes) if finding.part == "capture"]


@pytest.mark.parametrize(
    ("state", "cause", "level", "fix"),
    [
        (TableState.WAITING, Cause.LOCKED, Level.WARN, "end the transaction that has its lock"),
        (TableState.ASIDE, Cause.CHANGED, Level.FAIL, "cdc snapshot public.t takes its key"),
        (TableState.ASIDE, Cause.NOT_FOLLOWED, Level.FAIL, "cdc init"),
        (TableState.ASIDE, Cause.NOT_READABLE, Level.FAIL, "grant select on public.t"),
    ],
)
def test_h119_check_names_a_table_that_is_not_in_step(state: TableState, cause: Cause, level: Level, fix: str) -> None:
    one = replace(ASIDE, state=state, cause=cause)
    (finding,) = found(one)
    assert (finding.level, finding.message) == (level, one.sentence())
    assert fix in finding.fix
    assert exit_code([finding]) is (Exit.DIFFERENCE if level is Level.FAIL else Exit.OK)


def test_y5_a_table_whose_reading_was_given_up_is_not_read() -> None:
    reading = replace(ASIDE, state=TableState.READING)
    request = RequestState(id="snapshot:public.t", table="public.t", after_lsn=0, reason="")
    (said,), (left,) = found(reading, request), found(reading)
    assert (said.level, said.message) == (Level.WARN, reading.sentence())
    assert (left.message, left.fix) == ("public.t was set aside, and is not read again", "cdc snapshot public.t")


def reading_of(identity: str, state: str, *, started_ns: int = 0, finished_ns: int = 0) -> ReadingState:
    return ReadingState(
        id=identity,
        table="public.t",
        serial=1,
        epoch=1,
        state=state,
        detail="42501",
        started_ns=started_ns,
        finished_ns=finished_ns,
    )


@pytest.mark.parametrize(
    ("others", "lasts"),
    [
        ((), True),
        ((reading_of("snapshot:public.t", "done", started_ns=7),), True),
        ((reading_of("snapshot:public.t", "running", started_ns=9),), True),
        ((reading_of("snapshot:public.t:where:1", "done", started_ns=9),), True),
        ((replace(reading_of("snapshot:public.t", "done", started_ns=9), table="public.orders"),), True),
        ((reading_of("snapshot:public.t", "done", started_ns=9),), False),
    ],
)
def test_y5_a_later_reading_of_the_whole_clears_a_failed_one(others: tuple[ReadingState, ...], lasts: bool) -> None:
    failed = reading_of("snapshot:public.t:partitions", "failed", finished_ns=8)
    said = [one for one in found(failed, *others) if one.check == "readings"]
    assert bool(said) == lasts
    for one in said:
        assert one.message == "public.t could not be read again: 42501"
        assert "cdc snapshot public.t --cancel" in one.fix


def test_y6_check_says_what_a_reading_waits_for() -> None:
    waiting = replace(reading_of("snapshot:public.t", "waiting"), detail="start it again")
    (said,) = [one for one in found(waiting) if one.check == "readings"]
    assert (said.level, said.message) == (Level.WARN, "public.t waits to be read: start it again")


def sink(address: str = "127.0.0.1:1", said: Mapping[str, Trouble] | None = None) -> Process:
    return Process(
        command="cdc sink", setting="[spark] http_address", address=address, parts=["cache", "search"], said=said or {}
    )


@pytest.mark.parametrize(
    ("process", "level", "words"),
    [
        (sink(), Level.WARN, "cdc sink does not answer at 127.0.0.1:1"),
        (sink(""), Level.WARN, "no address is set for cdc sink ([spark] http_address)"),
        (sink(said={"cache": Trouble()}), Level.WARN, "the cdc sink at 127.0.0.1:1 does not keep search"),
        (sink(said={"cache": Trouble(), "search": Trouble()}), Level.OK, "cdc sink answers at 127.0.0.1:1"),
        (sink(said={"cache": Trouble(), "search": Trouble("stopped: x", "y")}), Level.FAIL, "search: stopped: x"),
    ],
)
def test_y11_check_asks_each_process(process: Process, level: Level, words: str) -> None:
    complete = SnapshotState(epoch=1, state="complete", consistent_point=1, last_cut_lsn=0)
    probes = Probes(state=lambda: [TOPICS, KNOWN, complete], processes=lambda: [process])
    (said,) = [one for one in preflight(settings(), probes) if one.part == "processes"]
    assert said.level is level
    assert said.message.startswith(words)
    assert bool(said.fix) == (level is not Level.OK)
    before = Probes(state=lambda: [TOPICS], processes=lambda: [process])
    assert not [one for one in preflight(settings(), before) if one.part == "processes"], "nobody runs yet"


def test_y12_check_names_a_view_without_a_store() -> None:
    (said,) = [one for one in preflight(settings(), Probes(unfed_views=lambda: ["sales"])) if one.part == "views"]
    assert (said.level, said.message) == (Level.WARN, "the view sales goes to no store")
    assert '"view.sales"' in said.fix


def test_h119_check_says_when_all_tables_are_followed() -> None:
    assert [(finding.level, finding.message) for finding in found()] == [
        (Level.OK, "each of the 2 captured tables is followed")
    ]
    assert not [f for f in preflight(settings(), Probes(state=lambda: [TOPICS])) if f.part == "capture"], "no snapshot"


def test_h96_check_names_a_table_that_is_not_followed_once() -> None:
    why = Unfollowed("public.orders was made anew, and is not in the publication cdc_shop: it is not followed")
    noted = replace(ASIDE, table="public.orders", cause=Cause.NOT_FOLLOWED)
    assert [(one.level, one.message) for one in found(noted, left={"public.orders": why})] == [(Level.FAIL, why.why)]
    sent = PublicationFacts(publication="cdc_shop", operations=OPERATIONS, via_root=True, tables=frozenset())
    facts = replace(FACTS, publication=sent)
    for left, count in (({"public.orders": why}, 0), ({}, 1)):
        probes = Probes(
            state=lambda: [TOPICS, KNOWN],
            source=lambda: facts,
            not_followed=lambda left=left: left,  # type: ignore[misc]
        )
        findings = [f for f in preflight(settings(), probes) if f.check == "publication" and f.level is Level.FAIL]
        assert len(findings) == count, "one finding is enough"


def test_h109_h119_a_silent_postgres_hides_no_table_aside() -> None:
    probes = Probes(state=lambda: [TOPICS, KNOWN, ASIDE], source=AWAY, not_followed=AWAY)
    said = [finding.message for finding in preflight(settings(), probes) if finding.part == "capture"]
    assert said == [ASIDE.sentence()]
    quiet = Probes(state=lambda: [TOPICS, KNOWN], source=AWAY, not_followed=AWAY)
    assert not [f for f in preflight(settings(), quiet) if f.part == "capture"], "whether all are followed is not known"
