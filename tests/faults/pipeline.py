"""Capture on a source and a broker in memory: killed, cut off and restarted wherever it calls one of them.

The loop, its accounts, the assembler and the log are the real ones; the source's server, the producer, the clock
and the opening's questions to the servers stand here. The laws are looked at where they could break: at every
acknowledgement, at every progress record that arrives, and at the end.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

import orjson
from confluent_kafka import Producer, murmur2

from cdc.capture.capture_loop import CaptureSession, CaptureStop, StartingPoint, keep_capturing
from cdc.figures.capture_metrics import CaptureFigures
from cdc.process.clock import ManualClock
from cdc.process.errors import LogError, SourceError
from cdc.record.ports import Record, StreamBatch
from cdc.record.position import Position
from cdc.record.progress import PROGRESS_KEY, Progress
from cdc.record.schema import TableSchema
from cdc.settings.mask_rules import NO_MASKS
from cdc.settings.model import LogSettings
from connectors.kafka.stream_log import KafkaStreamLog
from connectors.kafka.topic_ends import Tail, held_positions
from connectors.postgres.assembly.assembler import Assembler, AssemblerPorts, Limits, Pipeline, Start
from connectors.postgres.assembly.pending_records import GONE, LATER, Reselect, Selected, Undecided, WantedRow
from connectors.postgres.encoding.encoder import TableEncoder, compile_table
from connectors.postgres.protocol.messages import Relation
from connectors.session.late_records import require_nothing_lost
from tests.faults.broker import Broker, Held, MemoryProducer, Place, empty
from tests.faults.lab import Found
from tests.faults.source import SCHEMAS, TOPICS, Row, Source, announced, cut, document
from tests.unit.connectors.postgres import written as w

PARTITIONS = 2
PROGRESS = "shop.progress"
EPOCH = 1
_SETTINGS = LogSettings(bootstrap_servers="none")
_PIPELINE = Pipeline(name="shop", database="app", epoch=EPOCH)
_LIMITS = Limits()
_MOST_CALLS = 20_000
_LANES = {topic: (number * PARTITIONS, PARTITIONS) for number, topic in enumerate(sorted(set(TOPICS.values())))}
_PLACES: Sequence[Place] = [(topic, p) for topic in _LANES for p in range(PARTITIONS)]


Expected = dict[Place, list[tuple[Position, str, bytes, str, bool]]]
"""partition -> position, its text, key, op, whether it is a tombstone"""


class Killed(BaseException):
    """The process is gone."""


@cache
def encoder_of(schema: TableSchema) -> TableEncoder:
    return compile_table(schema, name=_PIPELINE.name, database=_PIPELINE.database, masks=NO_MASKS)


class _Shapes:
    def schema(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema | Undecided | None:
        return SCHEMAS[relation.relation_oid, len(relation.columns)]


class World:
    """One schedule. ``broker`` and ``source`` are what it leaves."""

    seen_lsn = 0

    def __init__(self, rng: random.Random, source: Source, expected: Expected) -> None:
        self.rng, self.source = rng, source
        self.clock = ManualClock()
        self.broker: Broker = empty({**dict.fromkeys(_LANES, PARTITIONS), PROGRESS: 1})
        self.expected = expected
        self.lsns = {place: [p.commit_lsn for p, *_ in records] for place, records in self.expected.items()}
        self.snapshot_lsn = self.lives = self.sessions = 0
        self.visible = 0
        """Transactions that have committed so far."""
        self.confirmed = source.start_lsn
        self.acknowledged = [source.start_lsn]
        self._fuse, self._calls = -1, 0
        self._locked: dict[int, int] = {}
        self._producer: MemoryProducer | None = None

    def run(self) -> None:
        """Snapshot rows, then one life after the other; the last one ends in order."""
        self._write_snapshot()
        self.broker.on_arrival = self._check_arrival
        for last in [False] * self.rng.choice((0, 1, 1, 2)) + [True]:
            while not self._live(last):
                """It gave up at its start, and is started again."""
        self._check_end()

    def tick(self) -> None:
        """Called at every call of a port: here the process may be killed."""
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise Found("capture does not come to an end")
        if self._fuse >= 0:
            self._fuse -= 1
            if self._fuse < 0:
                raise Killed

    def head(self, oid: int, number: int) -> Row | None:
        """A row as anybody sees it now."""
        return self.source.states[self.visible].get((oid, number))

    def _live(self, last: bool) -> bool:
        """One process; False when it ended by an error."""
        rng = self.rng
        self.lives += 1
        self._fuse = -1 if last else rng.randint(0, 80)
        if rng.random() < 0.3:
            # A server that restarted knows an older acknowledgement only (H7).
            self.confirmed = rng.choice(self.acknowledged)
        stop = CaptureStop(self.clock, 1e6)
        try:
            keep_capturing(lambda: self._open(stop), figures=CaptureFigures(), stop=stop, clock=self.clock)
        except Killed:
            assert not last
        except (SourceError, LogError):
            return False
        finally:
            if self._producer is not None:
                self._producer.die()
        return True

    def _open(self, stop: CaptureStop) -> CaptureSession:
        """As connectors.session.opening does, on what is here."""
        self.tick()
        self.sessions += 1
        # Of the session before, whatever was to arrive has arrived: the real one looks twice at the ends.
        if self._producer is not None:
            self._producer.die()
        ends = self.broker.ends()
        held = [Progress.from_json(r.value or b"") for r in self.broker.lanes[PROGRESS, 0] if r.key == PROGRESS_KEY]
        fails = self.rng.randint(0, 40) if self.rng.random() < 0.1 else None
        producer = self._producer = MemoryProducer(self.broker, self.rng, self.tick, fails)
        log = KafkaStreamLog(_SETTINGS, memory_limit=1 << 26, clock=self.clock, client=lambda _: _as_client(producer))
        for topic in _LANES:
            log.open(topic, [ends[topic][p] for p in range(PARTITIONS)])
        progress_lane = log.open(PROGRESS, [ends[PROGRESS][0]])
        seen: dict[int, Position] = {}
        if held:
            position = held[-1].lsn
            require_nothing_lost(ends, held[-1])
            for (topic, p), newest in held_positions(held[-1], _LANES, ends, self._look).items():
                seen[_LANES[topic][0] + p] = newest
                log.hold(_LANES[topic][0] + p, newest)
        else:
            position = self.source.start_lsn
            offsets = {topic: parts for topic, parts in ends.items() if topic != PROGRESS}
            first = Progress(epoch=EPOCH, lsn=position, offsets=offsets)
            log.produce([(progress_lane, PROGRESS_KEY, first.to_json(), [])])
            log.settle()
        if self.confirmed > position:
            raise Found(f"the slot was told {self.confirmed}, and the log holds up to {position}")
        assembler = _assembler(self, log, position, seen)
        stream = _Stream(self, max(position, self.confirmed), stop, assembler)
        # The first status says where we stand.
        self.acknowledge(position)
        return CaptureSession(
            stream=stream, assembler=assembler, log=log,
            start=StartingPoint(epoch=EPOCH, position=position, topic=PROGRESS, lane=progress_lane),
            look=lambda: (None, None),
            close=lambda works: log.close(1.0 if works and self._fuse < 0 else 0),
        )  # fmt: skip

    def _look(self, tails: list[Tail]) -> Mapping[tuple[str, int], Position]:
        """The last streamed position of each tail."""
        found = {}
        for tail in tails:
            for record in self.broker.lanes[tail.topic, tail.partition][tail.low : tail.end]:
                position = Position.parse(record.pos)
                if position.streamed:
                    found[tail.topic, tail.partition] = position
        return found

    def rows(self, wanted: Sequence[WantedRow], xids: Collection[int], *, brief: bool = False) -> Sequence[Selected]:
        """:class:`connectors.postgres.assembly.pending_records.Reselect`."""
        self.tick()
        found: list[Selected] = []
        for one in wanted:
            if self._is_locked(one.schema.oid):
                found.append(LATER)
                continue
            row = self.head(one.schema.oid, int(one.key[0]))
            found.append(GONE if row is None else tuple(row[i] for i in one.columns))
        return found

    def _is_locked(self, oid: int) -> bool:
        """Now and then a table is, for some questions: it waits, and the others flow (H95)."""
        left = self._locked.get(oid) or (self.rng.randint(2, 12) if self.rng.random() < 0.1 else 1)
        self._locked[oid] = left - 1
        return left > 1

    # The laws

    def acknowledge(self, lsn: int) -> None:
        self.tick()
        progress = [Progress.from_json(r.value or b"").lsn for r in self.broker.lanes[PROGRESS, 0]]
        if lsn > max(progress, default=0):
            raise Found(f"{lsn} was acknowledged, and no progress record that the broker holds says so")
        self._require_held(lsn, self.broker.ends())
        self.acknowledged.append(lsn)
        self.confirmed = max(self.confirmed, lsn)

    def _check_arrival(self, place: Place, record: Held) -> None:
        if place[0] == PROGRESS:
            progress = Progress.from_json(record.value or b"")
            self._require_held(progress.lsn, progress.offsets)
            return
        number = len(self.broker.lanes[place]) - 1 - self._snapshot_rows[place]
        expected = self.expected[place]
        if number >= len(expected) or expected[number][1:] != (record.pos, record.key, record.op, record.value is None):
            raise Found(f"{place}: {record.op} of {record.key!r} at {record.pos} stands where it should not")

    def _require_held(self, lsn: int, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Every change below ``lsn`` lies below these offsets."""
        for place in _PLACES:
            wanted = bisect_left(self.lsns[place], lsn) + self._snapshot_rows[place]
            if min(offsets[place[0]][place[1]], len(self.broker.lanes[place])) < wanted:
                raise Found(f"{place} lacks changes below {lsn}, which was said to be held")

    def _check_end(self) -> None:
        for place in _PLACES:
            missing = len(self.expected[place]) + self._snapshot_rows[place] - len(self.broker.lanes[place])
            if missing:
                raise Found(f"{place} lacks {missing} records at the end")
        if self.source.transactions and self.confirmed < self.source.transactions[-1].end_lsn:
            raise Found("a capture that stopped in order left transactions unacknowledged")
        self._check_rows()

    def _check_rows(self) -> None:
        """The log's last word on each key is the source's row."""
        found: dict[tuple[str, bytes], bytes | None] = {}
        for place in _PLACES:
            newest: dict[bytes, bytes | None] = {}
            for record in self.broker.lanes[place]:
                if record.op == "t":
                    newest.clear()
                else:
                    newest[record.key] = record.value
            found.update({(place[0], key): value for key, value in newest.items()})
        rows = {at: orjson.loads(value)["after"] for at, value in found.items() if value is not None}
        want = {
            (TOPICS[oid], b'{"id":%d}' % number): document(row) for (oid, number), row in self.source.states[-1].items()
        }
        if {at: _known(row) for at, row in rows.items()} != want:
            raise Found(f"the log ends in {rows}, the source in {want}")

    def _write_snapshot(self) -> None:
        rows, last = cut(self.source, self.rng)
        self.snapshot_lsn = self.source.transactions[last - 1].end_lsn if last else self.source.start_lsn
        pos = Position(EPOCH, self.source.start_lsn, 0).text().encode()
        for oid, row in rows:
            encoder = encoder_of(SCHEMAS[oid, 3])
            key, value = encoder.key(row), b'{"before":null,"after":%b,"op":"r"}' % encoder.row(row[:3])
            place = (TOPICS[oid], murmur2(key, PARTITIONS))
            self.broker.append(place, Held(key, value, (("pos", pos), ("op", b"r"), ("ver", b"1"))))
        self._snapshot_rows = Counter({place: len(self.broker.lanes[place]) for place in _PLACES})


