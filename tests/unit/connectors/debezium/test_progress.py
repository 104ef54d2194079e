"""How far Debezium's topics hold the source, as a feed of progress records."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cdc.clock import ManualClock
from cdc.epochs import EpochsState
from cdc.errors import LogError
from cdc.progress import Offsets
from connectors.debezium.source_progress import ConnectProgress, shown_lsn

Stored = list[Mapping[str, Any]]


def stored(**offset: Any) -> Stored:
    return [{"partition": {"server": "shop"}, "offset": offset}]


class Server:
    """Answers with what it is given, and notes the order of the questions."""

    def __init__(self, *answers: Stored | LogError) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def offsets(self) -> Stored:
        self.asked.append("offsets")
        answer = self.answers.pop(0)
        if isinstance(answer, LogError):
            raise answer
        return answer

    def ends(self) -> Offsets:
        self.asked.append("ends")
        return {"t": {0: len(self.asked)}}


def test_a_record_is_sent_once_with_ends_asked_after_it() -> None:
    clock = ManualClock()
    server = Server(stored(lsn_commit=80, lsn=90), stored(lsn_commit=80, lsn=95), stored(lsn_commit=96))
    feed = ConnectProgress(server.offsets, server.ends, lambda: EpochsState(latest=3), clock=clock)
    (first,) = feed.poll(0.1)
    assert (first.epoch, first.lsn, first.offsets) == (3, 80, {"t": {0: 2}})
    assert server.asked == ["offsets", "ends"]
    assert feed.poll(0.1) == []  # asked a moment ago
    clock.advance(1)
    assert feed.poll(0.1) == []  # nothing has moved
    clock.advance(1)
    assert [record.lsn for record in feed.poll(0.1)] == [96]
    feed.close()


def test_a_server_that_is_away_holds_nothing_up() -> None:
    clock = ManualClock()
    server = Server(LogError("away"), stored(lsn_commit=8))
    feed = ConnectProgress(server.offsets, server.ends, EpochsState, clock=clock)
    assert feed.poll(0.1) == []
    clock.advance(1)
    assert [record.lsn for record in feed.poll(0.1)] == [8]


def test_nothing_is_claimed_while_a_snapshot_is_read() -> None:
    assert shown_lsn([]) is None
    assert shown_lsn(stored(lsn=70, snapshot="INITIAL", snapshot_completed=False)) is None
    assert shown_lsn(stored(lsn=70, snapshot=True)) is None
    assert shown_lsn(stored(lsn=70)) == 70
    assert shown_lsn(stored(lsn=70, lsn_commit=64)) == 64


def test_h123_offsets_of_an_epoch_say_nothing_of_the_next() -> None:
    """Between the noting of an epoch and the end of the old offsets, those would vouch for a snapshot never read."""
    clock = ManualClock()
    second = replace(EpochsState().begin({"t": {0: 9}}), unsettled=True)
    noted = [second]
    server = Server(stored(lsn_commit=80), stored(lsn_commit=80))
    feed = ConnectProgress(server.offsets, server.ends, lambda: noted[-1], clock=clock)
    assert feed.poll(0.1) == []
    noted.append(second.settled())
    clock.advance(1)
    (record,) = feed.poll(0.1)
    assert (record.epoch, record.lsn, record.reread) == (2, 80, True)


def test_h123_a_snapshot_of_part_of_the_rows_proves_no_row_gone() -> None:
    second = EpochsState().begin({"t": {0: 9}}).settled()
    whole: dict[str, str] = {"snapshot.mode": "initial"}
    part = {"snapshot.mode": "initial", "snapshot.select.statement.overrides": "public.a"}
    for config, reread in ((whole, True), ({"snapshot.mode": "no_data"}, False), (part, False)):
        server, clock = Server(stored(lsn_commit=80)), ManualClock()
        feed = ConnectProgress(server.offsets, server.ends, lambda: second, config=config.copy, clock=clock)
        assert [record.reread for record in feed.poll(0.1)] == [reread], config


def test_h154_what_is_not_swept_is_not_said_to_be_repaired(caplog: pytest.LogCaptureFixture) -> None:
    """``cdc verify --repair`` refuses stores that Debezium's topics feed."""
    second = EpochsState().begin({"t": {0: 9}}).settled()
    server, clock = Server(stored(lsn_commit=80)), ManualClock()
    feed = ConnectProgress(
        server.offsets, server.ends, lambda: second, config=lambda: {"snapshot.mode": "no_data"}, clock=clock
    )
    feed.poll(0.1)
    (record,) = [one for one in caplog.records if one.getMessage() == "epoch_not_swept"]
    assert "offsets --reset" in record.__dict__["hint"]
    assert "--repair" not in record.__dict__["hint"]


def test_h123_an_epoch_that_no_reading_began_is_not_swept() -> None:
    """As after a handover, where the connector goes on behind the native capture."""
    handed = EpochsState().reaching(3, {"t": {0: 9}})
    feed = ConnectProgress(Server(stored(lsn_commit=80)).offsets, dict, lambda: handed, clock=ManualClock())
    assert [record.reread for record in feed.poll(0.1)] == [False]


def test_a_database_without_lsns_tells_of_its_epoch_once() -> None:
    clock = ManualClock()
    reading, done = stored(file="bin.01", pos=4, snapshot="INITIAL"), stored(file="bin.01", pos=9)
    server = Server([], reading, done, stored(file="bin.01", pos=12))
    second = EpochsState().begin({"t": {0: 9}}).settled()
    feed = ConnectProgress(server.offsets, server.ends, lambda: second, has_lsn=False, clock=clock)
    told = []
    for _ in range(4):
        told += [(record.epoch, record.lsn, record.reread) for record in feed.poll(0.1)]
        clock.advance(1)
    assert told == [(2, 0, True)]
