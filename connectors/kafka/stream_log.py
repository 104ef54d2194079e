"""The stream's way into Kafka: groups of records, and what the broker is known to hold of them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cdc.capture.advance import CommitTimes
from cdc.capture.history import HistoryCopies
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import CdcError, LogError, PoisonError
from cdc.process.untrusted_text import quoted
from cdc.record.ports import Record, Withheld
from cdc.record.position import CHUNK_SEQ, SNAPSHOT_SEQ, Position
from cdc.record.progress import Offsets
from cdc.settings.model import LogSettings
from cdc.wire.format import POS
from connectors.kafka.clients import producer_config
from connectors.kafka.dead_letters import Oversized, refusal, too_large

declare("lane_introduced", "group_half_sent", "large_carried")

_lane_of = itemgetter(0)
_value_of = itemgetter(2)

_FULL_WAIT_S = 0.02
_NOT_STREAMED = (b"%08x" % SNAPSHOT_SEQ, b"%08x" % CHUNK_SEQ)
_FATAL_POLLS = 50
_FATAL = (KafkaException, SystemError)
"""The error that a poll raises after a fatal one. SystemError where a callback runs while the exception is pending."""
_FRESH_S = 3600.0
"""How long a broker surely remembers a silent producer (its default is a day)."""


def _position(record: Record) -> bytes:
    """The position of a streamed record, as its header has it. Empty for any other."""
    headers = record[3]
    if not headers or headers[0][0] != POS or headers[0][1][24:] in _NOT_STREAMED:
        return b""
    return headers[0][1]


class _Group:
    """Records handed over together. ``left``: lanes whose last record is not reported yet."""

    __slots__ = ("left", "number")

    def __init__(self, number: int, left: int) -> None:
        self.number = number
        self.left = left


class KafkaStreamLog:
    """:class:`cdc.record.ports.StreamLog` on Kafka.

    A report per record is dear, so only the last one of each lane in a group is asked for, with the offset it
    must have: one that was refused, and everything behind it that was taken, shows as a wrong offset.

    A restart goes on behind the newest position that a partition holds, so no record may ever arrive behind
    one that was refused. Four things see to it: the producer is gapless. A record large enough to be refused
    is waited for. So is the first of each lane, because a broker that knows no sequence number of this
    producer would take a later batch for the first, and nothing is sent once a failure is known.

    ``waiting`` is called while :meth:`produce` waits for room or for the broker, several times a second. It
    may raise. ``memory_limit``: bytes of records that may be in flight. ``client`` makes the producer.
    ``oversized`` puts aside records that a topic does not take for their size.
    """

    def __init__(
        self,
        settings: LogSettings,
        *,
        memory_limit: int,
        waiting: Callable[[], None] = lambda: None,
        clock: Clock = SYSTEM_CLOCK,
        client: Callable[[dict[str, Any]], Producer] = Producer,
        oversized: Oversized | None = None,
        times: CommitTimes | None = None,
    ) -> None:
        self.times = times or CommitTimes()
        """Of the commits whose records come here."""
        self._oversized = oversized if oversized else None
        self._copies = HistoryCopies(settings.max_message_bytes, self.times)
        self._settings = settings
        self._waiting = waiting
        self._clock = clock
        self._large = settings.max_message_bytes - settings.max_message_bytes // 64 - 8192
        self._topics: list[str] = []
        self._partitions: list[int] = []
        self._expected: list[int] = []
        self._fresh_until: list[float] = []
        self._offsets: dict[str, dict[int, int]] = {}
        self._newest: dict[int, bytes] = {}
        self._groups: deque[_Group] = deque()
        self._number = 0
        self._acked = 0
        self._failure: CdcError | None = None
        self.disturbed = False
        """Whether an offset showed that another process writes, too."""
        self.record_count = 0
        """Records handed over so far."""
        self.byte_count = 0
        """Bytes of their values."""
        config = producer_config(settings) | {
            "enable.gapless.guarantee": True,
            "queue.buffering.max.kbytes": max(1024, memory_limit // 1024),
        }
        self._producer = client(config)

    def open(self, topic: str, next_offsets: Sequence[int]) -> int:
        base = len(self._topics)
        for partition, offset in enumerate(next_offsets):
            self._topics.append(topic)
            self._partitions.append(partition)
            self._expected.append(offset)
            self._fresh_until.append(0.0)
        self._offsets[topic] = dict(enumerate(next_offsets))
        return base

    def produce(self, records: Sequence[Record]) -> int:
        self._raise_failure()
        if self._copies:
            records = self._copies.of(records)
        sizes = list(map(len, filter(None, map(_value_of, records))))
        self.byte_count += sum(sizes)
        self.record_count += len(records)
        if sizes and self._oversized is not None and max(sizes) > self._large:
            records = self._without_oversized(records, self._oversized)
        now = self._clock.monotonic()
        stale = {lane for lane in set(map(_lane_of, records)) if self._fresh_until[lane] < now}
        if stale:
            records = self._introduce(records, stale)
        if sizes and max(sizes) > self._large:
            records = self._carry_large(records)
        if records:
            self._hand_over(records)
        return self._number

    def _without_oversized(self, records: Sequence[Record], oversized: Oversized) -> Sequence[Record]:
        """Put aside what its topic does not take. Nothing behind it is acknowledged before its letter is."""
        kept: list[Record] = []
        for record in records:
            lane, key, value, headers = record
            topic = self._topics[lane]
            if value is not None and oversized.too_large(topic, key, value):
                oversized.put_aside(topic, self._partitions[lane], [(key, value, headers)])
            else:
                kept.append(record)
        return kept

    @property
    def newest(self) -> int:
        return self._number

    def acked(self, timeout_s: float = 0) -> int:
        self._poll(timeout_s)
        groups = self._groups
        while groups and not groups[0].left:
            self._acked = groups.popleft().number
        return self._acked

    def offsets(self) -> dict[str, dict[int, int]]:
        return self._offsets

    def ahead(self, lsn: int) -> dict[str, dict[int, str]]:
        floor = b"%016x" % lsn
        self._newest = {lane: pos for lane, pos in self._newest.items() if pos[8:24] >= floor}
        found: dict[str, dict[int, str]] = {}
        for lane, pos in self._newest.items():
            found.setdefault(self._topics[lane], {})[self._partitions[lane]] = pos.decode()
        return found

    def intruded(self, ends: Offsets) -> str | None:
        """The first partition that holds more than was ever handed over here: somebody else wrote to it."""
        for lane, topic in enumerate(self._topics):
            partition = self._partitions[lane]
            if ends.get(topic, {}).get(partition, 0) > self._expected[lane]:
                return f"{topic} partition {partition}"
        return None

    def hold(self, lane: int, position: Position) -> None:
        """The lane holds streamed records up to this position from before."""
        self._newest[lane] = position.text().encode()
        self._copies.hold(lane, self._newest[lane])

    def keep_history(self, lane: int, history: int, count: int) -> None:
        """See :class:`connectors.session.captured_topics.OpensTopics`."""
        self._copies.keep(lane, history, count)

    def queued(self) -> int:
        """Records (and reports) that are not dealt with yet."""
        return len(self._producer)

    def settle(self) -> None:
        """Return when all is acked. However long it takes, unless ``waiting`` raises."""
        while self.acked(_FULL_WAIT_S) < self._number:
            self._waiting()

    def close(self, timeout_s: float = 0) -> None:
        """Let what is on its way arrive for ``timeout_s``, then drop the rest: what a broken session left must not
        arrive behind its successor's."""
        until = self._clock.monotonic() + timeout_s
        with suppress(CdcError):
            while self.acked() < self._number and self._clock.monotonic() < until:
                self._poll(_FULL_WAIT_S)
        self._producer.purge()
        with suppress(*_FATAL, CdcError):
            self._producer.poll(0)

    def _introduce(self, records: Sequence[Record], stale: set[int]) -> list[Record]:
        """Send the first record of each lane by itself. The rest is what comes back."""
        firsts: dict[int, Record] = {}
        rest: list[Record] = []
        for record in records:
            if record[0] in stale and record[0] not in firsts:
                firsts[record[0]] = record
            else:
                rest.append(record)
        behind = self._carry_large(list(firsts.values()))
        if behind:
            self._hand_over(behind)
        self.settle()
        crash_point("lane_introduced")
        until = self._clock.monotonic() + _FRESH_S
        for lane in stale:
            self._fresh_until[lane] = until
        return rest

    def _carry_large(self, records: Sequence[Record]) -> Sequence[Record]:
        """Hand over up to the last large record, waiting after each. The rest is what comes back. One that was never
        built is refused as the broker would refuse it."""
        start = 0
        for index, (lane, key, value, _) in enumerate(records):
            if isinstance(value, Withheld):
                if index > start:
                    self._hand_over(records[start:index])
                self.settle()
                self._fail(too_large(self._topics[lane], key, self._settings))
                self._raise_failure()
            if value is not None and len(value) > self._large:
                self._hand_over(records[start : index + 1], partial(self._large_delivered, lane, key))
                self.settle()
                crash_point("large_carried")
                start = index + 1
        return records[start:]

    def _hand_over(self, records: Sequence[Record], last: Callable[..., None] | None = None) -> None:
        counts = Counter(map(_lane_of, records))
        group = _Group(self._number + 1, len(counts))
        self._number = group.number
        self._groups.append(group)
        start = 0
        for index, lane in self._last_of(records, counts):
            if index > start:
                self._send(records[start:index])
            expected = self._expected[lane] + counts[lane]
            self._expected[lane] = expected
            report = partial(self._delivered, group, lane, expected, _position(records[index]))
            if last is not None and index == len(records) - 1:
                report = partial(last, report)
            self._send(records[index : index + 1], report)
            crash_point("group_half_sent")
            start = index + 1

    @staticmethod
    def _last_of(records: Sequence[Record], lanes: Iterable[int]) -> list[tuple[int, int]]:
        """(index, lane) of the last record of each lane, in index order."""
        missing = set(lanes)
        found = []
        for index in range(len(records) - 1, -1, -1):
            lane = records[index][0]
            if lane in missing:
                found.append((index, lane))
                missing.remove(lane)
                if not missing:
                    break
        found.reverse()
        return found

    def _send(self, records: Sequence[Record], report: Callable[..., None] | None = None) -> None:
        # The hot loop: everything local, arguments by position, the exception path for a full queue only.
        produce, topics, partitions = self._producer.produce, self._topics, self._partitions
        for lane, key, value, headers in records:
            while True:
                try:
                    produce(topics[lane], value, key, partitions[lane], report, None, 0, headers)  # type: ignore[arg-type]
                    break
                except BufferError:
                    self._make_room()
                except KafkaException as error:
                    self._refused(error.args[0], lane, key)

    def _refused(self, error: KafkaError, lane: int, key: bytes) -> None:
        if error.code() == KafkaError._FATAL:
            self._stopped(KafkaException(error))
        else:
            self._fail(refusal(error, self._topics[lane], key, self._settings))
        self._raise_failure()

    def _make_room(self) -> None:
        self._poll(_FULL_WAIT_S)
        self._waiting()

    def _poll(self, timeout_s: float) -> None:
        try:
            self._producer.poll(timeout_s)
        except _FATAL as error:
            self._stopped(error)
        self._raise_failure()

    def _stopped(self, error: Exception) -> None:
        """The producer met a fatal error: every record in flight is reported as failed now, one may say why."""
        for _ in range(_FATAL_POLLS):
            with suppress(*_FATAL):
                if not self._producer.poll(_FULL_WAIT_S):
                    break
        if self._failure is None:
            self._fail(
                LogError(
                    f"the producer stopped: Kafka at {self._settings.bootstrap_servers} says {quoted(error)}",
                    hint="nothing was acknowledged; capture starts again from the last record that surely arrived",
                )
            )

    def _delivered(
        self, group: _Group, lane: int, expected: int, pos: bytes, error: KafkaError | None, message: Message
    ) -> None:
        topic = self._topics[lane]
        if error is not None:
            self._fail(refusal(error, topic, None, self._settings))
            return
        offset = message.offset()
        if offset != expected - 1:
            self.disturbed = True
            self._fail(
                LogError(
                    f"{topic} partition {self._partitions[lane]} has offset {offset} where {expected - 1} was due: "
                    "a record was refused, or somebody else writes to the topic",
                    hint="nothing was acknowledged; capture starts again from the last record that surely arrived",
                )
            )
            return
        self._offsets[topic][self._partitions[lane]] = expected
        if pos > self._newest.get(lane, b""):
            # One that is written again has its old position.
            self._newest[lane] = pos
        group.left -= 1

    def _large_delivered(
        self, lane: int, key: bytes, report: Callable[..., None], error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            self._fail(refusal(error, self._topics[lane], key, self._settings))
        else:
            report(error, message)

    def _fail(self, failure: CdcError) -> None:
        """The first failure is the one that counts. The errors behind it are its echo. A named one beats an unnamed."""
        if self._failure is None or (isinstance(failure, PoisonError) and not isinstance(self._failure, PoisonError)):
            self._failure = failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