def _known(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name != "extra" or value is not None}


def _as_client(producer: MemoryProducer) -> Producer:
    found: object = producer
    return found  # type: ignore[return-value]


def _assembler(world: World, log: KafkaStreamLog, position: int, seen: Mapping[int, Position]) -> Assembler:
    start = Start(near_xid=700, after_lsn=position, seen=seen)
    return Assembler(_PIPELINE, _ports(world, log.produce), start, _LIMITS)


def _ports(reselect: Reselect, overflow: Callable[[list[Record]], object]) -> AssemblerPorts:
    return AssemblerPorts(
        schemas=_Shapes(), lanes=_LANES.__getitem__, partition=murmur2, reselect=reselect,
        overflow=overflow, encoder=encoder_of, masks=NO_MASKS)  # fmt: skip


class _Calm:
    """A head that has every transaction."""

    seen_lsn = 0

    def __init__(self, source: Source) -> None:
        self._source = source

    def rows(self, wanted: Sequence[WantedRow], xids: Collection[int], *, brief: bool = False) -> Sequence[Selected]:
        found: list[Selected] = []
        for one in wanted:
            row = self._source.states[-1].get((one.schema.oid, int(one.key[0])))
            found.append(GONE if row is None else tuple(row[i] for i in one.columns))
        return found


