"""What of a promoted standby is gone on with: by its timeline's history, and by how far the log reaches (H55)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.process.errors import ConfigError, IdentityError
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.state import SlotState
from connectors.postgres.server.failover import (
    OPEN,
    History,
    Promotion,
    find_promotion,
    may_be_promoted,
    may_be_twin,
    parse_history,
    require_failover,
    require_not_promoted,
    shared_lsn,
)
from connectors.postgres.server.slot import require_same_server
from tests.unit.cdc.checks.test_postgres import KNOWN, SERVER, SLOT

PROMOTED = replace(SERVER, timeline=2)
KEPT = replace(SLOT, failover=True, synced=True)
HISTORY = "1\t0/3000148\tno recovery target specified\n\n2\t0/5000000\tbefore 2026-01-01 00:00:00+00\n"


def noted(timeline: int, history: list[list[int]] | None) -> SlotState:
    """The pipeline's slot on that timeline, with the history that capture has noted."""
    return replace(KNOWN, timeline=timeline, history=history)


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
    ("known", "history", "server", "lsn"),
    [
        (noted(1, None), [[1, 30]], 2, 30),
        (noted(1, None), [[1, 30], [2, 50]], 3, 30),
        (noted(2, None), [[1, 30], [2, 50]], 3, 50),
        (noted(2, [[1, 30]]), [[1, 30], [2, 50]], 3, 50),
        (noted(2, [[1, 40]]), [[1, 30], [2, 50]], 3, 30),
        (noted(2, [[1, 20]]), [[1, 30], [2, 50]], 3, 20),
        (noted(3, None), [[1, 30], [2, 50]], 3, OPEN),
        (noted(4, None), [[1, 30], [2, 50]], 3, None),
        (noted(2, [[1, 30]]), [[1, 30]], 2, OPEN),
        (noted(2, [[1, 30]]), [[1, 40]], 2, 30),
        (noted(2, [[1, 40]]), [[1, 30]], 2, 30),
        (noted(3, [[1, 30], [2, 50]]), [[1, 30], [2, 45]], 3, 45),
        (noted(3, [[1, 30]]), [[1, 30], [2, 50]], 3, 30),
        (noted(2, [[1, 30]]), [[5, 40]], 6, None),
        (noted(1, []), [], 1, OPEN),
        # The standby had lost the history of timeline 2 before it was promoted (H253).
        (noted(2, [[1, 30]]), [[2, 50]], 3, 50),
        (noted(3, [[1, 30], [2, 50]]), [[2, 40]], 3, 40),
        (noted(3, [[1, 30], [2, 50]]), [[2, 50]], 3, OPEN),
        (noted(3, [[1, 30], [2, 50]]), [], 3, None),
    ],
)
def test_h55_h192_h253_how_far_two_lines_are_one(
    known: SlotState, history: list[list[int]], server: int, lsn: int | None
) -> None:
    assert shared_lsn(known, server, history) == lsn


def test_h55_a_history_file_is_read_as_postgres_writes_it() -> None:
    assert parse_history(HISTORY) == [[1, 0x3000148], [2, 0x5000000]]
    assert parse_history("11\t0/8\tx\n1\t1/10\tx\n# a comment\n") == [[11, 8], [1, 0x100000010]]
    assert parse_history("") == []


@pytest.mark.parametrize(
    ("history", "slot", "found"),
    [
        ([[1, 30]], KEPT, None),
        ([[1, 30]], None, None),
        ([[1, 40]], KEPT, Promotion(timeline=2, switch_lsn=30)),
        ([[1, 20]], KEPT, Promotion(timeline=2, switch_lsn=20)),
    ],
)
def test_h192_a_server_of_the_same_number_may_be_another(
    history: History, slot: SlotFacts | None, found: Promotion | None
) -> None:
    assert find_promotion(PROMOTED, history, noted(2, [[1, 30]]), slot) == found


@pytest.mark.parametrize(
    ("timeline", "slot", "right"),
    [
        (2, replace(KEPT, confirmed_flush_lsn=31), True),
        (2, SLOT, True),
        (2, None, True),
        (2, replace(KEPT, confirmed_flush_lsn=30), False),
        (2, replace(KEPT, confirmed_flush_lsn=None), False),
        (3, replace(KEPT, confirmed_flush_lsn=31), False),
        (3, SLOT, False),
    ],
)
def test_h205_without_its_history_a_server_needs_another_proof(
    timeline: int, slot: SlotFacts | None, right: bool
) -> None:
    server = replace(PROMOTED, timeline=timeline)
    if right:
        assert find_promotion(server, None, noted(2, [[1, 30]]), slot) is None
        return
    with pytest.raises(IdentityError, match=f"the history of its timeline {timeline}") as caught:
        find_promotion(server, None, noted(2, [[1, 30]]), slot)
    assert f"pg_wal/0000000{timeline}.history" in caught.value.hint


def test_h205_a_slot_proves_nothing_where_no_history_was_noted() -> None:
    with pytest.raises(IdentityError, match="the history of its timeline 2"):
        find_promotion(PROMOTED, None, noted(2, None), replace(KEPT, confirmed_flush_lsn=31))


def test_h192_a_twin_without_the_slot_is_refused() -> None:
    known = noted(2, [[1, 30]])
    for slot in (None, SLOT, replace(KEPT, failover=False), replace(KEPT, synced=False)):
        with pytest.raises(IdentityError, match="parted from the pipeline's at 0/14"):
            find_promotion(PROMOTED, [[1, 20]], known, slot)
    with pytest.raises(IdentityError, match="timeline 2 did not come from 7"):
        find_promotion(PROMOTED, [[1, 20]], noted(7, None), KEPT)


@pytest.mark.parametrize(
    ("server", "may"),
    [
        (PROMOTED, True),
        (replace(PROMOTED, timeline=3), False),
        (replace(PROMOTED, timeline=1), False),
        (replace(PROMOTED, in_recovery=True), False),
        (replace(PROMOTED, system_identifier="8"), False),
        (replace(PROMOTED, database_oid=5), False),
    ],
)
def test_h192_a_twin_has_all_but_the_line(server: ServerFacts, may: bool) -> None:
    assert may_be_twin(server, noted(2, None)) is may
    assert may_be_twin(SERVER, noted(1, None))


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


def test_h6_a_primary_of_before_is_not_offered_a_new_epoch() -> None:
    """It would be read as if it were the source, while the one that took its place is written."""
    with pytest.raises(IdentityError) as former:
        require_same_server(SERVER, replace(KNOWN, timeline=SERVER.timeline + 1), "h")
    assert "primary of before" in str(former.value.hint)
    assert "new-epoch" not in str(former.value.hint)
    with pytest.raises(IdentityError) as later:
        require_same_server(replace(SERVER, timeline=KNOWN.timeline + 1), KNOWN, "h")
    assert "new-epoch" in str(later.value.hint)
