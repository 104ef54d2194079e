"""What must hold of a pipeline after any fault, and how often that was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import psycopg
from confluent_kafka import Message

from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.position import Position
from cdc.record.progress import Progress
from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName, partition_of, progress_topic
from cdc.settings.model import Settings
from cdc.verification.passes import verify
from cdc.verification.ports import Cut, ScansStore
from cdc.verification.result import Kind
from cdc.wiring import open_schemas, open_state
from cdc.wiring.sinks import read_known
from connectors.kafka.compacted_topic import read_range
from connectors.operate.verify import open_cut, verified_tables
from sinks.contract.batch import Event, events_of
from sinks.contract.memory_store import MemoryStore
from sinks.contract.stores import open_store
from sinks.contract.table_places import SchemaBook
from tests.faults.follower import headers_of
from tests.faults.lab import Found, Lab
from tests.faults.workload import ABORTED
from tests.progress_look import ProgressLook
from tests.waiting import wait_until

RETAINED_BYTES = 16 * 1024**2


@dataclass(slots=True)
class Log:
    """Every record of a pipeline's tables, partition by partition, in order; and what its progress records say."""

    topics: dict[str, str]
    counts: dict[str, int]
    lanes: dict[tuple[str, int], list[Event]] = field(default_factory=dict)
    progress: list[Progress] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(map(len, self.lanes.values()))


@dataclass(slots=True)
class Compared:
    """What a comparison with the source counted. ``words``: of the first store and table that differ."""

    rows: int = 0
    lost: int = 0
    wrong: int = 0
    words: str = ""

    def require_equal(self) -> None:
        """Found when a row was lost, or is wrong."""
        if self.lost or self.wrong:
            raise Found(self.words)


class Quiet:
    """A watch that nobody looks at."""

    def reading(self, side: str, table: TableName, rows: int) -> None: ...
    def looking(self, look: int, keys: int) -> None: ...


def read_log(settings: Settings) -> Log:
    """The topics as they are now."""
    state = TopicsState.find(open_state(settings).read())
    assert state is not None
    counts = {topic: state.topics[topic]["partitions"] for topic in state.tables.values()}
    log = Log(dict(state.tables), counts)
    for topic, count in counts.items():
        for partition in range(count):
            log.lanes[topic, partition] = [event_of(message) for message in read_range(settings.log, topic, partition)]
    for message in read_range(settings.log, progress_topic(settings.name), 0):
        value = message.value()
        if isinstance(value, bytes):
            log.progress.append(Progress.from_json(value))
    return log


def event_of(message: Message) -> Event:
    """A Kafka message as a sink gets it."""
    headers: dict[str, Any] = dict(headers_of(message))
    key: Any = message.key()
    value: Any = message.value()
    return Event(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=key,
        value=value,
        pos=headers["pos"].decode() if "pos" in headers else None,
        op=headers["op"].decode() if "op" in headers else None,
        ver=int(headers["ver"]) if "ver" in headers else None,
    )


def duplicates(log: Log) -> int:
    """Streamed records that stand in their partition twice, or behind a newer one; Found for the second (H75)."""
    found = 0
    for lane, events in log.lanes.items():
        last = ""
        for event in events:
            assert event.pos is not None and event.key is not None, f"{lane}: a record without position"
            if event.op != "t" and partition_of(event.key, log.counts[lane[0]]) != lane[1]:
                raise Found(f"{lane} at {event.offset}: the key {event.key!r} does not belong there")
            if not Position.parse(event.pos).streamed:
                continue
            if event.pos == last:
                found += 1
            elif event.pos < last:
                raise Found(f"{lane} at {event.offset}: {event.pos} stands behind {last}")
            last = event.pos
    return found


def require_progress_true(log: Log) -> None:
    """Found when a progress record claims an LSN although a change below it lies at or beyond its offsets."""
    for record in log.progress:
        for (topic, partition), events in log.lanes.items():
            upto = record.offsets.get(topic, {}).get(partition, 0)
            for event in reversed(events):
                if event.offset < upto:
                    break
                position = Position.parse(event.pos or "")
                if position.streamed and position.epoch == record.epoch and position.commit_lsn < record.lsn:
                    raise Found(f"progress says {record.lsn:x}, and {topic} {partition} has {event.pos} behind {upto}")


def require_no_aborted(log: Log) -> None:
    """Found when a change that was rolled back is in the log."""
    word = ABORTED.encode()
    for lane, events in log.lanes.items():
        for event in events:
            if event.value is not None and word in event.value:
                raise Found(f"{lane} at {event.offset}: a change that was rolled back")


def replayed(log: Log, settings: Settings) -> MemoryStore:
    """A store built from the topics alone."""
    shapes = {(shape.topic, shape.version): shape for shape in open_schemas(settings).versions()}
    memory = MemoryStore()
    sink = memory.open().sink
    for shape in shapes.values():
        sink.prepare(shape)
    for events in log.lanes.values():
        applied = sink.apply(events_of(events), SchemaBook(shapes.values()))
        if applied.refused:
            raise Found(f"a record cannot be read: {applied.refused[0].topic} {applied.refused[0].reason}")
    return memory


