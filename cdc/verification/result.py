"""The findings of a verification, per store and table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cdc.record.position import Lsn
from cdc.record.topic_names import TableName

SHOWN_KEYS = 5
KEPT_KEYS = 200_000
"""Differing keys of one store and table that one repair takes."""


class Kind(StrEnum):
    """How a store differs from the source in one key."""

    MISSING = "missing"
    """The source has the row, the store has not."""
    EXTRA = "extra"
    """The store has a row that the source has not."""
    STALE = "stale"
    """Both have the row, with other values."""
    AHEAD = "ahead"
    """The store has the key at a position that the source has not reached: it would ignore every later change."""
    SHARED = "shared"
    """Several rows of the source have the key. A store holds one of them at most, and no repair writes any."""


@dataclass(slots=True, kw_only=True)
class StoreVerdict:
    """One store and one table. ``undecided``: keys that changed at every pass, so that none could decide.

    ``source_rows`` and ``store_rows`` are of the last pass over every row: rows of the source, keys of the store.
    ``keys`` holds the first few of each kind, ``differing`` many of those that a repair writes, and ``positions`` those
    of the keys that the store has: an empty text for one that somebody else put there without any.
    """

    sink: str
    table: TableName
    source_rows: int = 0
    store_rows: int = 0
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    keys: dict[Kind, list[str]] = field(default_factory=lambda: {kind: [] for kind in Kind})
    undecided: int = 0
    differing: list[str] = field(default_factory=list)
    positions: dict[str, str] = field(default_factory=dict)
    ahead: set[str] = field(default_factory=set)

    def add(self, kind: Kind, key: str, pos: str | None = None) -> None:
        """Count one key, which the store has at a position."""
        self.counts[kind] += 1
        if len(self.keys[kind]) < SHOWN_KEYS:
            self.keys[kind].append(key)
        if kind is not Kind.SHARED and len(self.differing) < KEPT_KEYS:
            self.differing.append(key)
            if pos is not None:
                self.positions[key] = pos
            if kind is Kind.AHEAD:
                self.ahead.add(key)

    def restart(self, *, source_rows: int, store_rows: int) -> None:
        """Forget what was counted: every row is compared again."""
        self.source_rows, self.store_rows = source_rows, store_rows
        self.counts = dict.fromkeys(Kind, 0)
        self.keys = {kind: [] for kind in Kind}
        self.differing.clear()
        self.positions.clear()
        self.ahead.clear()

    @property
    def differences(self) -> int:
        """How many keys differ, of every kind."""
        return sum(self.counts.values())

    def document(self) -> dict[str, Any]:
        """As ``cdc verify --json`` prints it."""
        return {
            "sink": self.sink,
            "table": str(self.table),
            "source_rows": self.source_rows,
            "store_rows": self.store_rows,
            **{kind.value: count for kind, count in self.counts.items()},
            "undecided": self.undecided,
            "keys": {kind.value: keys for kind, keys in self.keys.items() if keys},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationReport:
    """All verdicts. ``fence``: the LSN of the last cut that was needed. ``looks``: how many there were.
    ``not_compared``: tables of which the log lacks changes,
    each with the reason. ``left_out``: the same of those that never can be compared, which is no fault of anybody's.
    ``columns_left_out``: table -> column -> why it was not compared."""

    verdicts: list[StoreVerdict]
    fence: int
    looks: int
    not_compared: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    columns_left_out: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def reached(self) -> str:
        """The LSN that the source was compared at, as text."""
        return str(Lsn(self.fence))

    @property
    def differences(self) -> int:
        """How many keys differ, over all stores and tables."""
        return sum(verdict.differences for verdict in self.verdicts)

    @property
    def undecided(self) -> int:
        """How many keys changed at every pass, so that none could decide."""
        return sum(verdict.undecided for verdict in self.verdicts)

    def document(self) -> dict[str, Any]:
        """As ``cdc verify --json`` prints it."""
        return {
            "fence": self.reached,
            "looks": self.looks,
            "differences": self.differences,
            "undecided": self.undecided,
            "not_compared": dict(self.not_compared),
            "left_out": dict(self.left_out),
            "columns_not_compared": {table: dict(found) for table, found in self.columns_left_out.items()},
            "tables": [verdict.document() for verdict in self.verdicts],
        }
