"""``cdc forget``: the places that keep something of a row deleted in the source, and for how long. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import unquote
from uuid import UUID

import orjson

from cdc.process.errors import CdcError, DifferenceFound, UsageError
from cdc.process.untrusted_text import quoted
from cdc.record.schema import Column, TableSchema
from cdc.settings.settings_reference import duration_text
from cdc.wire.format import DELETE_OP, OP, ROW_OPS, VER
from cdc.wire.plain import HASHED_KEY, PlainTable, escape_key, store_key
from cdc.wire.types import INTEGERS

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
IN_HISTORY = "every version of the row, for {keep} ([history] keep). Nothing takes one key out of it"
"""The same of a table that has one."""
IN_WAREHOUSE = "Its history there: every version of the row, for ever. Delete them by SQL, by the row's key"
"""The same of a sink that keeps it."""
_ROWS = {op.encode() for op in ROW_OPS}


def kept_in(
    sinks: Mapping[str, tuple[str, Mapping[str, timedelta]]], history: timedelta | None = None, **durations: timedelta
) -> dict[str, str]:
    """The table of what is kept, by place. ``sinks``: name, to what a store of its kind keeps and the
    durations of its own section. ``history``: how long the table's keeps a change, None without one."""
    texts: dict[str, tuple[str, Mapping[str, timedelta]]] = {
        place: (text, durations) for place, text in PIPELINE.items()
    }
    if history is not None:
        texts["history"] = IN_HISTORY, {"keep": history}
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


_ESCAPED = re.compile(r"(?:[^%:]|%25|%3A)*")
_HMAC = re.compile("[0-9a-f]{64}")
_DATE, _CLOCK = r"[+-]?\d{4,}-\d\d-\d\d", r"\d\d:\d\d:\d\d(?:\.\d+)?"
_FORMS = {
    "bool": re.compile("true|false"),
    "date": re.compile(f"{_DATE}Z|-?infinity"),
    "time": re.compile(f"{_CLOCK}Z"),
    "timetz": re.compile(f"{_CLOCK}Z"),
    "timestamp": re.compile(f"{_DATE}T{_CLOCK}Z|-?infinity"),
    "timestamptz": re.compile(f"{_DATE}T{_CLOCK}Z|-?infinity"),
    "numeric": re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|NaN|-?Infinity"),
    "bytea": re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
}
"""The text of a value in the stores, by kind. Another text, as psql shows it, is the key of no row there."""
_WITHOUT_ZONE = frozenset(("date", "time", "timestamp"))
"""Their text in psql is understood."""


def asked_key(typed: str, shape: TableSchema) -> str:
    """The key as the stores have it: of its columns' values joined by ``:``, or of JSON of the key's columns.

    A key of one column may have a ``:`` in it. UsageError for what is no key of the table, and for a masked column that
    is not written as its HMAC: nothing stands under its value.
    """
    if not shape.key:
        raise UsageError(f"{shape.table} has no key", hint="cdc forget asks for the key of a row")
    record = _of_json(typed, shape)
    parts = _parts(typed, shape) if record is None else [str(record[column.name]) for column in shape.key]
    for part, column in zip(parts, shape.key, strict=True):
        if column.mask is not None and not _HMAC.fullmatch(part):
            raise UsageError(
                f"the key of {shape.table} is masked, and that is no HMAC of {column.name}",
                hint="write it as the stores and cdc events have it: 64 hex digits for each masked column",
            )
    if record is not None:
        try:
            text = PlainTable(shape).key(typed.encode())
        except ValueError as error:
            raise UsageError(f"that is no key of {shape.table}: {quoted(error)}", hint=_hint(shape)) from None
        if text.startswith(HASHED_KEY):
            return text
        parts = [unquote(part) for part in text.split(":")]
    return store_key([escape_key(_value(part, column)) for part, column in zip(parts, shape.key, strict=True)])


def _of_json(typed: str, shape: TableSchema) -> dict[str, object] | None:
    """None for what is no JSON of exactly the key's columns."""
    with suppress(orjson.JSONDecodeError):
        found = orjson.loads(typed)
        if isinstance(found, dict) and set(found) == {column.name for column in shape.key}:
            return found
    return None


def _parts(typed: str, shape: TableSchema) -> Sequence[str]:
    parts = typed.split(":")
    if len(parts) == len(shape.key) and all(map(_ESCAPED.fullmatch, parts)):
        return [unquote(part) for part in parts]
    if len(shape.key) == 1:
        return [typed]
    raise UsageError(f"that is no key of {shape.table}: it has {len(shape.key)} columns", hint=_hint(shape))


def _value(part: str, column: Column) -> str:
    try:
        if column.array:
            return part
        if column.kind in INTEGERS:
            return str(int(part))
        if column.kind == "uuid":
            return str(UUID(part))
        if "\0" in part:
            raise ValueError
        form = _FORMS.get(column.kind)
        texts = [part, f"{part}Z", f"{part.replace(' ', 'T', 1)}Z"] if column.kind in _WITHOUT_ZONE else [part]
        found = part if form is None else next((text for text in texts if form.fullmatch(text)), None)
        if found is None:
            raise ValueError
    except ValueError:
        raise UsageError(
            f"that is no key: the column {column.name} takes {column.type}", hint="write it as cdc events prints it"
        ) from None
    return found


def _hint(shape: TableSchema) -> str:
    names = ":".join(column.name for column in shape.key)
    members = ", ".join(f'"{column.name}": …' for column in shape.key)
    return f"write {names}, as the stores do (a colon within is %3A), or '{{{members}}}'"
