"""Pair the records of a golden file with ours: no LSN is left in them, so by kind and key in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from tests.golden.compared_record import ComparedRecord, Facts
from tests.golden.differences import RecordDifference, differences
from tests.golden.lossless import show


def golden_differences(
    encoding: str, theirs: Sequence[ComparedRecord], ours: Sequence[ComparedRecord], facts: Facts
) -> Iterator[RecordDifference]:
    """Every difference, records paired by table, key and operation in their order."""
    return differences(encoding, _paired(theirs, ours), facts)


def _paired(
    theirs: Sequence[ComparedRecord], ours: Sequence[ComparedRecord]
) -> Iterator[tuple[ComparedRecord | None, ComparedRecord | None]]:
    one, two = ([(r.table, r.op or "", show(r.key)) for r in side] for side in (theirs, ours))
    for tag, a, b, c, d in SequenceMatcher(a=one, b=two, autojunk=False).get_opcodes():
        left, right = theirs[a:b], ours[c:d]
        if tag == "equal" or (tag == "replace" and _kinds(left) == _kinds(right)):
            yield from zip(left, right, strict=True)
        else:
            yield from ((r, None) for r in left)
            yield from ((None, r) for r in right)


def _kinds(records: Sequence[ComparedRecord]) -> list[tuple[str, str | None]]:
    return [(r.table, r.op) for r in records]
