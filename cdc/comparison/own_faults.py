"""The faults of our records by themselves: Debezium's have no position and no header to compare with ours.

Stores take the newest record of a key by its position. Where a position does not rise no store applies the change,
however right its values are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc.comparison.commit_window import position_of
from cdc.comparison.compared_record import NO_FACTS, ComparedRecord, Facts
from cdc.comparison.differences import RecordDifference
from cdc.comparison.lossless import ABSENT, show
from cdc.position import Position
from cdc.wire.format import HEADERS, POS, TRUNCATE_OP


def own_faults(encoding: str, topic: Sequence[ComparedRecord], facts: Facts) -> Iterator[RecordDifference]:
    """Headers that are missing, positions that cannot be read, and positions not above the one before of their key.

    ``topic``: one table's whole topic, partition by partition.
    """

    def fault(record: ComparedRecord, where: str, name: str) -> RecordDifference:
        got = dict(record.headers).get(name, ABSENT)
        known = facts.get(record.table, NO_FACTS)
        return RecordDifference(
            encoding=encoding, path=(where,), expected=ABSENT, got=got, theirs=None, ours=record, facts=known
        )

    newest: dict[tuple[int, str], Position] = {}
    floors: dict[int, Position] = {}
    for record in topic:
        headers = dict(record.headers)
        yield from (fault(record, f"header {name}", name) for name in HEADERS if name not in headers)
        partition, position = record.place[0], position_of(record)
        if position is None:
            if POS in headers:
                yield fault(record, "header pos is no position", POS)
            continue
        key = partition, show(record.key)
        below = [known for known in (newest.get(key), floors.get(partition)) if known is not None]
        if below and position <= max(below):
            yield fault(record, f"header pos is not above {max(below).text()}", POS)
        newest[key] = max(position, newest.get(key, position))
        if record.op == TRUNCATE_OP:
            floors[partition] = position
