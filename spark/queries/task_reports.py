"""Reports of tasks to the driver: tables as compressed Arrow streams, by kind, in the rows of Spark's."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from cdc.process.errors import CdcError, Exit, LogError, Retry, SinkError, TopicError
from cdc.record.topic_names import TableName
from cdc.wire.dead_letter import DeadLetter, Why
from cdc.wire.format import VER
from sinks.contract.batch import EVENT_SCHEMA, pc, schema_of
from sinks.contract.port import Applied, CannotCarry, PlaceMissing, StoreAway
from spark.queries.micro_batch import Reached
from spark.records.debezium_records import TaskNotes
from spark.records.source import ReadSample
from spark.stores.apply import Outcome, Shape

REPORT_SCHEMA = schema_of([("kind", pa.string()), ("rows", pa.binary())])
"""``kind``: done, reached, told, letter, shape, floor, winner or failed. ``rows``: a table as an Arrow stream.

Between a task and the driver stand Spark's own rows, where each value costs and each byte is copied several times: a
stream is one value, and compressed.
"""
_PIECE_BYTES = 16 * 1024**2
_PACKING = pa.ipc.IpcWriteOptions(compression="lz4")
_NOTED_SCHEMA = pa.schema([*EVENT_SCHEMA, pa.field("note", pa.binary())])
"""An event's columns where a row speaks of one. ``note``: JSON, of ``told`` a pickle."""

_FAULTS: Mapping[str, type[SinkError | LogError]] = {
    "topic": TopicError,
    "log": LogError,
    "place": PlaceMissing,
    "away": StoreAway,
    "store": SinkError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """All tasks' reports together. With ``needs``, ``floors`` or something undecided in ``told`` the driver sees to
    those and runs the slice again.

    ``reached``: how far each partition was read.
    """

    outcome: Outcome
    reached: Reached
    needs: frozenset[Shape]
    floors: pa.Table
    winners: pa.Table
    told: TaskNotes = field(default_factory=TaskNotes)


def packed(kind: str, rows: pa.Table) -> pa.Table:
    """A table as report rows, each of some megabytes."""
    streams: list[bytes] = []
    step = max(1, rows.num_rows * _PIECE_BYTES // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, step):
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema, options=_PACKING) as stream:
            stream.write_table(rows.slice(start, step).combine_chunks())
        streams.append(out.getvalue().to_pybytes())
    return pa.table({"kind": [kind] * len(streams), "rows": streams}, schema=REPORT_SCHEMA)


def unpacked(report: pa.Table, kind: str, schema: pa.Schema) -> pa.Table:
    """All of a kind, as one table."""
    found: list[Any] = report.filter(pc.equal(report["kind"], kind))["rows"].to_pylist()
    return pa.concat_tables([schema.empty_table(), *(pa.ipc.open_stream(rows).read_all() for rows in found)])


def noted(kind: str, notes: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows that are no events, or say more than one, as report rows."""
    return packed(kind, pa.Table.from_pylist(list(notes), schema=_NOTED_SCHEMA))


def outcome_rows(outcome: Outcome) -> pa.Table:
    """An outcome as report rows."""
    applied = outcome.applied
    counts = {
        "records": outcome.records,
        "read": outcome.read,
        "applied": applied.applied,
        "deleted": applied.deleted,
        "stale": applied.stale,
    }
    done = noted("done", [{"note": orjson.dumps(counts)}])
    return pa.concat_tables([done, noted("letter", [_letter_row(letter) for letter in outcome.letters])])


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


def fault_row(error: CdcError) -> dict[str, Any]:
    """A fault, to be raised again by :func:`read_report`."""
    kind = next((name for name, kind in _FAULTS.items() if isinstance(error, kind)), "store")
    told: dict[str, Any] = {"kind": kind, "message": error.message, "hint": error.hint}
    told |= {"retry": error.retry.value, "exit": error.exit}
    if isinstance(error, CannotCarry):
        told |= {"kind": "table", "table": list(error.table)}
    return {"note": orjson.dumps(told)}


def read_report(report: pa.Table) -> TaskReport:
    """Reports of all tasks as one.

    Raises the error of the first task that failed: CannotCarry for a table that its store cannot take, else the
    SinkError or LogError that the task met, with its hint, retry and exit code.
    """
    failed: list[Any] = unpacked(report, "failed", _NOTED_SCHEMA)["note"].to_pylist()
    if failed:
        fault = orjson.loads(failed[0])
        if fault["kind"] == "table":
            raise CannotCarry(fault["message"], table=TableName(*fault["table"]), hint=fault["hint"])
        retry, code = Retry(fault["retry"]), Exit(fault["exit"])
        raise _FAULTS[fault["kind"]](fault["message"], hint=fault["hint"], retry=retry, exit=code)
    outcome = Outcome(letters=tuple(_read_letters(unpacked(report, "letter", _NOTED_SCHEMA))))
    done: list[Any] = unpacked(report, "done", _NOTED_SCHEMA)["note"].to_pylist()
    for note in done:
        counts = orjson.loads(note)
        records, read = counts.pop("records"), counts.pop("read")
        outcome += Outcome(applied=Applied(**counts), records=records, read=ReadSample.of(read))
    told: list[Any] = unpacked(report, "told", _NOTED_SCHEMA)["note"].to_pylist()
    shapes = unpacked(report, "shape", _NOTED_SCHEMA).select(["topic", VER]).to_pylist()
    return TaskReport(
        outcome=outcome,
        reached=_reached(unpacked(report, "reached", _NOTED_SCHEMA)),
        needs=frozenset((shape["topic"], shape[VER]) for shape in shapes),
        floors=unpacked(report, "floor", EVENT_SCHEMA),
        winners=unpacked(report, "winner", EVENT_SCHEMA),
        told=sum((pickle.loads(note) for note in told), start=TaskNotes()),
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
