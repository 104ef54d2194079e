"""How far Debezium's topics hold the source, as a feed of progress records."""

from collections.abc import Mapping
from typing import Any

from cdc.process.clock import ManualClock
from cdc.process.errors import LogError
from cdc.record.progress import Offsets
from connectors.debezium.offsets import ConnectProgress, shown_lsn

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
    feed = ConnectProgress(server.offsets, server.ends, lambda: 3, clock=clock)
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
    feed = ConnectProgress(server.offsets, server.ends, lambda: 1, clock=clock)
    assert feed.poll(0.1) == []
    clock.advance(1)
    assert [record.lsn for record in feed.poll(0.1)] == [8]


def test_nothing_is_claimed_while_a_snapshot_is_read() -> None:
    assert shown_lsn([]) is None
    assert shown_lsn(stored(lsn=70, snapshot="INITIAL", snapshot_completed=False)) is None
    assert shown_lsn(stored(lsn=70, snapshot=True)) is None
    assert shown_lsn(stored(lsn=70)) == 70
    assert shown_lsn(stored(lsn=70, lsn_commit=64)) == 64


def test_a_database_without_lsns_tells_of_its_epoch_once() -> None:
    clock = ManualClock()
    reading, done = stored(file="bin.01", pos=4, snapshot="INITIAL"), stored(file="bin.01", pos=9)
    server = Server([], reading, done, stored(file="bin.01", pos=12))
    feed = ConnectProgress(server.offsets, server.ends, lambda: 2, clock=clock)
    told = []
    for _ in range(4):
        told += [(record.epoch, record.lsn) for record in feed.poll(0.1)]
        clock.advance(1)
    assert told == [(2, 0)]
