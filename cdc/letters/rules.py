"""Sentences about letters, and about the keys whose letters were dropped: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cdc.dead import DeadLetter, Why, waiting
from cdc.letters.ports import ShownRow
from cdc.schema import TableSchema
from cdc.topic import TableName
from cdc.wire.plain import PlainTable


def left_out(letters: Iterable[DeadLetter]) -> Iterator[str]:
    """A sentence for each row that capture put aside for its size: the stores may lack it."""
    for letter in waiting(letters):
        if letter.why is Why.OVERSIZED:
            key = (letter.key or b"").decode(errors="replace")
            yield f"capture left out {letter.topic} {key}: {letter.reason}"


def row_of(letter: DeadLetter, shapes: Mapping[str, TableSchema]) -> tuple[TableSchema, str] | None:
    """The table's shape and the key as stores write it, of a letter that parks one. None where it names no row.

    ``shapes``: topic -> the newest shape of its table.
    """
    shape = shapes.get(letter.topic)
    if shape is None or letter.key is None or not letter.parks:
        return None
    try:
        return shape, PlainTable(shape).key(letter.key)
    except ValueError:
        return None


def shown(sink: str, table: TableName, key: str, stored: ShownRow | None) -> str:
    """A sentence on what the store shows under a key until its next change."""
    if stored is None or stored.row is None:
        return f"{sink} shows no row {key} of {table} until its next change"
    return f"{sink} shows row {key} of {table} as of {stored.pos} until its next change"
