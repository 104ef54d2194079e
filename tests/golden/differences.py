"""Compare pairs of records, value by value: every place where they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from cdc.record.schema import Column
from cdc.wire.format import AFTER, BEFORE, UNAVAILABLE
from tests.golden.compared_record import NO_FACTS, ComparedRecord, Facts, TableHistory
from tests.golden.lossless import ABSENT, Json, Object, show

Pair = tuple[ComparedRecord | None, ComparedRecord | None]
"""Debezium's record and ours. None where one side has none."""
_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDifference:
    """One place where two records, or a record and nothing, differ. ``path``: ``()`` for a whole record.

    ``expected`` is Debezium's value, ``got`` ours. ABSENT where a member does not stand.
    """

    encoding: str
    path: tuple[str, ...]
    expected: Json
    got: Json
    theirs: ComparedRecord | None
    ours: ComparedRecord | None
    facts: TableHistory = NO_FACTS

    @property
    def record(self) -> ComparedRecord:
        """The record that differs: Debezium's, or ours where Debezium has none."""
        found = self.theirs or self.ours
        assert found is not None
        return found

    @property
    def table(self) -> str:
        """The record's table."""
        return self.record.table

    @property
    def column(self) -> Column | None:
        """The column, where the difference lies in a row or a key."""
        return self.facts.column(self.path[1 if self.path[0] == "key" else 2]) if self.in_row else None

    @property
    def in_row(self) -> bool:
        """Whether a column of the key or of a row differs, and not the envelope around it."""
        in_value = len(self.path) > 2 and self.path[1] in (BEFORE, AFTER)
        return in_value or (len(self.path) > 1 and self.path[0] == "key")

    @property
    def old_row(self) -> bool:
        """Whether it lies in the row before the change."""
        return self.path[:2] == ("value", BEFORE)

    def __str__(self) -> str:
        where = ".".join(self.path) or "whole record"
        record = self.record
        return (
            f"{record.table} {record.op or 'tombstone'} {show(record.key)} {where}: "
            f"Debezium {_side(self.theirs, self.expected)} | ours {_side(self.ours, self.got)}"
        )


def _side(record: ComparedRecord | None, value: Json) -> str:
    return "-" if record is None else show(value)[:_SHOWN]


@dataclass(frozen=True, slots=True)
class Rule:
    """A difference on purpose: its rule in the wire manual, why, and the narrowest test for it."""

    name: str
    reason: str
    explains: Callable[[RecordDifference], bool]
    encodings: tuple[str, ...] = ("readable", "debezium")
    """Where it is needed."""


def differences(encoding: str, pairs: Iterable[Pair], facts: Facts) -> Iterator[RecordDifference]:
    """Every difference of these pairs, in their order."""
    for one, two in pairs:
        record = one or two
        assert record is not None
        known = facts.get(record.table, NO_FACTS)
        for path, expected, got in _of_pair(one, two):
            yield RecordDifference(
                encoding=encoding, path=path, expected=expected, got=got, theirs=one, ours=two, facts=known
            )


def explained_by(rules: Sequence[Rule], difference: RecordDifference) -> list[str]:
    """Names of the rules that explain it. None for a fault of one of the two."""
    return [r.name for r in rules if difference.encoding in r.encodings and r.explains(difference)]


Place = tuple[tuple[str, ...], Json, Json]


def _of_pair(one: ComparedRecord | None, two: ComparedRecord | None) -> Iterator[Place]:
    if one is None or two is None:
        yield (), one.value if one else None, two.value if two else None
        return
    yield from _walk(("key",), one.key, two.key)
    yield from _walk(("value",), one.value, two.value)
    if one.headers != two.headers:
        yield from _walk(("headers",), Object(one.headers), Object(two.headers))


def _walk(path: tuple[str, ...], one: Json, two: Json) -> Iterator[Place]:
    if isinstance(one, Object) and isinstance(two, Object):
        if one.names() == two.names():
            for (name, left), (_, right) in zip(one.members, two.members, strict=True):
                yield from _walk((*path, name), left, right)
            return
        shared = [n for n in one.names() if n in two.names()]
        if shared == [n for n in two.names() if n in one.names()]:
            for name in shared:
                yield from _walk((*path, name), one.get(name), two.get(name))
            for name in dict.fromkeys((*one.names(), *two.names())):
                if name not in shared:
                    yield (*path, name), _member(one, name), _member(two, name)
            return
    if one != two or (one == UNAVAILABLE and path[:2] == ("value", AFTER)):
        # Where both have a placeholder ours lacks the value all the same, if the source has it.
        yield path, one, two


def _member(object_: Object, name: str) -> Json:
    return object_.get(name) if name in object_.names() else ABSENT