def compare(settings: Settings, stores: dict[str, ScansStore]) -> Compared:
    """Every row of the source against these stores.

    A row that a store lacks is lost; one that it has besides, has otherwise, or that no look could decide, is wrong.
    """
    known = read_known(settings)
    with closing(open_cut(settings)) as source:
        tables = list(verified_tables(settings, known.topics, source).values())
        report = verify(
            source,
            stores,
            dict.fromkeys(stores, tables),
            epoch=known.epoch,
            reached=lambda cut: _reached(settings, cut, stores),
            clock=SYSTEM_CLOCK,
            watch=Quiet(),
        )
    found = Compared()
    for verdict in report.verdicts:
        lost = verdict.counts[Kind.MISSING]
        wrong = sum(verdict.counts.values()) - lost + verdict.undecided
        found.rows += verdict.source_rows
        found.lost += lost
        found.wrong += wrong
        if (lost or wrong) and not found.words:
            kinds = {kind.value: count for kind, count in verdict.counts.items() if count}
            found.words = f"{verdict.sink} {verdict.table}: {kinds} {verdict.keys} undecided {verdict.undecided}"
    return found


def _reached(settings: Settings, cut: Cut, stores: dict[str, ScansStore]) -> None:
    """Nothing to wait for: the stores were filled when all was quiet."""


def settled(settings: Settings, dsn: str, deadline_s: float, describe: object = "") -> None:
    """Return when the log says that it holds everything committed before the call."""
    with psycopg.connect(dsn, autocommit=True) as session:
        row = session.execute("select pg_logical_emit_message(true, 'fence', '') - '0/0'::pg_lsn").fetchone()
    assert row is not None
    fence = int(row[0])
    progress = ProgressLook(settings)

    def reached() -> bool:
        newest = progress.newest()
        return newest is not None and newest.lsn > fence

    wait_until(reached, deadline_s, describe if callable(describe) else lambda: describe)


def require_wal_released(dsn: str, slot: str, deadline_s: float = 20) -> None:
    """The slot lets go of its WAL when all is quiet (H3)."""
    kept = "select pg_current_wal_insert_lsn() - confirmed_flush_lsn from pg_replication_slots where slot_name = %s"

    def released() -> bool:
        with psycopg.connect(dsn, autocommit=True) as session:
            row = session.execute(kept, [slot]).fetchone()
            return row is not None and int(row[0]) < RETAINED_BYTES

    wait_until(released, deadline_s, "the slot still keeps WAL")


def require_watermark_true(settings: Settings, name: str, log: Log) -> bool:
    """Found when a store lacks what its watermark says it shows; False when it has no watermark yet."""
    shapes = {(shape.topic, shape.version): shape for shape in open_schemas(settings).versions()}
    with closing(open_store(name, settings)) as store:
        mark = store.watermarks.read()
        if mark is None or mark.lsn == 0:
            return False
        memory = MemoryStore()
        sink = memory.open().sink
        for lane in log.lanes.values():
            below = [event for event in lane if Position.parse(event.pos or "")[:2] < (mark.epoch, mark.lsn)]
            sink.apply(events_of(below), SchemaBook(shapes.values()))
        floors = _floors(log)
        for shape in {shape.table: shape for shape in shapes.values()}.values():
            held = {row["key"]: row["pos"] for batch in store.reader.scan(shape) for row in batch.to_pylist()}
            for key, row in memory.table(shape.table).items():
                if held.get(key, floors.get(shape.topic, "")) < row.pos:
                    raise Found(f"{name} says it shows {mark.lsn:x} and lacks {shape.table} {key} of {row.pos}")
    return True


def _floors(log: Log) -> dict[str, str]:
    """topic -> the newest floor: rows below it may be gone already."""
    found: dict[str, str] = {}
    for (topic, _), events in log.lanes.items():
        for event in events:
            if event.op == "t" and event.pos is not None:
                found[topic] = max(found.get(topic, ""), event.pos)
    return found


def judge_stores(lab: Lab, settings: Settings, names: Sequence[str], dsn: str, deadline_s: float = 90) -> None:
    """Wait until these stores show everything committed before the call, then compare them; counts what was found."""
    require_shown(settings, names, dsn, deadline_s)
    with ExitStack() as stack:
        stores = {name: stack.enter_context(closing(open_store(name, settings))) for name in names}
        compared = compare(settings, {name: store.reader for name, store in stores.items()})
    lab.count(rows_compared=compared.rows, lost=compared.lost, wrong=compared.wrong)
    compared.require_equal()


def require_shown(settings: Settings, names: Sequence[str], dsn: str, deadline_s: float) -> None:
    """Return when these stores say that they show everything committed before the call."""
    with psycopg.connect(dsn, autocommit=True) as session:
        row = session.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    fence = int(row[0])
    with ExitStack() as stack:
        marks = [stack.enter_context(closing(open_store(name, settings))).watermarks for name in names]

        def shown() -> bool:
            found = [mark.read() for mark in marks]
            return all(mark is not None and mark.lsn >= fence for mark in found)

        wait_until(shown, deadline_s, lambda: {name: mark.read() for name, mark in zip(names, marks, strict=True)})
