"""What of a promoted standby is gone on with: by its timeline's history, and by how far the log reaches (H55)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.errors import ConfigError, IdentityError
from connectors.postgres.failover import (
    Promotion,
    may_be_promoted,
    require_failover,
    require_not_promoted,
    switch_lsn,
)
from tests.unit.cdc.checks.test_postgres import KNOWN, SERVER, SLOT

PROMOTED = replace(SERVER, timeline=2)
KEPT = replace(SLOT, failover=True, synced=True)
HISTORY = "1\t0/3000148\tno recovery target specified\n\n2\t0/5000000\tbefore 2026-01-01 00:00:00+00\n"


@pytest.mark.parametrize(
    ("server", "slot", "may"),
    [
        (PROMOTED, KEPT, True),
        (SERVER, KEPT, False),
        (PROMOTED, None, False),
        (PROMOTED, replace(KEPT, synced=False), False),
        (PROMOTED, replace(KEPT, failover=False), False),
        (replace(PROMOTED, in_recovery=True), KEPT, False),
        (replace(PROMOTED, system_identifier="8"), KEPT, False),
        (replace(PROMOTED, database_oid=5), KEPT, False),
    ],
)
def test_h55_only_the_same_server_later_with_its_slot_will_do(
    server: ServerFacts, slot: SlotFacts | None, may: bool
) -> None:
    assert may_be_promoted(server, KNOWN, slot) is may
    if may:
        with pytest.raises(IdentityError, match="on timeline 2; the snapshot was read on 1") as caught:
            require_not_promoted(server, KNOWN, slot)
        assert "cdc run goes on here" in caught.value.hint
    else:
        require_not_promoted(server, KNOWN, slot)


@pytest.mark.parametrize(
    ("history", "timeline", "lsn"),
    [
        (HISTORY, 1, 0x3000148),
        (HISTORY, 2, 0x5000000),
        (HISTORY, 3, None),
        ("", 1, None),
        ("11\t0/8\tx\n1\t1/10\tx\n", 1, 0x100000010),
        ("# a comment\n1\t0/8\n", 1, 8),
    ],
)
def test_h55_where_a_timeline_was_left(history: str, timeline: int, lsn: int | None) -> None:
    assert switch_lsn(history, timeline) == lsn


def test_h6_h55_the_log_may_reach_to_the_switch_and_no_further() -> None:
    promotion = Promotion(timeline=2, switch_lsn=0x3000148)
    promotion.require_within("the log", 0x3000148)
    with pytest.raises(IdentityError, match="goes on from 0/3000148, and the log reaches to 0/3000149") as caught:
        promotion.require_within("the log", 0x3000149)
    assert "cdc init --new-epoch" in caught.value.hint


def test_h55_standbys_keep_slots_from_17_on() -> None:
    require_failover(170000)
    with pytest.raises(ConfigError, match="PostgreSQL 17 or later"):
        require_failover(169999)
