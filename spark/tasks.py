"""The executors' side of a large batch: a task reads its share of the spans and reports back in Arrow.

What it reads it brings down to what matters as it goes, so that a key is written once however often it changed,
and a task reads no more than a slice of its share at a time (hazard H102). A task never raises for what the log, a
store or a record does: everything it has to say is a row of its report, so that the driver hears of each fault as
what it is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import orjson
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from cdc.dead import DeadLetter, Why
from cdc.errors import CdcError, Exit, LogError, Retry, SinkError, TopicError
from cdc.topic import TableName
from cdc.wire.format import OP, VER
from cdc.wire.records import Lot, Reading, RecordReader, Span, numbered_by_slice
from sinks.arrow import pc, schema_of, where
from sinks.batch import EVENT_SCHEMA, FLOOR_OP
from sinks.port import Applied, CannotCarry, OpenSink, PlaceMissing, StoreAway
from sinks.registry import SinkSpec, open_sink
from spark.apply import (
    Outcome,
    Rules,
    Shape,
    apply_events,
    compact,
    letters_of,
    newest_ms,
    refused_letters,
    sort_out,
    with_keys,
)
from spark.batch import Reached, noting
from spark.source import parse, records_of

FOLD_ROWS = 250_000
"""How many records a task takes in before it brings them down to the newest of each key."""
SLICE_BYTES = 32 * 1024**2
"""What a task reads at most; what is left of its share is for the batch's next slice."""
READ_ROWS = 20_000
"""How many records are told apart at once: what is done once for all of them costs the same for few."""
READ_BYTES = 8 * 1024**2
"""And how many bytes of them."""

REPORT_SCHEMA = schema_of([("kind", pa.string()), ("rows", pa.binary())])
"""``kind``: done, reached, letter, shape, floor, winner or failed; ``rows``: a table as an Arrow stream.

Between a task and the driver stand Spark's own rows, where each value costs and each byte is copied several times: a
stream is one value, and compressed.
"""
_PIECE_BYTES = 16 * 1024**2
_PACKING = pa.ipc.IpcWriteOptions(compression="lz4")
_NOTED_SCHEMA = pa.schema([*EVENT_SCHEMA, pa.field("note", pa.binary())])
"""An event's columns where a row speaks of one; ``note``: JSON."""

_FAULTS: Mapping[str, type[SinkError | LogError]] = {
    "topic": TopicError,
    "log": LogError,
    "place": PlaceMissing,
    "away": StoreAway,
    "store": SinkError,
}
Mode = Literal["apply", "compact"]
Pairs = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a task needs, as plain data. ``spec`` holds secrets: it travels in the task's closure, never in a setting.

    ``mode``: write to the store from the executors, or only bring the events down to those that matter, for a
    store that the driver writes. ``only``: topic -> keys of which all events are wanted, instead. ``floors_set``: the
    driver has set the batch's floors.
    """

    spec: SinkSpec | None
    rules: Rules
    mode: Mode
    only: Mapping[str, list[bytes]] | None = None
    floors_set: bool = False
    read_rows: int = READ_ROWS
    fold_rows: int = FOLD_ROWS
    slice_bytes: int = SLICE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All tasks' reports together; with ``needs`` or ``floors`` the driver sees to those and runs the slice again.

    ``reached``: how far each partition was read.
    """

    outcome: Outcome
    reached: Reached
    needs: frozenset[Shape]
    floors: pa.Table
    winners: pa.Table


def run_on_executors(session: SparkSession, reading: Reading, shares: Sequence[Sequence[Span]], task: Task) -> Report:
    """Run a task for each share. The SinkError, LogError or TopicError of the first task that failed."""
    schema: Any = from_arrow_schema(REPORT_SCHEMA)
    numbers = session.range(0, len(shares), 1, len(shares))
    job = partial(run_task, task, reading, [tuple(share) for share in shares])
    return read_report(numbers.mapInArrow(job, schema).toArrow())


def warm_up(session: SparkSession, reading: Reading, spec: SinkSpec | None, slots: int) -> None:
    """Let each executor open what its first task needs: starting Python and its imports takes seconds there."""
    schema: Any = from_arrow_schema(REPORT_SCHEMA)
    # What fails now fails again in the first batch, and is told there.
    with suppress(PySparkException, Py4JError, OSError):
        session.range(0, slots, 1, slots).mapInArrow(partial(_warm, reading, spec), schema).toArrow()


