"""A broker in memory, and a producer that behaves as a gapless librdkafka does: late, in pieces, by partition."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

Place = tuple[str, int]
Report = Callable[[KafkaError | None, "Delivered"], None]


class Held(NamedTuple):
    """A record in a partition; its offset is its place there."""

    key: bytes
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]

    @property
    def pos(self) -> str:
        return self.headers[0][1].decode()

    @property
    def op(self) -> str:
        return self.headers[1][1].decode()


class Delivered(NamedTuple):
    """What a delivery report says."""

    at: int

    def offset(self) -> int:
        return self.at


@dataclass(slots=True)
class Broker:
    """``arrived``: the partition of every record, in the order in which they came. ``on_arrival`` is told of each."""

    lanes: dict[Place, list[Held]]
    arrived: list[Place] = field(default_factory=list)
    on_arrival: Callable[[Place, Held], None] = lambda place, record: None

    def append(self, place: Place, record: Held) -> int:
        lane = self.lanes[place]
        lane.append(record)
        self.arrived.append(place)
        self.on_arrival(place, record)
        return len(lane) - 1

    def ends(self) -> dict[str, dict[int, int]]:
        """topic -> partition -> next offset"""
        found: dict[str, dict[int, int]] = {}
        for (topic, partition), records in self.lanes.items():
            found.setdefault(topic, {})[partition] = len(records)
        return found


class MemoryProducer:
    """:class:`confluent_kafka.Producer` as far as the log uses it. ``tick`` is called at every call and may raise.

    Records wait per partition and arrive there in order, some at every poll, partitions in any order; reports come
    later still. ``fails``: after so many arrivals one record fails, and with it all that wait.
    """

    def __init__(self, broker: Broker, rng: random.Random, tick: Callable[[], None], fails: int | None) -> None:
        self._broker = broker
        self._rng = rng
        self._tick = tick
        self._left = fails
        self._waiting: dict[Place, deque[tuple[Held, Report | None]]] = {}
        self._count = 0
        self._reports: list[tuple[Report, KafkaError | None, Delivered]] = []
        self._fatal = False

    def __len__(self) -> int:
        return self._count + len(self._reports)

    def produce(
        self, topic: str, value: bytes | None, key: bytes, partition: int, report: Report | None, *rest: Any
    ) -> None:
        self._tick()
        if self._fatal:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        if self._count and self._rng.random() < 0.03:
            raise BufferError
        self._waiting.setdefault((topic, partition), deque()).append((Held(key, value, rest[-1]), report))
        self._count += 1

    def poll(self, timeout_s: float) -> int:
        self._tick()
        rng = self._rng
        if self._count and (timeout_s > 0 or rng.random() < 0.5):
            self._arrive(rng.randint(1, 6))
        if not self._reports or (timeout_s == 0 and rng.random() < 0.3):
            return 0
        count = rng.randint(1, len(self._reports))
        due, self._reports = self._reports[:count], self._reports[count:]
        for report, error, delivered in due:
            report(error, delivered)
        return count

    def purge(self) -> None:
        """What was on its way may have arrived all the same; nobody will be told."""
        self.die()

    def die(self) -> None:
        """The process is gone: of what waited for a partition some arrived, the first ones."""
        for place, waiting in self._waiting.items():
            for _ in range(self._rng.randint(0, len(waiting)) if waiting and not self._fatal else 0):
                self._broker.append(place, waiting.popleft()[0])
        self._waiting.clear()
        self._reports.clear()
        self._count = 0

    def _arrive(self, count: int) -> None:
        for _ in range(min(count, self._count)):
            place = self._rng.choice([place for place, waiting in self._waiting.items() if waiting])
            record, report = self._waiting[place].popleft()
            self._count -= 1
            if self._left is not None:
                self._left -= 1
                if self._left < 0:
                    self._fail(report)
                    return
            offset = self._broker.append(place, record)
            if report is not None:
                self._reports.append((report, None, Delivered(offset)))

    def _fail(self, report: Report | None) -> None:
        """Gapless: nothing behind a record that failed is sent any more."""
        self._fatal = True
        error = KafkaError(KafkaError._MSG_TIMED_OUT)
        lost = [report, *(waiting for queue in self._waiting.values() for _, waiting in queue)]
        self._reports += [(one, error, Delivered(-1001)) for one in lost if one is not None]
        self._waiting.clear()
        self._count = 0


def empty(topics: Mapping[str, int]) -> Broker:
    """A broker with these topics and as many partitions of each."""
    return Broker({(topic, p): [] for topic, count in topics.items() for p in range(count)})
