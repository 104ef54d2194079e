"""Rows that lack values, made whole a portion at a time: what the store holds may be far larger than the records.

An update of some bytes lacks the value beside it that did not change, of 100 kB or of 100 MB. So stored rows are read
some at a time, by the size of those before them, and each portion is written and freed before the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa

from cdc.schema import TableSchema
from cdc.wire.format import POS
from cdc.wire.unavailable import missing
from sinks.arrow import pc
from sinks.batch import Event
from sinks.batch_plan import Readable, TableBatch, event_rows, reason
from sinks.missing_values import Unheld, fill_from_earlier, fill_from_stored, patterns
from sinks.newest import ordered_mask
from sinks.port import READ_BYTES, Refused, StoredRow

Stored = Callable[[TableSchema, Sequence[str]], Mapping[str, StoredRow]]
PORTION_BYTES = 4 * READ_BYTES
"""About as many bytes of stored rows are in memory at once."""
_FIRST_ROWS, _MOST_ROWS, _GROWTH = 64, 1_000, 8
"""How many stored rows are asked for at first, at most, and more than those before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """A part of a batch, each row whole. ``stale``: how many rows the store has newer already, or needs not."""

    batch: TableBatch
    stale: int = 0
    refused: tuple[Refused, ...] = ()


@dataclass(slots=True)
class Filler:
    """Fills the rows of batches from earlier events and from what the store holds.

    ``stored``: what the store holds for some keys. ``row_bytes``: topic -> how large the last rows were that were read,
    kept by the caller from batch to batch.
    """

    stored: Stored
    row_bytes: dict[str, int] = field(default_factory=dict)

    def portions(self, readable: Readable) -> Iterator[Portion]:
        """All of a batch: first what lacks nothing, then the others by the bytes that the store holds for them."""
        batch = readable.batch
        lacking = _lacking(batch)
        if not lacking:
            yield Portion(batch=batch)
            return
        if len(lacking) < len(batch):
            lacks = set(lacking)
            yield Portion(batch=batch.of([number for number in range(len(batch)) if number not in lacks]))
        histories = _histories(batch, readable.every, lacking)
        for numbers, stored_rows in self._portions(batch, lacking):
            yield _filled(batch.of(numbers), [histories[number] for number in numbers], stored_rows)

    def _portions(self, batch: TableBatch, lacking: Sequence[int]) -> Iterator[tuple[list[int], dict[str, StoredRow]]]:
        """Numbers of rows, with what the store has for them, a portion at a time."""
        topic, at = batch.schema.topic, 0
        most = _MOST_ROWS if topic in self.row_bytes else _FIRST_ROWS
        numbers: list[int] = []
        stored_rows: dict[str, StoredRow] = {}
        left = PORTION_BYTES
        while at < len(lacking):
            row_bytes = self.row_bytes.get(topic, 0)
            some = lacking[at : at + max(1, min(most, left // max(1, row_bytes)))]
            found = self.stored(batch.schema, [batch.keys[number] for number in some])
            sizes = [len(row.row or b"") for row in found.values()]
            # Large rows are not forgotten at once: the next ones may be as large.
            self.row_bytes[topic] = max([row_bytes // 2, *sizes])
            at, most, left = at + len(some), min(_MOST_ROWS, _GROWTH * len(some)), left - sum(sizes)
            numbers, stored_rows = [*numbers, *some], {**stored_rows, **found}
            if left < PORTION_BYTES // 4:
                yield numbers, stored_rows
                numbers, stored_rows, left = [], {}, PORTION_BYTES
        if numbers:
            yield numbers, stored_rows


def _filled(batch: TableBatch, histories: Sequence[Sequence[Event]], stored_rows: Mapping[str, StoredRow]) -> Portion:
    """Rows with their unavailable values filled. Rows that cannot be filled are refused."""
    filled: dict[int, dict[str, Any]] = {}
    bad: dict[int, str] = {}
    behind: dict[int, str] = {}
    for number, history in enumerate(histories):
        before = stored_rows.get(batch.keys[number])
        if before is not None and before.pos > batch.pos[number]:
            behind[number] = ""
            continue
        try:
            found = fill_from_earlier(history, batch.schema)
            older = before.row if before is not None and found.from_store else None
            filled[number] = fill_from_stored(found.row, older, batch.plain)
        except Unheld:
            behind[number] = ""
        except ValueError as error:
            bad[number] = reason(error)
    kept, _ = replace(batch, filled=filled).without({**bad, **behind})
    return Portion(batch=kept, stale=len(behind), refused=batch.refused(bad))


def _lacking(batch: TableBatch) -> list[int]:
    """Numbers of the rows that lack a value."""
    lacking: set[int] = set()
    for pattern in patterns(batch.schema):
        suspects = [number for number, row in enumerate(batch.rows) if row is not None and pattern in row]
        lacking.update(number for number in suspects if _lacks(batch.rows[number], batch.schema))
    return sorted(lacking)


def _lacks(row: bytes | None, schema: TableSchema) -> bool:
    try:
        after = orjson.loads(row or b"")
    except orjson.JSONDecodeError:
        return False
    return isinstance(after, dict) and bool(missing(after, schema))


def _histories(batch: TableBatch, every: pa.Table, lacking: Sequence[int]) -> dict[int, list[Event]]:
    """All events of the batch of the keys that lack a value, oldest first, up to the newest."""
    keys = batch.events["key"].take(lacking)
    same_topic = pc.equal(every["topic"], batch.schema.topic)
    wanted = every.filter(pc.and_(pc.fill_null(same_topic, False), pc.is_in(every["key"], value_set=pc.unique(keys))))
    by_key: dict[bytes | None, list[Event]] = {}
    for event in event_rows(wanted.filter(ordered_mask(wanted[POS]))):
        by_key.setdefault(event.key, []).append(event)
    for history in by_key.values():
        history.sort(key=lambda event: (event.pos or "", event.offset))
    return {number: by_key[key] for number, key in zip(lacking, keys.to_pylist(), strict=True)}
