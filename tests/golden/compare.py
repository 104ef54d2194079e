"""Compare two lists of records, value by value, and explain each difference by exactly one rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from tests.golden.lossless import ABSENT, Json, Object, show
from tests.golden.records import Record

OURS_ALONE = ("epoch", "commit_lsn", "tx_seq")
"""D15: at the end of ``source``; their values are tested where they are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place where two records, or a record and nothing, differ. ``path``: ``()`` for a whole record."""

    case: str
    encoding: str
    path: tuple[str, ...]
    expected: Json
    got: Json
    theirs: Record | None
    ours: Record | None

    @property
    def record(self) -> Record:
        found = self.theirs or self.ours
        assert found is not None
        return found

    @property
    def table(self) -> str:
        return self.record.topic.split(".", 1)[1]

    @property
    def column(self) -> str:
        """The column, where the difference lies in a row or a key."""
        return self.path[1 if self.path[0] == "key" else 2] if self.in_row else ""

    @property
    def in_row(self) -> bool:
        in_value = len(self.path) > 2 and self.path[1] in ("before", "after")
        return in_value or (len(self.path) > 1 and self.path[0] == "key")

    def __str__(self) -> str:
        where = ".".join(self.path) or "whole record"
        record = self.record
        return (
            f"{self.case} [{self.encoding}] {record.topic} {record.op or 'tombstone'} {show(record.key)} {where}: "
            f"Debezium {_side(self.theirs, self.expected)} | ours {_side(self.ours, self.got)}"
        )


def _side(record: Record | None, value: Json) -> str:
    return "-" if record is None else show(value)[:300]


@dataclass(frozen=True, slots=True)
class Rule:
    """A difference on purpose: its rule in the wire manual, why, and the narrowest test for it."""

    name: str
    reason: str
    explains: Callable[[Difference], bool]
    encodings: tuple[str, ...] = ("readable", "debezium")
    """Where it is needed; it must be needed in each."""


def differences(case: str, encoding: str, theirs: Sequence[Record], ours: Sequence[Record]) -> Iterator[Difference]:
    """Every difference, records paired by topic, key and operation in their order."""

    def found(path: tuple[str, ...], expected: Json, got: Json, one: Record | None, two: Record | None) -> Difference:
        return Difference(case=case, encoding=encoding, path=path, expected=expected, got=got, theirs=one, ours=two)

    for one, two in _paired(theirs, ours):
        if one is None or two is None:
            yield found((), one.value if one else None, two.value if two else None, one, two)
            continue
        for path, expected, got in _walk(("key",), one.key, two.key):
            yield found(path, expected, got, one, two)
        for path, expected, got in _walk(("value",), one.value, _without_ours(two.value)):
            yield found(path, expected, got, one, two)
        if one.headers != two.headers:
            yield found(("headers",), _headers(one), _headers(two), one, two)


def _paired(theirs: Sequence[Record], ours: Sequence[Record]) -> Iterator[tuple[Record | None, Record | None]]:
    one, two = ([(r.topic, r.op or "", show(r.key)) for r in side] for side in (theirs, ours))
    for tag, a, b, c, d in SequenceMatcher(a=one, b=two, autojunk=False).get_opcodes():
        left, right = theirs[a:b], ours[c:d]
        if tag == "equal" or (tag == "replace" and _kinds(left) == _kinds(right)):
            yield from zip(left, right, strict=True)
        else:
            yield from ((r, None) for r in left)
            yield from ((None, r) for r in right)


def _kinds(records: Sequence[Record]) -> list[tuple[str, str | None]]:
    return [(r.topic, r.op) for r in records]


def _without_ours(value: Json) -> Json:
    if not isinstance(value, Object):
        return value
    source = value.get("source")
    assert isinstance(source, Object)
    assert source.names()[-3:] == OURS_ALONE
    return value.replaced({"source": source.without(*OURS_ALONE)})


def _walk(path: tuple[str, ...], one: Json, two: Json) -> Iterator[tuple[tuple[str, ...], Json, Json]]:
    if isinstance(one, Object) and isinstance(two, Object):
        if one.names() == two.names():
            for (name, left), (_, right) in zip(one.members, two.members, strict=True):
                yield from _walk((*path, name), left, right)
            return
        shared = [n for n in one.names() if n in two.names()]
        if shared == [n for n in two.names() if n in one.names()]:
            for name in shared:
                yield from _walk((*path, name), one.get(name), two.get(name))
            for name in [*one.names(), *two.names()]:
                if name not in shared:
                    yield (*path, name), _member(one, name), _member(two, name)
            return
    if one != two:
        yield path, one, two


def _member(object_: Object, name: str) -> Json:
    return object_.get(name) if name in object_.names() else ABSENT


def _headers(record: Record) -> Json:
    return Object(tuple(record.headers))
