"""The manifest of a view's state in tables: which version of each table counts, and all that is known beside them.

A batch writes new versions of its tables, and then one manifest. The manifest alone is the commit. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from cdc.errors import ConfigError
from cdc.stored import FIRST, FORMAT, read_members, reading, record_of
from cdc.views.fences import BEFORE_ALL, Fence
from cdc.views.state_reach import Bound, Reached

_FORMAT = 2
_SOUND_FROM = 2
"""Of 1 were those whose files a faulty join had taken away: rows that were gone were live again (H258)."""
_ABOUT = "the manifest of a view's state, which may be deleted,"
NONE_DUE, KEYS_DUE, ALL_DUE = "", "keys", "all"
"""Of which documents it waits to be published: none, those of the table of keys, or all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewManifest:
    """``turn``: grows with each manifest. ``versions``: of each table. ``older``: those of the manifest before.

    ``due``: of which documents it waits to be published. ``waiting``: how many keys. ``below``: up to there they are as
    published. ``parked``: names of keys to why they are not published, and up to where they are as published.
    ``lost``: by table the keys of rows of which a value is not known, each with up to where it was. ``buckets``: of
    each table. ``format``: that it was begun with.
    """

    reached: Reached
    buckets: int
    turn: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)
    older: Mapping[str, int] = field(default_factory=dict)
    due: str = NONE_DUE
    waiting: int = 0
    below: Fence = BEFORE_ALL
    parked: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    lost: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    format: int = _FORMAT

    @property
    def sound(self) -> bool:
        """Whether no version of Headrace that may have lost rows has written to this state."""
        return self.format >= _SOUND_FROM

    def to_json(self) -> str:
        """:meth:`from_json` reads it back."""
        members = {name: getattr(self, name) for name in self.__slots__ if name not in ("reached", "below")}
        said = {FORMAT: self.format, "reached": self.reached.to_json(), "below": list(self.below)}
        return orjson.dumps(members | said).decode()

    @classmethod
    def from_json(cls, text: str) -> ViewManifest:
        """Read :meth:`to_json` back. NewerError and DamagedError as every stored document."""
        members = read_members(text, _ABOUT, _FORMAT)
        with reading(_ABOUT):
            reached = Reached.from_json(str(members["reached"]))
            epoch, lsn = members["below"]
            facts: dict[str, Any] = asdict(record_of(_Facts, members, _ABOUT))
            began = int(members.get(FORMAT, FIRST))
            return cls(reached=reached, below=Fence(int(epoch), int(lsn)), format=began, **facts)

    @property
    def claim(self) -> Fence:
        """Up to which fence everything is published, once nothing is due."""
        kept = [Fence(epoch, lsn) for _, epoch, lsn in self.parked.values()]
        kept += [Fence(*below) for of_table in self.lost.values() for below in of_table.values()]
        return min([self.reached.fence, *kept])

    def due_sweep(self, topic_claim: Fence) -> Fence | None:
        """As :meth:`cdc.views.state_reach.Reached.due_sweep` has it, once nothing is due."""
        return self.reached.due_sweep(self.claim, topic_claim)

    def lost_after(self, said: Iterable[Sequence[Any]]) -> dict[str, dict[str, tuple[int, int]]]:
        """``lost`` behind a batch. ``said``: table, key, and up to where the row was known, None for one that is known.
        Earlier notes stay."""
        found = {table: dict(rows) for table, rows in self.lost.items()}
        for table, key, below in said:
            rows, name = found.setdefault(table, {}), orjson.dumps(key).decode()
            if below is None:
                rows.pop(name, None)
            else:
                rows.setdefault(name, (below[0], below[1]))
        return {table: rows for table, rows in found.items() if rows}

    def published_but(self, done: Iterable[str], parked: Iterable[Sequence[Any]]) -> ViewManifest:
        """The manifest once documents are published. ``done``: their keys. ``parked``: keys of those that cannot be,
        each with why."""
        left = dict(self.parked)
        for name in done:
            left.pop(name, None)
        for name, reason in parked:
            _, *below = left.get(name, ("", *self.below))
            left[name] = (reason, below[0], below[1])
        return replace(self, parked=left)

    @property
    def held(self) -> Mapping[str, str]:
        """Why the view is held: tables of which the log lacks rows, or a row's value is not known, with a sentence."""
        lacking = {
            table: f"{len(rows)} rows of {table} are put aside, or stand in the log as they were later alone"
            for table, rows in self.lost.items()
            if rows
        }
        return {**lacking, **self.reached.held}

    def require(self, bound: Bound, generation: int, buckets: int, place: str) -> None:
        """ConfigError unless it was made for this plan and generation, in so many buckets. ``place``: of the state."""
        bound.require(self.reached, generation, place)
        if self.buckets != buckets:
            # A hash leads to another bucket there, where no row is found.
            raise ConfigError(
                f"the state in {place} was made with {self.buckets} buckets, and [views.NAME] state says {buckets}",
                hint=f"put ?buckets={self.buckets} back. Or cdc view rebuild, and the next cdc view run builds it anew",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    buckets: int
    turn: int
    versions: Mapping[str, int]
    older: Mapping[str, int]
    due: str
    waiting: int
    parked: Mapping[str, list[Any]]
    lost: Mapping[str, Mapping[str, list[int]]]