def expected_of(source: Source) -> Expected:
    """What every schedule has to end in: what an assembler writes that nothing happens to, partition by partition."""
    batch: list[Record] = []
    assembler = Assembler(_PIPELINE, _ports(_Calm(source), batch.extend), Start(near_xid=700), _LIMITS)
    batch += assembler.feed(_frames(source, 0), 1).records
    found: Expected = {place: [] for place in _PLACES}
    for lane, key, value, headers in batch:
        pos = headers[0][1].decode()
        found[_PLACES[lane]].append((Position.parse(pos), pos, key, headers[1][1].decode(), value is None))
    return found


def _frames(source: Source, start: int) -> list[bytes]:
    """XLogData of every transaction from ``start`` on, tables announced at their first change and when changed."""
    frames: list[bytes] = []
    known: dict[int, int] = {}
    for transaction in source.transactions:
        if transaction.commit_lsn >= start:
            for sent in transaction.sent:
                if sent.oid and known.get(sent.oid) != sent.columns:
                    known[sent.oid] = sent.columns
                    frames.append(w.frame(announced(sent.oid, sent.columns), sent.lsn))
                frames.append(w.frame(sent.message, sent.lsn))
    return frames


class _Stream:
    """:class:`cdc.record.ports.ChangeStream` of one session; commits of the source happen while it is read."""

    last_feedback_s = 0.0

    def __init__(self, world: World, start: int, stop: CaptureStop, assembler: Assembler) -> None:
        self.received = start
        self._world = world
        self._stop = stop
        self._assembler = assembler
        self._frames = _frames(world.source, start)
        self._ends = _borders(world.source, start, self._frames)
        self._at = 0
        self._idle = 0

    def read(self, timeout_s: float) -> StreamBatch:
        world, rng = self._world, self._world.rng
        world.tick()
        world.clock.advance(timeout_s or 0.001)
        total = len(world.source.transactions)
        if world.visible < total and rng.random() < 0.6:
            world.visible = min(total, world.visible + rng.randint(1, 3))
        chance = rng.random()
        if chance < 0.02:
            raise SourceError("the connection broke")
        if chance < 0.025 and world._fuse >= 0:
            self._stop.want()
        limit = self._limit()
        upto = min(limit, self._at + rng.randint(0, 9))
        frames, self._at = self._frames[self._at : upto], upto
        if upto == len(self._frames) and world.visible == total:
            self._idle += 1
            if self._idle > 1 and world._fuse < 0 and self._assembler.oldest_waiting is None:
                self._stop.want()
        return StreamBatch(frames, self._wal_end() if rng.random() < 0.3 else None)

    def acknowledge(self, lsn: int) -> None:
        self._world.acknowledge(lsn)

    def close(self) -> None:
        """Nothing is open."""

    def _limit(self) -> int:
        """The place behind the last frame of what has committed."""
        found = 0
        for end, number, _ in self._ends:
            if number <= self._world.visible:
                found = end
        return found

    def _wal_end(self) -> int:
        """Where the server's WAL ends as far as it was sent, and maybe where the next commit begins (H79)."""
        world = self._world
        sent = [(end_lsn, number) for end, number, end_lsn in self._ends if end <= self._at]
        ahead = [end_lsn for end, _, end_lsn in self._ends if end > self._at]
        inside = any(end > self._at for end, *_ in self._ends) and self._at not in (0, *(end for end, *_ in self._ends))
        if inside:
            return ahead[0]
        end_lsn, number = sent[-1] if sent else (self.received, world.visible if not ahead else 0)
        after = world.source.transactions[number:]
        if sent and after and world.rng.random() < 0.5:
            return after[0].commit_lsn
        return end_lsn


def _borders(source: Source, start: int, frames: list[bytes]) -> list[tuple[int, int, int]]:
    """Of each transaction sent from ``start`` on: the place behind its last frame, its number, its end LSN."""
    numbers = [n for n, transaction in enumerate(source.transactions, 1) if transaction.commit_lsn >= start]
    ends = [place + 1 for place, frame in enumerate(frames) if frame[25:26] == b"C"]
    return [(end, n, source.transactions[n - 1].end_lsn) for end, n in zip(ends, numbers, strict=True)]
