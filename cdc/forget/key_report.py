"""The records of a key in its table's topic, what each place keeps, and the report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from cdc.errors import CdcError, DifferenceFound
from cdc.reference import duration_text
from cdc.schema import TableSchema
from cdc.wire.format import DELETE_OP, OP, ROW_OPS, VER
from cdc.wire.plain import PlainTable

PIPELINE = {
    "log": "rows of the key until the topic is compacted: {min_compaction_lag} after the delete at the earliest "
    "(min_compaction_lag), once its partition's file is closed by a later record. The tombstone {replay_window} more "
    "(replay_window). A row that a TRUNCATE took has none: insert it and delete it again",
    "dead letters": "refused records of the key with their rows, for ever: the topic deletes nothing by itself",
    "requests": "keys and conditions of cdc snapshot --keys and --where, until the state topic is compacted",
    "views": "documents that nest the row, until the view computes them anew, and older versions of them as the log. "
    "The view's state keeps the key of the delete. cdc view rebuild makes both anew",
    "generations": "an earlier generation of a store, whole, until the next cdc rebuild of it",
    "Spark": "nothing: checkpoints hold offsets. A DataFrame of changes has what your program kept of it",
    "outside": "the source's WAL, standbys and backups, mirrors of topics, backups of stores, programs that read them",
}
"""What each place keeps of a key that was deleted, and for how long. Durations are of the settings."""
_ROWS = {op.encode() for op in ROW_OPS}


def kept_in(sinks: Mapping[str, tuple[str, Mapping[str, timedelta]]], **durations: timedelta) -> dict[str, str]:
    """The table of what is kept, by place. ``sinks``: name, to what a store of its kind keeps and the
    durations of its own section."""
    texts: dict[str, tuple[str, Mapping[str, timedelta]]] = {
        place: (text, durations) for place, text in PIPELINE.items()
    }
    texts |= {name: (text, {**durations, **own}) for name, (text, own) in sinks.items()}
    return {
        place: text.format_map({name: duration_text(value) for name, value in values.items()})
        for place, (text, values) in texts.items()
    }


class KeyRecord(NamedTuple):
    """A record of the table's topic. ``time_ms``: as the log has it, since 1970."""

    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]


class KeyAnswer(NamedTuple):
    """The words of a place on the key. ``shows``: whether a reader gets values of the row there. ``failed``: why the
    place did not answer, None where it did."""

    says: str
    shows: bool = False
    failed: CdcError | None = None


def in_topic(records: Iterable[KeyRecord], shapes: Sequence[TableSchema], key: str) -> KeyAnswer:
    """The answer of the table's topic, read whole. ``shapes``: every version of the table's shape, the newest last."""
    tables = {str(shape.version).encode(): PlainTable(shape) for shape in shapes}
    form, masks = shapes[-1].key_form, shapes[-1].key_masks
    other = {v for v, t in tables.items() if (t.schema.key_form, t.schema.key_masks) != (form, masks)}
    values, apart, newest = 0, 0, None
    for record in records:
        version = record.headers.get(VER, b"")
        table = tables.get(version)
        try:
            text = table.key(record.key) if table is not None and record.key is not None else None
        except ValueError:
            text = None
        if text is None or version in other:
            apart += record.value is not None and record.headers.get(OP) in _ROWS
        elif text == key:
            values += record.value is not None
            newest = record
    beside = f". {apart} records have a key of another form and were not compared" if apart else ""
    if newest is None:
        return KeyAnswer(f"no record of the key{beside}")
    count, at = "1 record" if values == 1 else f"{values} records", _moment(newest.time_ms)
    if newest.value is None and not values:
        return KeyAnswer(f"the tombstone of {at} alone: compacted{beside}")
    if newest.value is None:
        return KeyAnswer(f"{count} before the tombstone of {at}: not compacted yet{beside}", shows=True)
    last = "a delete without its tombstone" if newest.headers.get(OP) == DELETE_OP.encode() else "a row"
    return KeyAnswer(f"{count}, the newest {last} of {at}{beside}", shows=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReport:
    """``key``: as the stores have it. ``answers``: of the topic, ``log``, and each store. ``kept``: by place."""

    table: str
    key: str
    answers: Mapping[str, KeyAnswer]
    kept: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        answers = {place: {"says": one.says, "shows": one.shows} for place, one in self.answers.items()}
        return {"table": self.table, "key": self.key, "answers": answers, "kept": dict(self.kept)}

    def conclude(self) -> None:
        """DifferenceFound where a place shows values of the row. Else the error of the first that did not answer."""
        shown = [place for place, answer in self.answers.items() if answer.shows]
        if shown:
            raise DifferenceFound(
                f"{len(shown)} of {len(self.answers)} places show values of that row: {', '.join(shown)}",
                hint="how long each place keeps them is above; run the same command again then",
            )
        for answer in self.answers.values():
            if answer.failed is not None:
                raise answer.failed


def _moment(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
