"""The executors' side of a large batch: a task reads its share of the spans and reports back in Arrow.

It keeps the newest record of each key as it reads, so that a key is written once however often it changed. It reads no
more than a slice of its share at a time. A task never raises for an error of the log, a store or a
record: each is a row of its report, so that the driver can distinguish them.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from cdc.process.errors import CdcError, SinkError
from cdc.wire.format import OP, VER
from cdc.wire.records import ReaderOpener, RecordColumns, RecordReader, Span, numbered_by_slice
from sinks.contract.batch import EVENT_SCHEMA, FLOOR_OP, pc, where
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import SinkSpec, open_sink
from spark.queries.micro_batch import MOST_ROWS, noting
from spark.queries.task_reports import REPORT_SCHEMA, TaskReport, fault_row, noted, outcome_rows, packed, read_report
from spark.records.debezium_records import TaskTranslation, TaskTranslator
from spark.records.foreign_records import told_apart
from spark.records.source import parse, read_sample, records_of
from spark.stores.apply import (
    Outcome,
    Rules,
    Shape,
    apply_events,
    compact,
    letters_of,
    refused_letters,
    sort_out,
    with_keys,
)

FOLD_ROWS = 250_000
"""How many records a task takes in before it brings them down to the newest of each key."""
SLICE_BYTES = 32 * 1024**2
"""The most that a task has of the records that decide. The rest of its share is for the batch's next slice."""
NARROW = 8
"""How many times as much it has of narrow records: one large slice writes each key once, several write it several
times. With 32 MB for all, 1 M events on 250 k keys took twice to three times as long."""
_NARROW_BYTES = 2048
"""A record that is no larger, on average, is narrow."""
_FULL = 2 / 3
"""A slice that is fuller when it was brought down to the newest of each key ends: it would soon be so again."""
_MOST_READ = 4
"""How many times as much as it may hold a slice reads. All that was read of some keys may be asked for once more."""
READ_ROWS = 20_000
"""The number of records that are parsed at once: what is done once for all of them costs the same for few."""
READ_BYTES = 8 * 1024**2
"""And how many bytes of them."""
_STEPS = 4
"""In how many steps a slice is read, at least."""

Mode = Literal["apply", "compact"]
Pairs = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The parameters of a task, as plain data. ``spec`` holds secrets: it travels in the task's closure, never in a
    setting.

    ``mode``: write to the store from the executors, or only bring the events down to those that decide, for a
    store that the driver writes. ``whole``: the share is a slice that was read before, and is read to its end.
    ``only``: topic -> keys of which all events are wanted, instead. ``floors_set``: the driver has set the batch's
    floors. ``most_rows``: a slice ends that holds so many when it was brought down. ``translation``: for topics whose
    records are not ours.
    """

    spec: SinkSpec | None
    rules: Rules
    mode: Mode
    only: Mapping[str, list[bytes]] | None = None
    floors_set: bool = False
    read_rows: int = READ_ROWS
    fold_rows: int = FOLD_ROWS
    slice_bytes: int = SLICE_BYTES
    narrow_bytes: int = NARROW * SLICE_BYTES
    most_rows: int = MOST_ROWS
    translation: TaskTranslation | None = None
    whole: bool = False


def run_on_executors(
    session: SparkSession, reading: ReaderOpener, shares: Sequence[Sequence[Span]], task: Task
) -> TaskReport:
    """Run a task for each share. The SinkError, LogError or TopicError of the first task that failed."""
    schema: Any = from_arrow_schema(REPORT_SCHEMA)
    numbers = session.range(0, len(shares), 1, len(shares))
    job = partial(run_task, task, reading, [tuple(share) for share in shares])
    return read_report(numbers.mapInArrow(job, schema).toArrow())


def warm_up(session: SparkSession, reading: ReaderOpener, spec: SinkSpec | None, slots: int) -> None:
    """Let each executor open what its first task needs: starting Python and its imports takes seconds there."""
    schema: Any = from_arrow_schema(REPORT_SCHEMA)
    # A failure here comes again in the first batch, which reports it.
    with suppress(PySparkException, Py4JError, OSError):
        session.range(0, slots, 1, slots).mapInArrow(partial(_warm, reading, spec), schema).toArrow()


def _warm(reading: ReaderOpener, spec: SinkSpec | None, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in numbers:
        # A failure here comes again in the first batch, which reports it.
        with suppress(CdcError):
            reader_of(reading)
            if spec is not None:
                _opened(spec)
    yield from noted("warm", []).to_batches()


def run_task(
    task: Task, reading: ReaderOpener, shares: Sequence[Sequence[Span]], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One task: the shares whose numbers it is given, of each no more than a slice."""
    for batch in numbers:
        for number in batch.column(0):
            try:
                yield from _run_share(task, reading, shares[int(number.as_py() or 0)])
            except CdcError as error:
                # The first fault ends the task: what it did may be repeated.
                yield from noted("failed", [fault_row(error)]).to_batches()
                return


