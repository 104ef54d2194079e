"""The rule for which of two values wins: the newest record of each key, by ``(pos, offset)``.

A million events in a fraction of a second on one core: whole columns at a time, no Python object per row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc.wire.format import OP, POS, ROW_OPS
from sinks.contract.batch import FLOOR_OP, Column, Mask, all_true, conform, joined, mask_of, pc

POS_CHARS = 32
_WORDS = POS_CHARS // 8
_LARGE_BYTES = 1 << 30
"""Above this a column's bytes might not fit one array of 32-bit offsets."""
_HEX = np.zeros(256, dtype=np.bool_)
_HEX[list(b"0123456789abcdef")] = True
_ZERO, _SEVEN = ord("0"), ord("7")
_ZEROS = (0, 1, 2, 3, 4, 5, 8, 9)
"""Digits that are zero in every position that a store can hold: an epoch of up to 127, an LSN of 56 bits."""


def newest(events: pa.Table | pa.RecordBatch) -> pa.Table:
    """The events of a batch that decide, in no promised order. ``newest(newest(x))`` is ``newest(x)``.

    Of the rows, one per (topic, key): the one with the greatest ``(pos, offset)``, which for two chunk rows read
    at the same P is the later one. A delete counts like any row. Kept apart, every one: floor
    records (op ``t``; a sweep waits for the mark of each partition) and records that have no order
    (no key, an unknown op, a ``pos`` that is not 32 lower-case hex digits or too large), for the sink to refuse.
    """
    table = conform(events)
    if table.num_rows < 2:
        return table
    rows = rows_mask(table)
    everything_is_a_row = all_true(rows)
    ordered = table if everything_is_a_row else table.filter(rows)
    apart = None if everything_is_a_row else table.filter(pc.invert(rows))
    winning = _winning(ordered)
    # A filter works chunk by chunk. A take would join them, and 2 GB of values do not fit one array.
    kept = ordered if bool(winning.all()) else ordered.filter(mask_of(winning))
    return kept if apart is None else pa.concat_tables([kept, apart])


def rows_mask(events: pa.Table) -> Mask:
    """True for each record that is a row's change with a place in the order. Never null."""
    known = pc.fill_null(pc.is_in(events[OP], value_set=pa.array(ROW_OPS)), False)
    return pc.and_(pc.and_(known, pc.is_valid(events["key"])), ordered_mask(events[POS]))


def out_of_range(pos: str) -> bool:
    """Whether a position is none that a store can hold: an epoch above 127, or an LSN of more than 56 bits.

    >>> out_of_range("0000008000000000016b3d4800000003"), out_of_range("0000007f00000000016b3d4800000003")
    (True, False)
    """
    return any(pos[number] != "0" for number in _ZEROS) or pos[6] > "7"


def floors_mask(events: pa.Table) -> Mask:
    """True for each floor record with a place in the order. Never null."""
    known = pc.fill_null(pc.equal(events[OP], FLOOR_OP), False)
    return pc.and_(pc.and_(known, pc.is_valid(events["key"])), ordered_mask(events[POS]))


def ordered_mask(pos: Column) -> Mask:
    """True where ``pos`` is 32 lower-case hex digits, so that its text compares as the position does, and not
    :func:`out_of_range`."""
    long_enough = pc.fill_null(pc.equal(pc.binary_length(pos), POS_CHARS), False)
    if not all_true(long_enough):
        text = pc.if_else(long_enough, pos, "0" * POS_CHARS)
        return pc.and_(long_enough, ordered_mask(text))
    digits = _characters(pos)
    small = (digits[:, _ZEROS] == _ZERO).all(axis=1) & (digits[:, 6] <= _SEVEN)
    return pa.chunked_array([mask_of(np.asarray(_HEX[digits].all(axis=1) & small))])


def _winning(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """True for the newest row of each (topic, key)."""
    codes = _codes(rows)
    order = _ascending(rows)
    last = np.full(int(codes.max()) + 1 if len(codes) else 0, -1, dtype=np.int64)
    # Of repeated indices numpy keeps the last assignment: the greatest in the order.
    last[codes[order]] = order
    winning = np.zeros(rows.num_rows, dtype=np.bool_)
    winning[last[last >= 0]] = True
    return winning


def _codes(rows: pa.Table) -> npt.NDArray[np.int64]:
    """A number for each row, equal exactly where topic and key are."""
    keys = _dictionary_codes(rows["key"])
    topics = _dictionary_codes(rows["topic"])
    span = int(keys.max()) + 1 if len(keys) else 1
    combined = topics * span + keys
    if len(combined) and int(topics.max()) * span > 8 * len(combined):
        codes: npt.NDArray[np.int64] = np.unique(combined, return_inverse=True)[1].astype(np.int64)
        return codes
    return combined


def _dictionary_codes(column: Column) -> npt.NDArray[np.int64]:
    # Joined first: over many chunks each would carry its own dictionary, to be unified for far more.
    keys = joined(column.cast(pa.large_binary()) if column.nbytes > _LARGE_BYTES else column)
    encoded = pc.dictionary_encode(keys, null_encoding="encode")
    codes: npt.NDArray[np.int64] = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _ascending(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Row numbers ordered by (pos, offset). Rows that are equal in both stay in their order."""
    words = _characters(rows[POS]).view(">u8")
    offsets = rows["offset"].combine_chunks().to_numpy(zero_copy_only=False)
    # Most of a position is the same all through a batch: a column that does not vary orders nothing.
    columns: list[npt.NDArray[np.uint64]] = [
        offsets.astype(np.uint64),
        *(words[:, word].astype(np.uint64) for word in reversed(range(_WORDS))),
    ]
    varying = [column for column in columns if len(column) and (column != column[0]).any()]
    if not varying:
        return np.arange(rows.num_rows)
    return np.lexsort(varying)


def _characters(pos: Column) -> npt.NDArray[np.uint8]:
    """The digits' bytes as (n, 32). Every value is 32 bytes long."""
    if len(pos) == 0:
        return np.empty((0, POS_CHARS), dtype=np.uint8)
    array = joined(pos)
    _, offsets, data = array.buffers()
    first = int(np.frombuffer(offsets, dtype=np.int32, count=1, offset=4 * array.offset)[0])
    flat = np.frombuffer(data, dtype=np.uint8, count=POS_CHARS * len(array), offset=first)
    return flat.reshape(len(array), POS_CHARS)
