"""Records that no capture of this pipeline can have written. The progress records around them show it.

A progress record says how far the log holds the source, and where. A record below its offsets and above its LSN is
impossible: somebody else wrote it, with a position of another source. A row of it would win over every change of its
key for as long as the source takes to come there, and a floor would empty the table.

A record that no progress record has reached yet is not known to be possible. For a row that is the risk of one key,
which ``cdc verify`` finds. A floor waits until it is known: some tenths of a second, or held with its table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from cdc.record.position import CHUNK_SEQ, Lsn, Position
from cdc.record.progress import Progress
from cdc.record.schema import TableSchema
from cdc.wire.format import OP, POS, SWEEP_KEY, VER
from cdc.wire.records import read_floor
from sinks.contract.batch import FLOOR_OP, Column, Mask, conform, pc
from sinks.contract.batch_plan import event_rows, refuse
from sinks.contract.port import Applied, CannotCarry, OpenSink, Refused, Schemas, Sink
from spark.records.source import ForeignRecord

log = logging.getLogger(__name__)

FOREIGN = "its position lies beyond what the log held of the source behind it: somebody else wrote it"
TIMEOUT_S = 3.0
"""How long a floor is waited for before its table is held. Progress records come once a second under load."""


class LogReach(NamedTuple):
    """The newest progress record, as far as records are judged by it."""

    progress: Progress

    @property
    def most(self) -> str:
        """The highest position that may lie below its offsets, but for what it says is ahead of it."""
        return Position(self.progress.epoch, self.progress.lsn, CHUNK_SEQ).text()

    def covers(self, topic: str, partition: int, offset: int) -> bool:
        """Whether it speaks of this place."""
        return offset < self.progress.offsets.get(topic, {}).get(partition, 0)

    def refutes(self, topic: str, partition: int, offset: int, pos: str) -> bool:
        """Whether no capture of the pipeline can have written a record at ``pos`` there."""
        most = max(self.most, self.progress.ahead.get(topic, {}).get(partition, ""))
        return pos > most and self.covers(topic, partition, offset)


def foreign_mask(events: pa.Table, reach: LogReach | None) -> Mask | None:
    """True for events that it refutes. None where there is none."""
    if reach is None:
        return None
    beyond = events.filter(pc.greater(events[POS], reach.most))
    if beyond.num_rows == 0:
        return None
    # At the log's end most are beyond, and none is covered: one look per partition is enough to know.
    firsts = beyond.group_by(["topic", "partition"]).aggregate([("offset", "min")]).to_pylist()
    if not any(reach.covers(one["topic"], one["partition"], one["offset_min"]) for one in firsts):
        return None
    columns: list[Column] = [events[name] for name in ("topic", "partition", "offset", POS)]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    refuted = [reach.refutes(*row) for row in rows]
    return pa.chunked_array([pa.array(refuted, pa.bool_())]) if any(refuted) else None


def told_apart(events: pa.Table, reach: LogReach | None) -> tuple[pa.Table, list[ForeignRecord]]:
    """Events (:data:`sinks.contract.batch.EVENT_SCHEMA`) less those of somebody else, and these."""
    mask = foreign_mask(events, reach)
    if mask is None:
        return events, []
    found = [
        ForeignRecord(
            topic=event.topic,
            partition=event.partition,
            offset=event.offset,
            key=event.key,
            value=event.value,
            headers=tuple((name, str(value).encode()) for name, value in _own(event) if value is not None),
            reason=FOREIGN,
        )
        for event in event_rows(events.filter(mask))
    ]
    return events.filter(pc.invert(mask)), found


def _own(event: object) -> tuple[tuple[str, object], ...]:
    return tuple((name, getattr(event, name)) for name in (POS, OP, VER))


WaitFor = Callable[[Callable[[LogReach], bool], float], "LogReach | None"]
"""Returns the newest reach as soon as it is enough, or after so many seconds. None where nothing is known."""


class JudgedSink:
    """A sink whose floors are known to be the pipeline's own before they remove anything.

    Floors that a progress record refutes are refused. One that none has come to within ``timeout_s`` is what the
    table is held for: CannotCarry, as :class:`sinks.contract.port.Sink` has it.
    """

    def __init__(self, sink: Sink, wait_for: WaitFor, *, timeout_s: float = TIMEOUT_S) -> None:
        self._sink = sink
        self._wait_for = wait_for
        self._timeout_s = timeout_s
        self._silent = False

    def prepare(self, schema: TableSchema, *, older: bool = False) -> None:
        """As :meth:`sinks.contract.port.Sink.prepare`."""
        self._sink.prepare(schema, older=older)

    def show(self) -> None:
        """As :meth:`sinks.contract.port.Sink.show`."""
        self._sink.show()

    def close(self) -> None:
        """As :meth:`sinks.contract.port.Sink.close`."""
        self._sink.close()

    def apply(self, events: pa.Table, schemas: Schemas) -> Applied:
        """As :meth:`sinks.contract.port.Sink.apply`."""
        batch = conform(events)
        floors = pc.fill_null(pc.equal(batch[OP], FLOOR_OP), False)
        if not pc.any(floors, min_count=0).as_py():
            return self._sink.apply(events, schemas)
        kept, refused = self._judged(batch.filter(floors), schemas)
        batch = pa.concat_tables([*kept, batch.filter(pc.invert(floors))])
        return Applied(refused=tuple(refused)) + self._sink.apply(batch, schemas)

    def _judged(self, floors: pa.Table, schemas: Schemas) -> tuple[list[pa.Table], list[Refused]]:
        kept: list[pa.Table] = []
        refused: list[Refused] = []
        for number, event in enumerate(event_rows(floors)):
            one = floors.slice(number, 1)
            pos = _highest(event.key, event.value, event.pos)
            if pos is None:
                kept.append(one)  # refused by the sink, for its form
                continue
            place = (event.topic, event.partition, event.offset)
            known = partial(_known, place, event.key or b"", pos)
            reach = self._wait_for(known, 0.0 if self._silent else self._timeout_s)
            # Before the first progress record of all none is waited for again.
            self._silent = reach is None
            if reach is not None and not known(reach):
                self._hold(event.topic, event.ver, pos, schemas)
            if reach is not None and reach.refutes(*place, pos):
                refused.extend(refuse(one, FOREIGN))
                log.warning("foreign_floor", extra={"topic": place[0], "partition": place[1], "offset": place[2]})
            else:
                kept.append(one)
        return kept, refused

    def _hold(self, topic: str, ver: int | None, pos: str, schemas: Schemas) -> None:
        try:
            table = schemas(topic, -1 if ver is None else ver).table
        except KeyError:
            return  # refused by the sink: nobody knows the table
        raise CannotCarry(
            f"{table}: a truncate or a sweep at {Lsn(Position.parse(pos).commit_lsn)} is not confirmed by a progress "
            "record yet",
            hint="it is when cdc run goes on; one of somebody else is refused then",
            table=table,
        )


def _highest(key: bytes | None, value: bytes | None, pos: str | None) -> str | None:
    """The higher one of a floor and its record's position. None where the record is none of a floor."""
    try:
        return max(pos or "", read_floor(key or b"", value, pos or "").floor)
    except ValueError:
        return None


def _known(place: tuple[str, int, int], key: bytes, pos: str, reach: LogReach) -> bool:
    """Whether it is known of a floor at this place if it is ours. A sweep of an epoch that no progress record is of yet
    counts as ours: the epoch's first snapshot ends with one."""
    begins = SWEEP_KEY.encode() in key and Position.parse(pos).epoch > reach.progress.epoch
    return pos <= reach.most or reach.covers(*place) or begins


def judged(opened: OpenSink, wait_for: WaitFor) -> OpenSink:
    """A store whose floors are judged."""
    return replace(opened, sink=JudgedSink(opened.sink, wait_for))
