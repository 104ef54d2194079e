"""``cdc check`` names each captured table that is not followed as the others are, with what ends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cdc.aside import AsideState, Cause, TableState
from cdc.checks.facts import PublicationFacts
from cdc.checks.finding import Finding, Level, exit_code
from cdc.checks.preflight import preflight
from cdc.errors import Exit, SourceError
from cdc.following import OPERATIONS, Unfollowed
from cdc.state import Document, TopicsState
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
        (TableState.READING, Cause.LOCKED, Level.WARN, "cdc status"),
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
