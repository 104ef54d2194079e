"""A store that follows a log in memory: any batch, any border, killed while it writes, and cleaned behind its back.

Everything between a batch of Kafka's records and the stored row is the real thing: parsing, sorting, the newest of
each key, floors, the store's place and its watermark. The law is looked at after every batch: what the watermark says
the store shows is there.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import orjson
import pyarrow as pa
from confluent_kafka import murmur2

from cdc.process.clock import ManualClock
from cdc.record.position import Position
from cdc.record.progress import EpochsState, Offsets, Progress, Watermark
from cdc.record.schema import TableSchema
from cdc.wire.dead_letter import DeadLetter
from cdc.wire.format import UNAVAILABLE
from sinks.contract.memory_store import MemoryStore
from sinks.contract.port import Applied, OpenSink, Schemas, Sink
from spark.figures.sink_metrics import Metrics
from spark.records.ports import SinkTopics
from spark.stores.store_thread import Store, Surroundings
from spark.stores.watermark import Claim, LogEnds, LogView
from tests.faults.broker import Place
from tests.faults.lab import Found
from tests.faults.pipeline import PROGRESS, Killed, World
from tests.faults.source import SCHEMAS, TOPICS, Row, document
from tests.unit.spark.doubles import MemoryDead
from tests.unit.spark.records import KafkaRecord, records_of

_LAG_S = 60.0
_MOST_BATCHES = 200
_METRICS = Metrics()


@dataclass
class _Facts:
    """:class:`spark.records.ports.LogQuestions`."""

    follower: Follower

    def topics(self, sink: str) -> SinkTopics:
        partitions = {topic: 2 for topic in set(TOPICS.values())}
        return SinkTopics(
            ids={topic: f"id of {topic}" for topic in partitions}, partitions=partitions, compaction_lag_s=_LAG_S
        )

    def ends(self, topics: SinkTopics) -> Offsets:
        return self.follower.ends()

    def epochs(self) -> EpochsState:
        return EpochsState()

    def rekeyed(self) -> frozenset[str]:
        return frozenset()

    def looks(self, topics: Collection[str]) -> None:
        return None

    def newest(self) -> tuple[int, int] | None:
        return None

    def schemas(self) -> list[TableSchema]:
        return list(SCHEMAS.values())


class _Mortal:
    """A sink whose process may be killed before, in the middle of, and after a batch."""

    def __init__(self, sink: Sink, rng: random.Random) -> None:
        self._sink = sink
        self._rng = rng
        self.prepare = sink.prepare
        self.show = sink.show
        self.close = sink.close

    def apply(self, events: pa.Table, schemas: Schemas) -> Applied:
        if self._rng.random() < 0.15:
            self._sink.apply(events.slice(0, self._rng.randint(0, events.num_rows)), schemas)
            raise Killed
        return self._sink.apply(events, schemas)


@dataclass
class Follower:
    """One store behind one log. ``batches`` and ``kills`` are counted."""

    world: World
    rng: random.Random
    clock: ManualClock = field(default_factory=ManualClock)
    batches: int = 0
    kills: int = 0

    def __post_init__(self) -> None:
        self.memory = MemoryStore(clock=self.clock)
        self.dead = MemoryDead()
        self._arrived: list[tuple[float, Place]] = []
        self._since: dict[Place, list[float]] = {place: [] for place in self.world.broker.lanes}

    def run(self) -> None:
        """Follow to the end, however often it is killed."""
        while True:
            try:
                self._live()
                break
            except Killed:
                self.kills += 1
        self._check_end()

    def ends(self) -> dict[str, dict[int, int]]:
        """Where the log ends by now."""
        found: dict[str, dict[int, int]] = {}
        for (topic, partition), times in self._since.items():
            if topic != PROGRESS:
                found.setdefault(topic, {})[partition] = len(times)
        return found

    def _live(self) -> None:
        view = LogView()
        told = 0
        around = Surroundings(
            facts=_Facts(self), dead=self.dead, view=view, metrics=_METRICS, clock=self.clock, timeout_s=0
        )
        store = Store("s", self._open, around)
        try:
            store.run(store.begin)
            while True:
                self.batches += 1
                if self.batches > _MOST_BATCHES:
                    raise Found("the store does not come to an end")
                told = self._wait(view, told)
                if not self._batch(store) and len(self._arrived) == len(self.world.broker.arrived):
                    break
        finally:
            store.end()

    def _open(self) -> OpenSink:
        opened = self.memory.open()
        return replace(opened, sink=_Mortal(opened.sink, self.rng))

    def _wait(self, view: LogView, told: int) -> int:
        """Time passes, records arrive, and somebody looks at the log's ends and its progress."""
        rng, arrived = self.rng, self.world.broker.arrived
        for _ in range(rng.randint(0, 12)):
            self.clock.advance(rng.choice((0.1, 0.1, 5.0, 100.0)))
            for place in arrived[len(self._arrived) : len(self._arrived) + rng.randint(0, 4)]:
                self._arrived.append((self.clock.monotonic(), place))
                self._since[place].append(self.clock.monotonic())
        progress = self.world.broker.lanes[PROGRESS, 0][told : len(self._since[PROGRESS, 0])]
        view.note_progress([Progress.from_json(record.value or b"") for record in progress])
        view.note_ends(LogEnds(self.clock.monotonic(), self.ends()))
        return told + len(progress)

    def _batch(self, store: Store) -> bool:
        """Read some of each partition, apply it, look at what the store then says; whether there was anything."""
        rng, records, offsets = self.rng, [], {topic: dict(parts) for topic, parts in self.ends().items()}
        places = [place for place in self._since if place[0] != PROGRESS]
        rng.shuffle(places)
        moved = False
        for place in places:
            low = max(0, store.offsets.get(place[0], {}).get(place[1], 0))
            high = rng.choice((len(self._since[place]), rng.randint(low, len(self._since[place]))))
            offsets[place[0]][place[1]] = high
            moved = moved or high > low or high < len(self._since[place])
            records += [self._record(place, offset) for offset in range(low, high) if not self._cleaned(place, offset)]
        at = Claim(offsets, self.clock.monotonic())
        self.clock.advance(rng.choice((0.1, 0.1, 100.0)))
        store.run(lambda: store.settle(records_of(*records), at))
        if rng.random() < 0.1:
            raise Killed
        self._check(self.memory.open().watermarks.read())
        return moved

    def _record(self, place: Place, offset: int) -> KafkaRecord:
        held = self.world.broker.lanes[place][offset]
        return KafkaRecord(held.key, held.value, list(held.headers), offset, *place)

    def _cleaned(self, place: Place, offset: int) -> bool:
        """Whether the cleaner has removed a record: a newer one of its key, old enough itself, stands in its stead."""
        lane = self.world.broker.lanes[place]
        dirty = bisect_right(self._since[place], self.clock.monotonic() - _LAG_S)
        return any(other.key == lane[offset].key for other in lane[offset + 1 : dirty])

    def _check(self, mark: Watermark | None) -> None:
        """Everything below the watermark shows, and nothing of it in an older version."""
        world = self.world
        if mark is None or mark.lsn < world.snapshot_lsn or not mark.lsn:
            return
        state = world.source.states[world.source.committed_below(mark.lsn)]
        want = {(TOPICS[oid], str(number)): row for (oid, number), row in state.items()}
        found = self._rows()
        for place in want.keys() | found.keys():
            pos, row = found.get(place, ("", None))
            if pos and Position.parse(pos).commit_lsn >= mark.lsn:
                continue
            excused = self._emptied(place[0], mark.lsn) or self._unknown(place, mark.lsn)
            if not _agree(want.get(place), row) and not excused:
                raise Found(f"the watermark says {mark.lsn}, and {place} is {row!r} where {want.get(place)!r} is due")

    def _emptied(self, topic: str, lsn: int) -> bool:
        """Whether a later truncation may have reached the store before what it empties."""
        for (name, _), lane in self.world.broker.lanes.items():
            if name == topic and any(r.op == "t" and Position.parse(r.pos).commit_lsn >= lsn for r in lane):
                return True
        return False

    def _unknown(self, place: tuple[str, str], lsn: int) -> bool:
        """Whether the newest record of a row below ``lsn`` lacks a value, because the row was gone by then."""
        key = b'{"id":%b}' % place[1].encode()
        lane = self.world.broker.lanes[place[0], murmur2(key, 2)]
        own = [r for r in lane if r.key == key and Position.parse(r.pos).commit_lsn < lsn]
        return bool(own) and UNAVAILABLE.encode() in (own[-1].value or b"")

    def _rows(self) -> dict[tuple[str, str], tuple[str, dict[str, object] | None]]:
        return {
            (schema.topic, key): (row.pos, None if row.row is None else orjson.loads(row.row))
            for schema in {schema.table: schema for schema in SCHEMAS.values()}.values()
            for key, row in self.memory.table(schema.table).items()
        }

    def _check_end(self) -> None:
        letters: list[DeadLetter] = self.dead.letters
        if letters:
            raise Found(
                f"{len(letters)} records were refused: {letters[0].topic} {letters[0].key!r} {letters[0].reason}"
            )
        want = {(TOPICS[oid], str(number)): row for (oid, number), row in self.world.source.states[-1].items()}
        found = {place: row for place, (_, row) in self._rows().items() if row is not None}
        wrong = [place for place in want.keys() | found.keys() if not _agree(want.get(place), found.get(place))]
        if wrong:
            raise Found(f"{wrong[0]} is {found.get(wrong[0])!r} in the store, {want.get(wrong[0])!r} in the source")
        mark = self.memory.open().watermarks.read()
        last = Progress.from_json(self.world.broker.lanes[PROGRESS, 0][-1].value or b"").lsn
        if mark is None or mark.lsn != last:
            raise Found(f"the store ends at {mark and mark.lsn}, the log at {last}")


def _agree(row: Row | None, stored: dict[str, object] | None) -> bool:
    if row is None or stored is None:
        return row is None and stored is None
    return document(row) == {name: value for name, value in stored.items() if name != "extra" or value is not None}
