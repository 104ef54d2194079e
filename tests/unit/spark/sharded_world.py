"""Many shards of capture and many tasks of stores in memory, killed and started again in any order.

Each capture is the real loop with its accounts, on the doubles of stream and log. The claims of stores are the real
ones. The source, a session's start and a store's rows stand here. The oracle knows nothing of either side: it has the
source's transactions, and compares every record as it arrives and every watermark as it is written.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import orjson

from cdc.capture import Capture, CaptureSession, CaptureStop, StartingPoint
from cdc.clock import ManualClock
from cdc.metrics import CaptureFigures
from cdc.ports import Record, StreamBatch
from cdc.position import Position
from cdc.progress import Offsets, Progress, Watermark
from cdc.source_lineage import SourceLineage
from cdc.testing import MemoryBroker, MemoryStream, MemoryStreamLog
from cdc.topic import progress_topic
from cdc.wire.format import POS
from spark.ports import SinkTopics
from spark.watermark import Claim, LogEnds, LogView
from tests.unit.spark.sharded_source import (
    KEYS,
    PARTITIONS,
    TABLES,
    Found,
    IndexedBroker,
    Place,
    Truth,
    shard_name,
    shard_of,
    topic_of,
)

EPOCH = 1
LINEAGE = SourceLineage("7301", 1)
_BATCH = 3
"""Transactions of one read."""

Claims = Callable[[LogView, Watermark | None, Claim, SinkTopics], Watermark]


class Killed(BaseException):
    """The process is gone."""


class Done(NamedTuple):
    """The end of a transaction in one shard's stream."""

    end_lsn: int
    rows: int
    xid: int = 0
    committed_us: int = 1


class Made(NamedTuple):
    records: list[Record]
    commits: list[Done]


class LateLog(MemoryStreamLog):
    """Groups arrive some at a time. A kill may come at any call."""

    def __init__(self, broker: MemoryBroker, rng: random.Random, tick: Callable[[], None]) -> None:
        super().__init__(broker, auto_ack=False)
        self._rng, self._tick = rng, tick

    def produce(self, records: Sequence[Record]) -> int:
        self._tick()
        return super().produce(records)

    def acked(self, timeout_s: float = 0) -> int:
        self._tick()
        waiting = len(self._waiting)
        self.deliver(self._rng.randint(1, waiting) if waiting and timeout_s else self._rng.randint(0, waiting))
        return super().acked(timeout_s)

    def die(self) -> None:
        """Of what was on its way the first ones arrived all the same."""
        self.deliver(self._rng.randint(0, len(self._waiting)))


class ShardAssembler:
    """A frame is a transaction's part of one shard. Records that the log has from before are left out."""

    in_transaction, open_commit_us, oldest_waiting, newest_xid = False, None, None, 0
    waiting_lanes: frozenset[int] = frozenset()

    def __init__(self, lanes: dict[Place, int], seen: dict[int, Position]) -> None:
        self._lanes, self._seen = lanes, seen

    def resume(self) -> Sequence[Record]:
        return ()

    def feed(self, frames: Sequence[bytes], now_ns: int) -> Made:
        made = Made([], [])
        for frame in frames:
            commit_lsn, end_lsn, changes = orjson.loads(frame)
            for number, (topic, partition, key, version) in enumerate(changes, 1):
                lane, pos = self._lanes[topic, partition], Position(EPOCH, commit_lsn, number)
                if lane not in self._seen or pos > self._seen[lane]:
                    made.records.append((lane, key.encode(), b"%d" % version, [(POS, pos.text().encode())]))
            made.commits.append(Done(end_lsn, len(changes)))
        return made

    def counts(self) -> Counter[tuple[str, str]]:
        return Counter()

    lost = counts


