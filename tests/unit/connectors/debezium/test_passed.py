"""Whether a connector has passed a place: by what its stored offset says, and the sentences where that is not known."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.clock import ManualClock
from cdc.errors import CdcError, ConfigError, DifferenceFound
from connectors.debezium.passed import require_heartbeat, wait_until_passed
from connectors.mysql.gtid import mariadb_covers

WANTED = "0-1-9"


def offset(gtids: str | None, **more: object) -> list[dict[str, Any]]:
    named = {"gtids": gtids} if gtids is not None else {}
    return [{"partition": {"server": "shop"}, "offset": {"file": "bin.000001", "pos": 7, **named, **more}}]


class Following:
    """A MariaDB whose log ends at ``end``: file number and GTID number."""

    def __init__(self, end: tuple[int, int]) -> None:
        self.end = end

    def covers(self, passed: str, wanted: str) -> bool:
        return mariadb_covers(passed, wanted)

    def beyond(self, file: str, pos: int, gtids: str) -> str:
        number, last = self.end
        inside = int(file.rpartition(".")[2]) <= number and mariadb_covers(f"0-1-{last}", gtids)
        return "" if inside else f"GTID 0-1-{last}"


def wait(*stored: list[dict[str, Any]], end: tuple[int, int] = (1, 99)) -> ManualClock:
    """Ask again and again; the last answer stays."""
    answers, clock = list(stored), ManualClock()
    wait_until_passed(
        lambda: answers.pop(0) if len(answers) > 1 else answers[0],
        Following(end),
        WANTED,
        timeout_s=5,
        clock=clock,
    )
    return clock


def test_h131_it_is_passed_once_the_stored_offset_covers_it() -> None:
    began = ManualClock().monotonic()
    assert wait(offset("0-1-9")).monotonic() == began
    assert wait([], offset("0-1-8"), offset("0-1-10")).monotonic() > began


@pytest.mark.parametrize(
    ("stored", "kind", "words"),
    [
        (
            offset("0-1-8"),
            DifferenceFound,
            "is at GTID 0-1-8, bin.000001:7; GTID 0-1-9 was not reached in 5 s",
        ),
        (offset("0-1-9", snapshot="INITIAL"), DifferenceFound, "reads a snapshot, or has not begun"),
        ([], DifferenceFound, "no place yet"),
        (offset(None), ConfigError, "holds no GTIDs"),
    ],
)
def test_h131_what_is_not_known_to_be_passed_is_said_with_a_hint(
    stored: list[dict[str, Any]], kind: type[CdcError], words: str
) -> None:
    with pytest.raises(kind, match=words) as late:
        wait(stored)
    assert late.value.hint


@pytest.mark.parametrize("running", [{}, {"heartbeat.interval.ms": "0"}])
def test_h131_heartbeats_are_asked_for(running: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="writes no heartbeats") as refused:
        require_heartbeat("shop", running)
    assert "heartbeat" in refused.value.hint


def test_h153_a_partly_written_transaction_is_not_passed() -> None:
    """A connector that began without GTIDs names the first transaction while it writes it."""
    began = ManualClock().monotonic()
    assert wait(offset("0-1-9", event=2, row=1), offset("0-1-9")).monotonic() > began
    # Behind it are GTIDs of whole transactions: those before the one that is written.
    assert wait(offset("0-1-10", event=2)).monotonic() == began
    with pytest.raises(DifferenceFound, match="0-1-9 was not reached"):
        wait(offset("0-1-9", row=1))


@pytest.mark.parametrize("end", [(1, 9), (2, 8)])
def test_h153_an_offset_beyond_the_logs_end_is_of_another_log(end: tuple[int, int]) -> None:
    """After RESET MASTER GTIDs are counted from 1 again: the connector's offset covers what it never saw."""
    ahead = [{"partition": {}, "offset": {"file": "bin.000002", "pos": 7, "gtids": "0-1-9"}}]
    with pytest.raises(ConfigError, match="behind the end of the server's log") as foreign:
        wait(ahead, end=end)
    assert "offsets --reset" in foreign.value.hint
    assert wait(ahead, ahead, end=(2, 9)) is not None