def _run_share(task: Task, reading: ReaderOpener, share: Sequence[Span]) -> Iterator[pa.RecordBatch]:
    translate = _translator(task)
    if task.only is not None:
        for records in tables(reader_of(reading).read(share), task.read_rows):
            own, _ = told_apart(parse(translate(records)).events, task.rules.reach)
            yield from packed("winner", with_keys(own, task.only)).to_batches()
        return
    reached: dict[tuple[str, int], int] = {}
    window = _Window(task, translate)
    _read_slice(window, reading, share, reached)
    read = [span._replace(end=reached[span[:2]]) for span in share if span[:2] in reached]
    yield from window.report(reading, read).to_batches()
    places = [{"topic": topic, "partition": p, "offset": offset} for (topic, p), offset in reached.items()]
    yield from noted("reached", places).to_batches()


def _translator(task: Task) -> Callable[[pa.Table], pa.Table]:
    """The translator of the records, from the beginning of the slice on."""
    return task.translation.begin() if task.translation is not None else _as_they_are


def _as_they_are(records: pa.Table) -> pa.Table:
    return records


def _read_slice(
    window: _Window, reading: ReaderOpener, share: Sequence[Span], reached: dict[tuple[str, int], int]
) -> None:
    """Fill a window with a slice of the share. Where that is all of it, ``reached`` gets the ends: there may be gaps
    before them."""
    step = min(READ_BYTES, max(1, window.task.slice_bytes // _STEPS))
    pieces = groupby(numbered_by_slice(reader_of(reading).read(share), step), key=itemgetter(0))
    for _, piece in pieces:
        for records in tables(noting(reached, (lot for _, lot in piece)), window.task.read_rows):
            window.add(records)
        if not window.has_room(step):
            # Where the share ends here as well, the next slice is one of gaps alone.
            return
    reached |= {(span.topic, span.partition): span.end for span in share}


def tables(lots: Iterable[RecordColumns], most_rows: int = READ_ROWS) -> Iterator[pa.Table]:
    """Lots as tables of some size."""
    gathered: list[RecordColumns] = []
    row_count = byte_count = 0
    for lot in lots:
        gathered.append(lot)
        row_count += len(lot.offsets)
        byte_count += sum(lot.sizes)
        if row_count >= most_rows or byte_count >= READ_BYTES:
            yield records_of(gathered)
            gathered, row_count, byte_count = [], 0, 0
    if gathered:
        yield records_of(gathered)


@dataclass
class _Window:
    """Records of a share, brought down to those that decide as they come (see :func:`compact`)."""

    task: Task
    translate: Callable[[pa.Table], pa.Table]
    outcome: Outcome = field(default_factory=Outcome)
    needs: frozenset[Shape] = frozenset()
    events: list[pa.Table] = field(default_factory=list)
    unfolded: int = 0
    read_bytes: int = 0
    """Of all events that came, without their schemas."""
    letter_bytes: int = 0
    """Of the records among which some could not be read: these are held as they are."""

    def add(self, records: pa.Table) -> None:
        found = sort_out(self.translate(records), self.task.rules)
        letters = letters_of(found)
        self.outcome += Outcome(letters=letters, records=records.num_rows, read=read_sample(records))
        self.needs |= found.needs
        self.events.append(found.events)
        self.unfolded += found.events.num_rows
        self.read_bytes += found.events.nbytes
        self.letter_bytes += records.nbytes if letters else 0
        if self.unfolded >= min(self.task.fold_rows, self.task.most_rows):
            self._fold()

    def has_room(self, step_bytes: int) -> bool:
        """Whether the slice goes on with so many more bytes. Records that are held count, after they were brought
        down to the newest of each key: those that came again and again cost no memory, and are written once."""
        task, letters = self.task, len(self.outcome.letters)
        read_bytes = self.read_bytes + self.letter_bytes
        most_bytes = task.narrow_bytes if read_bytes <= self.outcome.records * _NARROW_BYTES else task.slice_bytes
        full = self._held_bytes() + step_bytes > most_bytes
        if full:
            self._fold()
            full = self._held_bytes() > _FULL * most_bytes
        # The first table is what the last folding has left.
        full = full or self.events[0].num_rows + letters >= task.most_rows
        return task.whole or (not full and read_bytes + step_bytes <= _MOST_READ * most_bytes)

    def _held_bytes(self) -> int:
        return self.letter_bytes + sum(one.nbytes for one in self.events)

    def report(self, reading: ReaderOpener, share: Sequence[Span]) -> pa.Table:
        """The report to the driver, after the store got the records where the task writes."""
        if not isinstance(self.translate, TaskTranslator):
            return self._applied(reading, share)
        told = self.translate.told
        told_rows = noted("told", [{"note": pickle.dumps(told)}])
        return told_rows if told.undecided else pa.concat_tables([told_rows, self._applied(reading, share)])

    def _applied(self, reading: ReaderOpener, share: Sequence[Span]) -> pa.Table:
        task = self.task
        if self.needs:
            return noted("shape", [{"topic": topic, VER: version} for topic, version in sorted(self.needs)])
        if not self.events:
            return outcome_rows(self.outcome)
        self._fold()
        [events] = self.events
        if task.mode == "compact":
            return pa.concat_tables([packed("winner", events), outcome_rows(self.outcome)])
        floors = events.filter(pc.equal(events[OP], FLOOR_OP))
        if floors.num_rows and not task.floors_set:
            return packed("floor", floors)
        if task.spec is None:
            raise SinkError("a task that has to apply was given no store")

        def history(keys: Mapping[str, list[bytes]]) -> pa.Table:
            """All that the share has of some keys: rare, so it is read again rather than kept, and by a reader of
            its own, because the task's is in the middle of the share."""
            with closing(reading.open()) as reader:
                read = tables(reader.read(share), task.read_rows)
                translate = _translator(task)
                parsed = (parse(translate(records)).events for records in read)
                found = [with_keys(told_apart(events, task.rules.reach)[0], keys) for events in parsed]
            return pa.concat_tables([EVENT_SCHEMA.empty_table(), *found])

        changes = where(events, pc.not_equal(events[OP], FLOOR_OP))
        applied = apply_events(changes, _opened(task.spec).sink, task.rules.book, history)
        return outcome_rows(self.outcome + Outcome(applied=applied, letters=refused_letters(applied.refused)))

    def _fold(self) -> None:
        self.events = [compact(pa.concat_tables(self.events), self.task.rules.book)]
        self.unfolded = 0


@functools.lru_cache(maxsize=2)
def reader_of(reading: ReaderOpener) -> RecordReader:
    """A reader, kept in this worker process from task to task."""
    return reading.open()


def _opened(spec: SinkSpec) -> OpenSink:
    """The store, kept open in this worker process from batch to batch."""
    return _open_once((spec.kind, spec.opener), spec.prefix, _items(spec.options), _items(spec.secrets), spec.parallel)


def _items(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(options.items()))


@functools.lru_cache(maxsize=8)
def _open_once(kind: tuple[str, str], prefix: str, options: Pairs, secrets: Pairs, parallel: bool) -> OpenSink:
    name, opener = kind
    spec = SinkSpec(
        kind=name, opener=opener, prefix=prefix, options=dict(options), secrets=dict(secrets), parallel=parallel
    )
    return open_sink(spec)
