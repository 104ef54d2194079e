"""The stream's log over a client in memory: what is told to be held is held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from cdc.process.clock import ManualClock
from cdc.process.errors import LogError, PoisonError
from cdc.record.ports import Record, Withheld
from cdc.record.position import Position
from cdc.settings.model import LogSettings
from connectors.kafka.dead_letters import Oversized
from connectors.kafka.stream_log import KafkaStreamLog
from tests.unit.spark.doubles import MemoryDead


class _Report:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


class Client:
    """Takes every record at once, but for the keys in ``refuses``; reports wait for :meth:`tell`."""

    def __init__(self, refuses: tuple[bytes, ...] = ()) -> None:
        self.refuses = refuses
        self.ends: dict[tuple[str, int], int] = {}
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.told = True
        self.taken: list[bytes] = []

    def produce(self, topic: str, value: Any, key: bytes, partition: int, report: Any, *_: Any) -> None:
        if key in self.refuses:
            if report is not None:
                error = KafkaError(KafkaError._MSG_TIMED_OUT)
                self.waiting.append((partition, lambda: report(error, _Report(-1001))))
            return
        assert not isinstance(value, Withheld), "it has no bytes"
        self.taken.append(key)
        offset = self.ends.get((topic, partition), 0)
        self.ends[topic, partition] = offset + 1
        if report is not None:
            self.waiting.append((partition, lambda: report(None, _Report(offset))))

    def poll(self, timeout_s: float) -> int:
        if self.told:
            self.tell()
        return 0

    def tell(self, partition: int | None = None) -> None:
        """Give the reports of one partition, or all."""
        due = [report for place, report in self.waiting if partition in (None, place)]
        self.waiting = [one for one in self.waiting if partition not in (None, one[0])]
        for report in due:
            report()

    def __len__(self) -> int:
        return len(self.waiting)

    def purge(self) -> None:
        """What is on its way does not arrive."""
        self.waiting.clear()


def log_on(client: Client, partitions: int, oversized: Oversized | None = None) -> KafkaStreamLog:
    as_producer: Any = client
    log = KafkaStreamLog(
        LogSettings(bootstrap_servers="none"),
        memory_limit=1 << 20,
        clock=ManualClock(),
        client=lambda _: as_producer,
        oversized=oversized,
    )
    log.open("t", [0] * partitions)
    # The first record of each partition goes by itself.
    log.produce([record(partition, b"first", 8) for partition in range(partitions)])
    log.settle()
    client.told = False
    return log


def record(lane: int, key: bytes, lsn: int) -> Record:
    return lane, key, b"{}", [("pos", Position(1, lsn, 1).text().encode())]


def test_h70_a_record_refused_in_the_middle_shows_as_a_gap() -> None:
    client = Client(refuses=(b"b",))
    log = log_on(client, 1)
    before = log.acked()
    log.produce([record(0, key, 16) for key in (b"a", b"b", b"c")])
    client.told = True
    with pytest.raises(LogError, match="offset 2 where 3 was due"):
        log.acked()
    with pytest.raises(LogError):
        log.produce([record(0, b"d", 24)])
    assert log.offsets() == {"t": {0: 1}}
    assert before == 1


def test_h57_a_record_that_failed_last_is_told_at_once() -> None:
    client = Client(refuses=(b"b",))
    log = log_on(client, 1)
    log.produce([record(0, b"a", 16), record(0, b"b", 16)])
    client.told = True
    with pytest.raises(LogError):
        log.acked()


def test_a_group_is_held_when_every_partition_of_it_is() -> None:
    client = Client()
    log = log_on(client, 2)
    first = log.acked()
    group = log.produce([record(0, b"a", 16), record(1, b"b", 16)])
    later = log.produce([record(1, b"c", 24)])
    client.tell(1)
    assert log.acked() == first
    client.tell(0)
    assert log.acked() == later > group
    assert log.offsets() == {"t": {0: 2, 1: 3}}


def test_h75_partitions_ahead_of_an_lsn_are_told_apart() -> None:
    client = Client()
    log = log_on(client, 2)
    client.told = True
    log.produce([record(0, b"a", 16), record(1, b"b", 32)])
    log.settle()
    assert log.ahead(24) == {"t": {1: Position(1, 32, 1).text()}}
    assert log.ahead(40) == {}


LARGE: Record = (0, b"large", Withheld(200_000_000), record(0, b"large", 24)[3])


def test_h57_h58_a_row_never_built_is_refused_in_its_turn() -> None:
    client = Client()
    log = log_on(client, 1)
    client.told = True
    with pytest.raises(PoisonError, match=r"a row of t with the key sha256:\w+ is larger than the topic takes"):
        log.produce([record(0, b"a", 16), record(0, b"b", 16), LARGE, record(0, b"c", 32)])
    assert client.taken == [b"first", b"a", b"b"]
    with pytest.raises(PoisonError):
        log.acked()


def test_h58_the_first_record_of_a_partition_may_never_be_built() -> None:
    client = Client()
    as_producer: Any = client
    settings = LogSettings(bootstrap_servers="none")
    log = KafkaStreamLog(settings, memory_limit=1 << 20, clock=ManualClock(), client=lambda _: as_producer)
    log.open("t", [0])
    with pytest.raises(PoisonError, match="larger than the topic takes"):
        log.produce([LARGE, record(0, b"c", 32)])
    assert client.taken == []


def test_h58_by_policy_it_is_a_dead_letter_and_capture_flows() -> None:
    client, dead = Client(), MemoryDead()
    log = log_on(client, 1, Oversized(LogSettings(bootstrap_servers="none"), dead, ["t"]))
    client.told = True
    log.produce([record(0, b"a", 16), LARGE, record(0, b"c", 32)])
    log.settle()
    assert client.taken == [b"first", b"a", b"c"]
    assert [(letter.key, letter.offset) for letter in dead.letters] == [(b"large", 24)]


def log_that_waits(client: Client, waits: list[list[bytes]], **settings: int) -> KafkaStreamLog:
    """A log of one lane that notes what the client had taken at each wait, and then lets the reports come."""

    def waiting() -> None:
        waits.append(list(client.taken))
        client.told = True

    as_producer: Any = client
    log = KafkaStreamLog(
        LogSettings(bootstrap_servers="none", **settings), memory_limit=1 << 20, waiting=waiting, clock=ManualClock(),
        client=lambda _: as_producer,
    )  # fmt: skip
    log.open("t", [0])
    return log


def test_h57_h70_a_lane_waits_until_its_first_record_is_stored() -> None:
    client, waits = Client(), list[list[bytes]]()
    client.told = False
    log_that_waits(client, waits).produce([record(0, key, 8) for key in (b"a", b"b", b"c")])
    assert waits == [[b"a"]]
    assert client.taken == [b"a", b"b", b"c"]


def test_h57_h70_a_lane_waits_until_a_large_record_is_stored() -> None:
    client, waits = Client(), list[list[bytes]]()
    log = log_that_waits(client, waits, max_message_bytes=100_000)
    log.produce([record(0, b"first", 8)])
    client.told = False
    large = (0, b"large", b"x" * 99_000, [("pos", Position(1, 16, 1).text().encode())])
    log.produce([record(0, b"a", 16), large, record(0, b"b", 16)])
    assert waits == [[b"first", b"a", b"large"]]
    assert client.taken == [b"first", b"a", b"large", b"b"]


def test_h76_what_a_closed_log_has_on_its_way_is_dropped() -> None:
    client = Client()
    log = log_on(client, 1)
    log.produce([record(0, b"late", 16)])
    log.close()
    assert client.waiting == [], "its record would arrive behind those of the next session"
