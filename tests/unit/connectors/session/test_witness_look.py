"""What WAL is noted, and beyond which other note: a start believes the last one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cdc.errors import IdentityError
from cdc.testing.topic import MemoryCompactedTopic
from cdc.wal_witness import WalWitness
from connectors.postgres.witnessed import ReadServer
from connectors.session.witness_look import WitnessLook
from tests.unit.cdc.checks.test_postgres import KNOWN
from tests.unit.connectors.postgres.wal_server import STARTED, WalServer

WAL = bytes(range(1, 251)) * 8
OTHER = bytes(range(250, 0, -1)) * 8


@pytest.fixture
def server() -> Iterator[WalServer]:
    with WalServer(WAL) as found:
        yield found


def note(end: int, *, wal: bytes = WAL, epoch: int = 1, timeline: int = 1) -> WalWitness:
    """A note of the 128 bytes below ``end``."""
    return WalWitness(epoch=epoch, timeline=timeline, lsn=end - 128, wal=wal[end - 128 : end].hex())


class Looking:
    """A session's notes. ``held``: up to where the log holds the source."""

    def __init__(self, server: WalServer, noted: WalWitness | None = None, *, started: str = STARTED) -> None:
        self.held = self.seen = 0
        self.faults: list[IdentityError] = []
        self.state = MemoryCompactedTopic()
        read = ReadServer(KNOWN, started, noted, lambda: self.seen)
        self._look = WitnessLook(server.source, read, self.state, lambda: self.held, self.faults.append)

    def look(self, held: int) -> WalWitness | None:
        """What is noted once the log holds so much."""
        self.held = held
        self._look.look()
        return WalWitness.find(self.state.read())


def test_h246_a_later_note_is_not_written_over(server: WalServer) -> None:
    """A first snapshot noted WAL at its last cut. Its capture begins far below."""
    looking = Looking(server, note(1000))
    assert looking.look(500) is None
    assert looking.look(1000) is None
    assert server.asked == []
    assert looking.look(1500) == note(1500)
    assert looking.look(1400) == note(1500)


def test_h250_what_was_not_on_the_disk_is_noted_later(server: WalServer) -> None:
    """Rows were read at the head, and the log rests there."""
    looking = Looking(server)
    server.wal = WAL[:900]
    assert looking.look(1000) == note(900)
    server.wal = WAL
    assert looking.look(1000) == note(1000)
    asked = len(server.asked)
    assert looking.look(1000) == note(1000)
    assert len(server.asked) == asked, "all of it is noted"


@pytest.mark.parametrize("noted", [note(1000, epoch=2), note(1000, timeline=2), None])
def test_h246_a_note_of_another_line_holds_up_nothing(server: WalServer, noted: WalWitness | None) -> None:
    assert Looking(server, noted).look(500) == note(500)


def test_h251_a_machine_put_back_with_its_memory_is_not_noted(server: WalServer) -> None:
    """It was started when the source was, and has written on."""
    looking = Looking(server)
    assert looking.look(1000) == note(1000)
    server.wal = WAL[:700] + OTHER[700:]
    assert looking.look(1500) == note(1000)
    [fault] = looking.faults
    assert "has other WAL at" in fault.message


def test_h251_one_that_is_behind_what_was_noted_is_not(server: WalServer) -> None:
    looking = Looking(server, note(1000))
    server.wal = WAL[:900]
    assert looking.look(1500) is None
    assert looking.faults == []
    server.wal = WAL
    assert looking.look(1500) == note(1500)


def test_h202_a_server_that_does_not_answer_is_asked_again(server: WalServer) -> None:
    """Nothing was noted, so the same is noted later on."""
    looking = Looking(server, started="before")
    assert looking.look(1000) is None
    server.started = "before"
    assert looking.look(1000) == note(1000)


def test_h250_rows_read_at_the_head_are_within_the_note(server: WalServer) -> None:
    """Values that an update left out, and a later snapshot's rows: the stream lags behind them."""
    looking = Looking(server)
    looking.seen = 1500
    assert looking.look(500) == note(1500)
    looking.seen = 3000
    assert looking.look(500) == note(len(WAL)), "no further than the server's disk"


@pytest.mark.parametrize(("held", "lsn"), [(963, None), (964, 900), (1000, 900), (1100, 972)])
def test_h247_a_note_begins_where_the_timeline_does(server: WalServer, held: int, lsn: int | None) -> None:
    read = ReadServer(replace(KNOWN, history=[[1, 900]]), STARTED)
    state = MemoryCompactedTopic()
    WitnessLook(server.source, read, state, lambda: held, print).look()
    found = WalWitness.find(state.read())
    assert found == (None if lsn is None else replace(note(held), lsn=lsn, wal=WAL[lsn:held].hex()))
