"""Two spools against each other, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cdc.verification.result import Kind
from cdc.verification.spool import Spool
from cdc.wire.format import POS


class KeyDifference(NamedTuple):
    """A key in which the sides differ. ``pos``: the store's position, None where it knows nothing of the key.
    ``twice``: it was read more than once from the store, ``equal``: and each time as the source has it."""

    kind: Kind
    key: str
    pos: str | None
    twice: bool = False
    equal: bool = False


def differences(source: Spool, store: Spool, ceiling: str | None = None) -> Iterator[KeyDifference]:
    """Every key in which the store is not as the source, and every one that either has several rows of. Both spools
    are finished and have as many parts.

    ``ceiling``: the highest position that there was when the store had been read. A key above it is ahead, whatever
    its row is.
    """
    for part in range(source.parts):
        yield from _part_differences(source.part(part), store.part(part), ceiling)


def row_count(spool: Spool) -> int:
    """Distinct keys with a row. A store may show a key twice while it is written to."""
    return sum(
        pc.count_distinct(table.filter(pc.is_valid(table["digest"]))["key"]).as_py()
        for table in (spool.part(part) for part in range(spool.parts))
    )


def _part_differences(source: Any, store: Any, ceiling: str | None) -> Iterator[KeyDifference]:
    shared = _twice(source)
    yield from (KeyDifference(Kind.SHARED, key, None) for key in shared)
    if shared:
        source, store = (_without(one, shared) for one in (source, store))
    stored = store.rename_columns(["key", "stored", "stored_pos"])
    joined = source.drop_columns([POS]).join(stored, keys="key", join_type="full outer")
    # Equal digests are equal rows, and two nulls are a row that neither side has.
    same = pc.fill_null(pc.equal(joined["digest"], joined["stored"]), False)
    neither = pc.and_(pc.is_null(joined["digest"]), pc.is_null(joined["stored"]))
    equal: Any = pc.or_(same, neither)
    if ceiling is not None:
        positions: Any = joined["stored_pos"]
        equal = pc.and_(equal, pc.invert(pc.fill_null(pc.greater(positions, pa.scalar(ceiling)), False)))
    twice = _twice(store)
    found: dict[str, KeyDifference] = {}
    for row in joined.filter(pc.invert(equal)).to_pylist():
        difference = difference_of(row["key"], row["digest"], row["stored"], row["stored_pos"], ceiling)
        if row["key"] not in twice:
            yield difference
        elif row["key"] not in found or difference.kind is Kind.AHEAD:
            found[row["key"]] = difference._replace(twice=True)
    for key in twice - found.keys():
        found[key] = KeyDifference(Kind.STALE, key, "", twice=True, equal=True)
    yield from found.values()


def _without(rows: Any, keys: set[str]) -> Any:
    return rows.filter(pc.invert(pc.is_in(rows["key"], pa.array(sorted(keys), pa.string()))))


def _twice(store: Any) -> set[str]:
    """The keys of which a side gave more than one live row."""
    counted = store.filter(pc.is_valid(store["digest"])).group_by("key").aggregate([([], "count_all")])
    several: Any = pc.greater(counted["count_all"], pa.scalar(1))
    return set(counted.filter(several)["key"].to_pylist())


def difference_of(key: str, source: object, store: object, pos: str | None, ceiling: str | None) -> KeyDifference:
    """A difference, from what each side has (None: nothing) and the store's position."""
    if ceiling is not None and pos is not None and pos > ceiling:
        return KeyDifference(Kind.AHEAD, key, pos)
    return KeyDifference(kind_of(source, store), key, pos)


def kind_of(source: object | None, store: object | None) -> Kind:
    """The kind of a difference, from what each side has (None: nothing)."""
    if source is None:
        return Kind.EXTRA
    return Kind.MISSING if store is None else Kind.STALE