@dataclass
class Shard:
    """One capture, life after life. ``tails``: whether a start looks at the ends of topics, as it has to."""

    number: int
    truth: Truth
    broker: MemoryBroker
    clock: ManualClock
    tails: bool = True
    confirmed: int = 1 << 20
    fuse: int = -1
    lives: int = 0
    kills: int = 0

    @property
    def progress(self) -> str:
        return progress_topic("shop", shard_name(self.number))

    def live(self, fuse: int) -> None:
        """A process from its start to its end: killed after ``fuse`` calls, or stopped in order where all is read."""
        self.lives, self.fuse = self.lives + 1, fuse
        log = LateLog(self.broker, self.truth.rng, self._tick)
        stop = CaptureStop(self.clock, 1e6)
        try:
            session = self._open(log, stop)
            Capture(session, figures=CaptureFigures(), stop=stop, clock=self.clock).run()
        except Killed:
            self.kills += 1
            log.die()
        finally:
            self.fuse = -1

    def _tick(self) -> None:
        if self.fuse >= 0:
            self.fuse -= 1
            if self.fuse < 0:
                raise Killed

    def _open(self, log: LateLog, stop: CaptureStop) -> CaptureSession:
        topics = [topic_of(self.number, table) for table in range(TABLES)]
        lanes: dict[Place, int] = {}
        for topic in topics:
            base = log.open(topic, [self.broker.end(topic, p) for p in range(PARTITIONS)])
            lanes |= {(topic, p): base + p for p in range(PARTITIONS)}
        lane = log.open(self.progress, [self.broker.end(self.progress, 0)])
        held = self.broker.of(self.progress)
        position = Progress.from_json(held[-1].value or b"").lsn if held else 1 << 20
        if self.confirmed > position:
            raise Found(f"the slot of {self.number} was told {self.confirmed}, and the log holds up to {position}")
        stream = MemoryStream(self._batches(position), at_end=stop.want, clock=self.clock)
        return CaptureSession(
            stream=_Told(stream, self),
            assembler=ShardAssembler(lanes, self._seen(lanes) if self.tails else {}),
            log=log,
            start=StartingPoint(epoch=EPOCH, position=position, topic=self.progress, lane=lane, lineage=LINEAGE),
            look=lambda: (None, None),
            close=lambda works: None,
        )

    def _seen(self, lanes: dict[Place, int]) -> dict[int, Position]:
        """The newest position of each partition."""
        newest: dict[int, Position] = {}
        for (topic, partition), lane in lanes.items():
            for record in self.broker.of(topic, partition)[-1:]:
                newest[lane] = Position.parse(record.headers[0][1].decode())
        return newest

    def _batches(self, position: int) -> list[StreamBatch]:
        """All that the slot has to send now. What touches no table of the shard shows by a keepalive alone."""
        frames, batches, own = [], [], shard_name(self.number)
        for one in self.truth.committed:
            changes = [change for change in one.changes if shard_of(change.topic) == own]
            if changes and one.commit_lsn >= position:
                frames.append(orjson.dumps((one.commit_lsn, one.end_lsn, [tuple(change) for change in changes])))
        for first in range(0, len(frames), _BATCH):
            batches.append(StreamBatch(frames[first : first + _BATCH], None))
        return [*batches, StreamBatch([], self.truth.lsn)]


class _Told:
    """The stream of a shard, which hears what is acknowledged. Implements :class:`cdc.ports.ChangeStream`."""

    def __init__(self, stream: MemoryStream, shard: Shard) -> None:
        self._stream, self._shard = stream, shard
        self.last_feedback_s = 0.0

    @property
    def received(self) -> int:
        return self._stream.received

    def read(self, timeout_s: float) -> StreamBatch:
        self._shard._tick()
        return self._stream.read(timeout_s)

    def acknowledge(self, lsn: int) -> None:
        shard = self._shard
        shard._tick()
        held = shard.broker.of(shard.progress)
        if not held or lsn > Progress.from_json(held[-1].value or b"").lsn:
            raise Found(f"{lsn} was acknowledged, and no progress record of its shard says so")
        shard.confirmed = max(shard.confirmed, lsn)

    def close(self) -> None:
        self._stream.close()


@dataclass
class Task:
    """A task of a store: it reads the partitions of one table's topic. ``offsets``: what it has applied."""

    topic: str
    offsets: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))


