"""The traces of a row in the places of the pipeline, and the report about all of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeAlias

from cdc.found import Unknown

OUTSIDE = (
    "the source itself: its WAL, its standbys, its backups and what other tables copied of the row",
    "copies of the topics: replicas on other brokers, mirrors, tiered storage, backups",
    "bytes that a broker no longer serves: a replaced file goes after file.delete.delay.ms, a trimmed one when it is "
    "rolled",
    "files of the stores' own servers: write-ahead logs, snapshots, freed pages, backups",
    "stores that no section of the settings names any more, and former keys of a row that the log does not tie to it",
    "programs that read the topics or the stores, and what they keep",
)
"""Places that no look of ours reaches. The report names them, so that nobody takes it for more than it is."""


class Kept(StrEnum):
    """The part of a row that a place holds."""

    ROW = "holds"
    """Values of the row."""
    MAYBE = "may hold"
    """Something that may be of the row: the place does not say of which rows it is."""
    KEY = "key"
    """The key alone, as the memory of the delete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Something that is left of a row.

    ``what``: a clause. ``until``: the time or the event that ends it, in words. ``until_ms``: before then it does not
    go, since 1970. ``passing``: it goes by itself, without a person. ``cure``: the command that ends it, if there is
    one.
    """

    what: str
    kept: Kept
    until: str
    until_ms: int | None = None
    passing: bool = False
    cure: str = ""


Looked: TypeAlias = Sequence[Trace] | Unknown
"""The result of a look at one place. No trace: it holds nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReport:
    """The traces in each place, in the order of the data.

    ``typed``: the key as the user wrote it. ``understood``: the key as the stores have it. ``seen``: whether anything
    says that there was such a row.
    """

    table: str
    typed: str
    understood: str
    places: Mapping[str, Looked]
    seen: bool

    @property
    def held(self) -> list[str]:
        """The places that hold values of the row, or may."""
        return [place for place, looked in self.places.items() if state_of(looked) in (Kept.ROW, Kept.MAYBE)]

    @property
    def unknown(self) -> Mapping[str, Unknown]:
        """The places that did not answer."""
        return {place: looked for place, looked in self.places.items() if isinstance(looked, Unknown)}

    @property
    def gone(self) -> bool:
        """Whether each place was seen, and none holds a value of the row."""
        return not self.held and not self.unknown

    @property
    def passing(self) -> list[Trace]:
        """The traces that go by themselves."""
        return [trace for trace in self.traces if trace.passing and trace.kept is not Kept.KEY]

    @property
    def traces(self) -> list[Trace]:
        """All of them."""
        found = (looked for looked in self.places.values() if not isinstance(looked, Unknown))
        return [trace for traces in found for trace in traces]

    def document(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "table": self.table,
            "key": self.typed,
            "store_key": self.understood,
            "gone": self.gone,
            "seen": self.seen,
            "places": [_place(place, looked) for place, looked in self.places.items()],
            "not_looked_at": list(OUTSIDE),
        }


def state_of(looked: Looked) -> Kept | Unknown | None:
    """The most that a place holds. None where it holds nothing."""
    if isinstance(looked, Unknown):
        return looked
    kinds = {trace.kept for trace in looked}
    return next((kind for kind in Kept if kind in kinds), None)


def state_word(looked: Looked) -> str:
    """``gone``, ``key``, ``holds``, ``may hold`` or ``unknown``."""
    state = state_of(looked)
    return "unknown" if isinstance(state, Unknown) else "gone" if state is None else state.value


def moment(ms: int) -> str:
    """A time as a person reads it.

    >>> moment(1_700_000_000_000)
    '2023-11-14 22:13:20Z'
    """
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


def _place(place: str, looked: Looked) -> dict[str, Any]:
    made: dict[str, Any] = {"place": place, "state": state_word(looked)}
    if isinstance(looked, Unknown):
        return {**made, "because": str(looked)}
    held = [
        {"what": t.what, "state": t.kept.value, "until": t.until, "until_ms": t.until_ms, "cure": t.cure}
        for t in looked
    ]
    return {**made, "held": held}
