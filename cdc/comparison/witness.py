"""The witness where Debezium's value decides nothing: the source's row as it is now, or our key's record before.

The row now is that of a record only if the record is the last of its key, so the others stay undecided and are counted
so. An unchanged TOAST value has to be the one that the record before of its key has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from cdc.comparison.compared_record import ComparedRecord
from cdc.comparison.differences import RecordDifference, undecided
from cdc.comparison.lossless import ABSENT, UNKNOWN, Json, Object, UnknownValue, show
from cdc.comparison.pairing import Told
from cdc.comparison.rules import RULES, is_unchanged_toast
from cdc.wire.format import UNAVAILABLE

Place = tuple[int, int]


class Witness(Protocol):
    """Reads the source."""

    def rows(self, records: Sequence[ComparedRecord]) -> Mapping[Place, Json]:
        """place -> the source's row as it would be written, None where it has none.

        Only for those of these records of ours that are the last of their key and that nothing has changed since.
        """


class Context:
    """The facts about one record that other records of its table give."""

    def __init__(self, theirs: Told, ours: Told) -> None:
        self._theirs, self._ours = _by_change(theirs), _by_change(ours)
        self._changes = {id(record): change[:3] for told in (theirs, ours) for record, change in told.records}
        self._before: dict[Place, Json] = {}
        self._last: dict[str, ComparedRecord] = {}
        for record, _ in ours.records:
            key = show(record.key)
            if key in self._last:
                self._before[record.place] = self._last[key].after
            self._last[key] = record

    def of(self, difference: RecordDifference) -> RecordDifference:
        """The difference with what the records around it say."""
        if difference.path == ():
            others = self._ours if difference.ours is None else self._theirs
            beside = others.get(self._changes.get(id(difference.record), ()), ())
            return replace(difference, beside=tuple(beside))
        if is_unchanged_toast(difference) and difference.ours is not None and difference.got != UNAVAILABLE:
            return replace(difference, before=_member(self._before.get(difference.ours.place), difference.path[2:]))
        return difference

    def last(self, difference: RecordDifference) -> ComparedRecord | None:
        """Our record that the source's row decides about: of a whole record that is missing, the last of its key."""
        if difference.path in ((), ("order",)):
            return self._last.get(show(difference.record.key))
        return difference.ours


def witnessed(found: Sequence[RecordDifference], context: Context, witness: Witness) -> list[RecordDifference]:
    """The differences, with the source's value where it decides."""
    asked = [last for d in found if undecided(RULES, d) and (last := context.last(d)) is not None]
    rows = witness.rows(asked) if asked else {}
    return [_decided(d, context, rows) for d in found]


def _decided(d: RecordDifference, context: Context, rows: Mapping[Place, Json]) -> RecordDifference:
    last = context.last(d) if undecided(RULES, d) else None
    if last is None or last.place not in rows:
        return d
    row = rows[last.place]
    if d.path in ((), ("order",)):
        return replace(d, source=d.got if last.after == row else ABSENT)
    return replace(d, source=_member(row, d.path[2:]))


def _by_change(told: Told) -> Mapping[tuple[object, ...], list[ComparedRecord]]:
    found: dict[tuple[object, ...], list[ComparedRecord]] = {}
    for record, change in told.records:
        found.setdefault(change[:3], []).append(record)
    return found


def _member(row: Json, path: Iterable[str]) -> Json | UnknownValue:
    """The value at a path in a row. UNKNOWN where there is none, or only a placeholder of ours."""
    for name in path:
        if not isinstance(row, Object) or name not in row.names():
            return UNKNOWN
        row = row.get(name)
    return UNKNOWN if row == UNAVAILABLE else row