class Store:
    """A store with as many tasks as there are tables. Its rows keep the newest position of each key."""

    def __init__(self, world: World, claims: Claims) -> None:
        self._world, self._claims = world, claims
        topics = [topic_of(shard, table) for shard in range(world.count) for table in range(TABLES)]
        self.topics = SinkTopics(
            ids={topic: f"id-{topic}" for topic in topics},
            partitions=dict.fromkeys(topics, PARTITIONS),
            compaction_lag_s=5.0,
            shards={topic: shard_of(topic) for topic in topics},
        )
        self._of_shard: dict[str, list[str]] = defaultdict(list)
        for topic in topics:
            self._of_shard[shard_of(topic)].append(topic)
        self.tasks = [Task(topic) for topic in topics]
        self.rows: dict[tuple[str, str], tuple[bytes, int]] = {}
        self.shown: Watermark | None = None
        self.kills = self.commits = 0

    def work(self, task: Task, most: int) -> None:
        """Apply some records. Newest wins, so that what comes again does no harm."""
        for partition in range(PARTITIONS):
            lane = self._world.broker.lanes[task.topic, partition]
            for record in lane[task.offsets[partition] : task.offsets[partition] + most]:
                pos, row = record.headers[0][1], (task.topic, record.key.decode())
                if row not in self.rows or self.rows[row][0] <= pos:
                    self.rows[row] = (pos, int(record.value or b"0"))
                task.offsets[partition] += 1

    def kill(self, task: Task) -> None:
        """The task begins again behind what the store's watermark says."""
        self.kills += 1
        known: Offsets = self.shown.offsets if self.shown is not None else {}
        task.offsets = {p: known.get(task.topic, {}).get(p, 0) for p in range(PARTITIONS)}

    def commit(self) -> None:
        """Write the watermark, and hold it against the source."""
        at = Claim({task.topic: dict(task.offsets) for task in self.tasks}, self._world.clock.monotonic())
        self.shown = self._claims(self._world.view, self.shown, at, self.topics)
        self.commits += 1
        self._require_true(self.shown, list(self.topics.ids))
        parts = self.shown.by_shard()
        for shard in self.shown.shards:
            self._require_true(parts[shard], self._of_shard[shard])

    def _require_true(self, mark: Watermark, topics: Sequence[str]) -> None:
        truth = self._world.truth
        for topic in topics:
            for key in range(KEYS):
                wanted = truth.version_below(topic, str(key), mark.lsn)
                shown = self.rows.get((topic, str(key)), (b"", 0))[1]
                if shown < wanted:
                    raise Found(f"a store claims {mark.lsn:x}, and shows {topic} {key} of {shown} for {wanted}")


class World:
    """``count`` shards and ``stores`` stores, each with a task for every table."""

    def __init__(
        self, seed: int, count: int, stores: int, *, tails: bool = True, claims: Claims = LogView.claim
    ) -> None:
        self.rng = random.Random(seed)
        self.count = count
        self.clock = ManualClock()
        self.truth = Truth(self.rng, count)
        self.broker = IndexedBroker(self.truth)
        self.shards = [Shard(number, self.truth, self.broker, self.clock, tails) for number in range(count)]
        self.view = LogView()
        self.stores = [Store(self, claims) for _ in range(stores)]
        self._heard = [0] * count

    def run(self, steps: int, away: frozenset[int] = frozenset()) -> None:
        """So many steps. Shards in ``away`` do not live."""
        rng = self.rng
        there = [shard for shard in self.shards if shard.number not in away]
        for _ in range(steps):
            for _ in range(rng.randint(0, 6)):
                self.truth.commit()
            for shard in rng.sample(there, min(len(there), rng.randint(1, 8))):
                shard.live(rng.choice((-1, rng.randint(0, 14))))
            self.hear(rng.sample(range(self.count), rng.randint(0, self.count)))
            for store in rng.sample(self.stores, rng.randint(1, len(self.stores))):
                for task in rng.sample(store.tasks, rng.randint(1, len(store.tasks))):
                    store.work(task, rng.randint(1, 5))
                for task in rng.sample(store.tasks, rng.randint(0, 3)):
                    store.kill(task)
                store.commit()
            self.clock.advance(0.5)

    def settle(self, away: frozenset[int] = frozenset()) -> None:
        """All that are there come to their end in order, and all stores read what there is."""
        for shard in self.shards:
            if shard.number not in away:
                shard.live(-1)
        self.hear(range(self.count))
        for store in self.stores:
            for task in store.tasks:
                store.work(task, 1 << 30)
            store.commit()

    def hear(self, shards: Sequence[int]) -> None:
        """The progress topics of these shards are read on, then the topics' ends are seen."""
        for number in shards:
            lane = self.broker.lanes[self.shards[number].progress, 0]
            new = [Progress.from_json(record.value or b"") for record in lane[self._heard[number] :]]
            self._heard[number] = len(lane)
            self.view.note_progress([replace(one, shard=shard_name(number)) for one in new])
        topics = self.stores[0].topics.ids
        ends = {topic: {p: self.broker.end(topic, p) for p in range(PARTITIONS)} for topic in topics}
        self.view.note_ends(LogEnds(self.clock.monotonic(), ends))

    def require_whole(self) -> None:
        """Found unless the log and each store have all that committed."""
        for (topic, partition), changes in self.truth.of_place.items():
            if self.broker.end(topic, partition) != len(changes):
                raise Found(f"{topic} {partition} lacks records at the end")
        last = self.truth.committed[-1].end_lsn
        for store in self.stores:
            for (topic, key), lsns in self.truth.lsns.items():
                if store.rows[topic, key][1] != len(lsns):
                    raise Found(f"a store ends with an older row of {topic} {key}")
            if store.shown is None or store.shown.lsn < last:
                raise Found("a store that has all does not say so")