def _warm(reading: Reading, spec: SinkSpec | None, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in numbers:
        # What fails now fails again in the first batch, and is told there.
        with suppress(CdcError):
            reader_of(reading)
            if spec is not None:
                _opened(spec)
    yield from _rows("warm", []).to_batches()


def run_task(
    task: Task, reading: Reading, shares: Sequence[Sequence[Span]], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One task: the shares whose numbers it is given, of each no more than a slice."""
    for batch in numbers:
        for number in batch.column(0):
            try:
                yield from _run_share(task, reading, shares[int(number.as_py() or 0)])
            except CdcError as error:
                # The first fault ends the task: what it did may be repeated.
                yield from _rows("failed", [_fault(error)]).to_batches()
                return


def _run_share(task: Task, reading: Reading, share: Sequence[Span]) -> Iterator[pa.RecordBatch]:
    if task.only is not None:
        for records in tables(reader_of(reading).read(share), task.read_rows):
            yield from _packed("winner", with_keys(parse(records).events, task.only)).to_batches()
        return
    reached: dict[tuple[str, int], int] = {}
    window = _Window(task)
    for records in tables(noting(reached, _first_slice(task, reading, share, reached)), task.read_rows):
        window.add(records)
    read = [span._replace(end=reached[span[:2]]) for span in share if span[:2] in reached]
    yield from window.report(reading, read).to_batches()
    places = [{"topic": topic, "partition": p, "offset": offset} for (topic, p), offset in reached.items()]
    yield from _rows("reached", places).to_batches()


def _first_slice(
    task: Task, reading: Reading, share: Sequence[Span], reached: dict[tuple[str, int], int]
) -> Iterator[Lot]:
    """What a task reads. Where that is all of its share, ``reached`` gets the ends: there may be gaps before them."""
    for number, lot in numbered_by_slice(reader_of(reading).read(share), task.slice_bytes):
        if number:
            return
        yield lot
    reached |= {(span.topic, span.partition): span.end for span in share}


def tables(lots: Iterable[Lot], most_rows: int = READ_ROWS) -> Iterator[pa.Table]:
    """Lots as tables of some size."""
    held: list[Lot] = []
    row_count = byte_count = 0
    for lot in lots:
        held.append(lot)
        row_count += len(lot.offsets)
        byte_count += sum(lot.sizes)
        if row_count >= most_rows or byte_count >= READ_BYTES:
            yield records_of(held)
            held, row_count, byte_count = [], 0, 0
    if held:
        yield records_of(held)


@dataclass
class _Window:
    """Records of a share, brought down to what matters as they come (hazard H38: see :func:`compact`)."""

    task: Task
    outcome: Outcome = field(default_factory=Outcome)
    needs: frozenset[Shape] = frozenset()
    events: list[pa.Table] = field(default_factory=list)
    unfolded: int = 0

    def add(self, records: pa.Table) -> None:
        found = sort_out(records, self.task.rules)
        self.outcome += Outcome(letters=letters_of(found), records=records.num_rows, newest_ms=newest_ms(records))
        self.needs |= found.needs
        self.events.append(found.events)
        self.unfolded += found.events.num_rows
        if self.unfolded >= self.task.fold_rows:
            self._fold()

    def report(self, reading: Reading, share: Sequence[Span]) -> pa.Table:
        """What the driver hears of it, after the store got it where the task writes."""
        task = self.task
        if self.needs:
            return _rows("shape", [{"topic": topic, VER: version} for topic, version in sorted(self.needs)])
        if not self.events:
            return _outcome_rows(self.outcome)
        self._fold()
        [events] = self.events
        if task.mode == "compact":
            return pa.concat_tables([_packed("winner", events), _outcome_rows(self.outcome)])
        floors = events.filter(pc.equal(events[OP], FLOOR_OP))
        if floors.num_rows and not task.floors_set:
            return _packed("floor", floors)
        if task.spec is None:
            raise SinkError("a task that has to apply was given no store")

        def history(keys: Mapping[str, list[bytes]]) -> pa.Table:
            """All that the share has of some keys: rare, so it is read again rather than kept, and by a reader of
            its own, because the task's is in the middle of the share."""
            with closing(reading.open()) as reader:
                read = tables(reader.read(share), task.read_rows)
                found = [with_keys(parse(records).events, keys) for records in read]
            return pa.concat_tables([EVENT_SCHEMA.empty_table(), *found])

        rows = where(events, pc.not_equal(events[OP], FLOOR_OP))
        applied = apply_events(rows, _opened(task.spec).sink, task.rules.book, history)
        return _outcome_rows(self.outcome + Outcome(applied=applied, letters=refused_letters(applied.refused)))

    def _fold(self) -> None:
        self.events = [compact(pa.concat_tables(self.events), self.task.rules.book)]
        self.unfolded = 0


@functools.lru_cache(maxsize=2)
def reader_of(reading: Reading) -> RecordReader:
    """A reader, kept in this worker process from task to task."""
    return reading.open()


def _opened(spec: SinkSpec) -> OpenSink:
    """The store, kept open in this worker process from batch to batch."""
    return _open_once((spec.kind, spec.opener), spec.prefix, _items(spec.options), _items(spec.secrets), spec.parallel)


def _items(held: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(held.items()))


@functools.lru_cache(maxsize=8)
def _open_once(kind: tuple[str, str], prefix: str, options: Pairs, secrets: Pairs, parallel: bool) -> OpenSink:
    name, opener = kind
    spec = SinkSpec(
        kind=name, opener=opener, prefix=prefix, options=dict(options), secrets=dict(secrets), parallel=parallel
    )
    return open_sink(spec)


def _packed(kind: str, rows: pa.Table) -> pa.Table:
    """A table as report rows, each of some megabytes."""
    streams: list[bytes] = []
    step = max(1, rows.num_rows * _PIECE_BYTES // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, step):
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema, options=_PACKING) as stream:
            stream.write_table(rows.slice(start, step).combine_chunks())
        streams.append(out.getvalue().to_pybytes())
    return pa.table({"kind": [kind] * len(streams), "rows": streams}, schema=REPORT_SCHEMA)


def _unpacked(report: pa.Table, kind: str, schema: pa.Schema) -> pa.Table:
    found: list[Any] = report.filter(pc.equal(report["kind"], kind))["rows"].to_pylist()
    return pa.concat_tables([schema.empty_table(), *(pa.ipc.open_stream(rows).read_all() for rows in found)])


def _rows(kind: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return _packed(kind, pa.Table.from_pylist(list(rows), schema=_NOTED_SCHEMA))


def _outcome_rows(outcome: Outcome) -> pa.Table:
    applied = outcome.applied
    counts = {
        "records": outcome.records,
        "newest_ms": outcome.newest_ms,
        "applied": applied.applied,
        "deleted": applied.deleted,
        "stale": applied.stale,
    }
    done = _rows("done", [{"note": orjson.dumps(counts)}])
    return pa.concat_tables([done, _rows("letter", [_letter_row(letter) for letter in outcome.letters])])


def _letter_row(letter: DeadLetter) -> dict[str, Any]:
    headers = [[name, value.hex() if value is not None else None] for name, value in letter.headers]
    note = {"why": letter.why.value, "reason": letter.reason, "headers": headers}
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "key": letter.key,
        "value": letter.value,
        "note": orjson.dumps(note),
    }


def _fault(error: CdcError) -> dict[str, Any]:
    kind = next((name for name, kind in _FAULTS.items() if isinstance(error, kind)), "store")
    told: dict[str, Any] = {"kind": kind, "message": error.message, "hint": error.hint}
    told |= {"retry": error.retry.value, "exit": error.exit}
    if isinstance(error, CannotCarry):
        told |= {"kind": "table", "table": list(error.table)}
    return {"note": orjson.dumps(told)}


def read_report(report: pa.Table) -> Report:
    """Reports of all tasks. Raises what the first one that failed had to say."""
    failed: list[Any] = _unpacked(report, "failed", _NOTED_SCHEMA)["note"].to_pylist()
    if failed:
        fault = orjson.loads(failed[0])
        if fault["kind"] == "table":
            raise CannotCarry(fault["message"], table=TableName(*fault["table"]), hint=fault["hint"])
        retry, code = Retry(fault["retry"]), Exit(fault["exit"])
        raise _FAULTS[fault["kind"]](fault["message"], hint=fault["hint"], retry=retry, exit=code)
    outcome = Outcome(letters=tuple(_read_letters(_unpacked(report, "letter", _NOTED_SCHEMA))))
    done: list[Any] = _unpacked(report, "done", _NOTED_SCHEMA)["note"].to_pylist()
    for note in done:
        counts = orjson.loads(note)
        records, newest = counts.pop("records"), counts.pop("newest_ms")
        outcome += Outcome(applied=Applied(**counts), records=records, newest_ms=newest)
    shapes = _unpacked(report, "shape", _NOTED_SCHEMA).select(["topic", VER]).to_pylist()
    return Report(
        outcome=outcome,
        reached=_reached(_unpacked(report, "reached", _NOTED_SCHEMA)),
        needs=frozenset((shape["topic"], shape[VER]) for shape in shapes),
        floors=_unpacked(report, "floor", EVENT_SCHEMA),
        winners=_unpacked(report, "winner", EVENT_SCHEMA),
    )


def _reached(rows: pa.Table) -> Reached:
    places: list[Any] = rows.select(["topic", "partition", "offset"]).to_pylist()
    return {(place["topic"], place["partition"]): place["offset"] for place in places}


def _read_letters(rows: pa.Table) -> Iterator[DeadLetter]:
    for row in rows.to_pylist():
        note = orjson.loads(row["note"])
        yield DeadLetter(
            sink="",
            why=Why(note["why"]),
            topic=row["topic"],
            partition=row["partition"],
            offset=row["offset"],
            reason=note["reason"],
            key=row["key"],
            value=row["value"],
            headers=tuple(
                (name, bytes.fromhex(value) if value is not None else None) for name, value in note["headers"]
            ),
        )
