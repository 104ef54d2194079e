"""The executors' side of a large batch: a task reads its partitions in windows and reports back in Arrow.

A task never raises for what a store or a record does: everything it has to say is a row of its report, so that
the driver hears of each fault as what it is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from cdc.dead import DeadLetter, Why
from cdc.errors import CdcError, Retry, SinkError
from sinks.arrow import pc
from sinks.batch import EVENT_SCHEMA
from sinks.port import Applied, OpenSink
from sinks.registry import SinkSpec, open_sink
from spark.apply import (
    Outcome,
    Rules,
    Shape,
    Sorted,
    apply_sorted,
    compact,
    letters_of,
    newest_ms,
    sort_out,
    with_keys,
)

WINDOW_ROWS = 250_000
WINDOW_BYTES = 96 * 1024**2
"""What a task holds at once, in records as they came."""

REPORT_SCHEMA = pa.schema([pa.field("kind", pa.string()), *EVENT_SCHEMA, pa.field("note", pa.binary())])
"""``kind``: done, letter, shape, floor, winner or failed; an event's columns where it speaks of one; ``note``: JSON."""

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
    window_rows: int = WINDOW_ROWS
    window_bytes: int = WINDOW_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All tasks' reports together; with ``needs`` or ``floors`` the driver sees to those and runs the batch again."""

    outcome: Outcome
    needs: frozenset[Shape]
    floors: pa.Table
    winners: pa.Table


def run_on_executors(frame: DataFrame, task: Task) -> Report:
    """Run a batch where its partitions are. SinkError, as the first task that failed had it."""
    schema: Any = from_arrow_schema(REPORT_SCHEMA)
    return read_report(frame.mapInArrow(partial(run_task, task), schema).toArrow())


def run_task(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: its records in windows, its report a window at a time."""
    for records in windows(batches, task.window_rows, task.window_bytes):
        try:
            yield from _run_window(task, sort_out(records, task.rules)).to_batches()
        except CdcError as error:
            # The first fault ends the task: what it did may be repeated.
            yield from _rows("failed", [_fault(error)]).to_batches()
            return


def windows(batches: Iterable[pa.RecordBatch], most_rows: int, most_bytes: int) -> Iterator[pa.Table]:
    """The batches of a partition, joined up to a window's size: the larger, the fewer writes per key."""
    held: list[pa.RecordBatch] = []
    row_count = byte_count = 0
    for batch in batches:
        held.append(batch)
        row_count += batch.num_rows
        byte_count += batch.nbytes
        if row_count >= most_rows or byte_count >= most_bytes:
            yield pa.Table.from_batches(held)
            held, row_count, byte_count = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _run_window(task: Task, batch: Sorted) -> pa.Table:
    floors = batch.floors
    if task.only is not None:
        return _events("winner", with_keys(batch.events, task.only))
    if batch.needs:
        return _rows("shape", [{"topic": topic, "ver": version} for topic, version in sorted(batch.needs)])
    if task.mode == "compact":
        outcome = Outcome(letters=letters_of(batch), records=batch.records.num_rows, newest_ms=newest_ms(batch.records))
        return pa.concat_tables([_events("winner", compact(batch, task.rules.book)), _outcome_rows(outcome)])
    if floors.num_rows and not task.floors_set:
        return _events("floor", floors)
    if task.spec is None:
        raise SinkError("a task that has to apply was given no store")
    store = _opened(task.spec)
    return _outcome_rows(apply_sorted(batch.without_floors(), store.sink, task.rules.book))


def _opened(spec: SinkSpec) -> OpenSink:
    """The store, kept open in this worker process from batch to batch."""
    return _open_once(spec.kind, spec.prefix, _items(spec.options), _items(spec.secrets), spec.parallel)


def _items(held: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(held.items()))


@functools.lru_cache(maxsize=8)
def _open_once(kind: str, prefix: str, options: Pairs, secrets: Pairs, parallel: bool) -> OpenSink:
    spec = SinkSpec(kind=kind, prefix=prefix, options=dict(options), secrets=dict(secrets), parallel=parallel)
    return open_sink(spec)


def _events(kind: str, events: pa.Table) -> pa.Table:
    count = events.num_rows
    kinds = pa.repeat(pa.scalar(kind), count)
    notes = pa.nulls(count, pa.binary())
    return pa.Table.from_arrays([kinds, *events.columns, notes], schema=REPORT_SCHEMA)


def _rows(kind: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{"kind": kind, **row} for row in rows], schema=REPORT_SCHEMA)


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
    return {"note": orjson.dumps({"message": error.message, "hint": error.hint, "retry": error.retry.value})}


def read_report(report: pa.Table) -> Report:
    """Reports of all windows of all tasks. SinkError for the first one that failed."""
    kinds = report["kind"]
    failed = report.filter(pc.equal(kinds, "failed"))
    if failed.num_rows:
        notes: list[Any] = failed["note"].to_pylist()
        fault = orjson.loads(notes[0])
        raise SinkError(fault["message"], hint=fault["hint"], retry=Retry(fault["retry"]))
    outcome = Outcome(letters=tuple(_read_letters(report.filter(pc.equal(kinds, "letter")))))
    done: list[Any] = report.filter(pc.equal(kinds, "done"))["note"].to_pylist()
    for note in done:
        counts = orjson.loads(note)
        records, newest = counts.pop("records"), counts.pop("newest_ms")
        outcome += Outcome(applied=Applied(**counts), records=records, newest_ms=newest)
    shapes = report.filter(pc.equal(kinds, "shape")).select(["topic", "ver"]).to_pylist()
    return Report(
        outcome=outcome,
        needs=frozenset((shape["topic"], shape["ver"]) for shape in shapes),
        floors=report.filter(pc.equal(kinds, "floor")).select(EVENT_SCHEMA.names),
        winners=report.filter(pc.equal(kinds, "winner")).select(EVENT_SCHEMA.names),
    )


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
