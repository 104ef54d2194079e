"""Pair the records of two captures of the same changes.

A change is known by where it stands in the source's log: transaction, LSN of the record, operation, key. Records of one
statement can share an LSN, so equal ones pair in their order. The records left over are paired without their keys,
because a key may differ on purpose. A tombstone belongs to the delete before it, a row of a snapshot to its key.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence

from cdc.comparison.compared_record import NO_FACTS, ComparedRecord, Facts
from cdc.comparison.differences import Pair, RecordDifference
from cdc.comparison.lossless import Json, LosslessNumber, Object, show
from cdc.wire.format import AFTER, DELETE_OP, READ_OP

Change = tuple[Hashable, ...]
_TOMBSTONE = "tombstone"


class Told:
    """Records of one side, each with its change, in the order of their partitions."""

    def __init__(self, records: Iterable[ComparedRecord]) -> None:
        self.records: list[tuple[ComparedRecord, Change]] = []
        deleted: dict[tuple[str, int], tuple[str, Change]] = {}
        for record in records:
            key, where = show(record.key), (record.table, record.place[0])
            source = record.source
            if source is None:
                last = deleted.get(where)
                of = last[1] if last is not None and last[0] == key else ()
                self.records.append((record, (*of, _TOMBSTONE)))
                continue
            change: Change
            if record.snapshot:
                change = (record.table, READ_OP)
            else:
                change = (record.table, _text(source.get("txId")), _text(source.get("lsn")), record.op)
            if record.op == DELETE_OP:
                deleted[where] = (key, change)
            self.records.append((record, change))


def paired(theirs: Told, ours: Told) -> Iterator[Pair]:
    """Every record of both sides once, alone where the other side has none: Debezium's order, then ours alone."""
    left_one, left_two = theirs.records, ours.records
    partner: dict[int, ComparedRecord] = {}
    taken: set[int] = set()
    for of in (_with_key, _without_key):
        waiting: dict[Change, deque[int]] = defaultdict(deque)
        for at, (record, change) in enumerate(left_two):
            if at not in taken:
                waiting[of(record, change)].append(at)
        for at, (record, change) in enumerate(left_one):
            queue = waiting.get(of(record, change)) if at not in partner else None
            if queue:
                found = queue.popleft()
                partner[at] = left_two[found][0]
                taken.add(found)
    for at, (record, _) in enumerate(left_one):
        yield record, partner.get(at)
    yield from ((None, record) for at, (record, _) in enumerate(left_two) if at not in taken)


def out_of_order(encoding: str, pairs: Sequence[Pair], facts: Facts) -> Iterator[RecordDifference]:
    """Pairs in another partition, though their keys are the same bytes, or in another order within a key."""

    def made(
        path: tuple[str, ...], one: ComparedRecord, two: ComparedRecord, numbers: tuple[int, int]
    ) -> RecordDifference:
        expected, got = (LosslessNumber(str(number)) for number in numbers)
        known = facts.get(two.table, NO_FACTS)
        return RecordDifference(
            encoding=encoding, path=path, expected=expected, got=got, theirs=one, ours=two, facts=known
        )

    newest: dict[tuple[str, str], tuple[int, int]] = {}
    for one, two in sorted((p for p in pairs if p[0] and p[1]), key=lambda p: p[1].place if p[1] else (0, 0)):
        if one is None or two is None or one.key != two.key:
            continue
        if one.place[0] != two.place[0]:
            yield made(("partition",), one, two, (one.place[0], two.place[0]))
        elif one.place < newest.get((two.table, show(two.key)), one.place):
            yield made(("order",), one, two, (one.place[1], two.place[1]))
        newest[two.table, show(two.key)] = one.place


def _with_key(record: ComparedRecord, change: Change) -> Change:
    return (*change, show(record.key))


def _without_key(record: ComparedRecord, change: Change) -> Change:
    """A row of a snapshot is then known by what else is in it."""
    after = record.value.get(AFTER) if isinstance(record.value, Object) else None
    if change[-1] != READ_OP or not isinstance(after, Object):
        return change
    names = record.key.names() if isinstance(record.key, Object) else ()
    return (*change, show(after.without(*names)))


def _text(value: Json) -> str:
    return value.text if isinstance(value, LosslessNumber) else show(value)
