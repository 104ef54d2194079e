"""Views over topics without progress records, as Debezium fills them: ``consistency = "eager"``. Pure.

A cut is what the topics held when they were looked at, whatever transactions that is parts of. Its fence is a version
of the documents, and no LSN: above every fence before it and all that the view's topic holds. The connector's own LSN
is kept beside it: the documents show at least everything that was committed below.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cdc.epochs import FIRST_EPOCH
from cdc.position import SNAPSHOT_SEQ, Position
from cdc.progress import Offsets, Progress
from cdc.views.fences import Fence
from cdc.views.state_reach import Reached

EAGER = "eager"
_STEP = 8
"""Fences are multiples of it: the versions of a search index tell no smaller steps apart."""
_MOST_MARKS = 1_000
_LOOKS = 8
"""So often a state that rests is noted as level while topics keep a deletion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsReach:
    """The facts of one look at the topics.

    ``epoch``: the newest that is noted. ``lsn``: every commit below it is below ``offsets``, 0 where nobody says.
    ``offsets``: the ends. ``settled``: the reading of tables that began the epoch is over, by the connector's word.
    ``reread``: it was of whole tables. ``begun``: an older epoch to where those behind it begin. ``epoch_id``: what
    tells the epoch from another one of its number.
    """

    epoch: int = FIRST_EPOCH
    lsn: int = 0
    offsets: Offsets = field(default_factory=dict)
    settled: bool = True
    reread: bool = False
    begun: Mapping[int, Offsets] = field(default_factory=dict)
    epoch_id: str = ""

    @property
    def shown(self) -> Fence:
        """The epoch and the LSN that a state shows at least, once it has read so far."""
        return Fence(self.epoch, self.lsn)


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerProgress(Progress):
    """A cut of all that the topics held. ``lsn`` is the fence's number. ``settled``: as :class:`TopicsReach` has it.
    ``begun``: where an epoch begins that the state has not seen: from there on all is read again. ``epoch_id``: as
    :class:`cdc.views.state_reach.Reached` has it."""

    settled: bool = True
    begun: Offsets = field(default_factory=dict)
    epoch_id: str = ""

    def starts(self, offsets: Offsets) -> Offsets:
        """Where to read on, behind ``offsets``.

        >>> EagerProgress(epoch=2, lsn=8, begun={"t": {0: 5, 1: 5}}).starts({"t": {0: 9, 1: 3}, "u": {0: 1}})
        {'t': {0: 5, 1: 3}, 'u': {0: 1}}
        """
        return {
            topic: {p: min(offset, self.begun.get(topic, {}).get(p, offset)) for p, offset in parts.items()}
            for topic, parts in offsets.items()
        }

    def floor(self, swept: int) -> str:
        """The floor of a table that was swept below the epoch ``swept``. Empty where none is due: nothing says which
        rows of the epochs before are gone until the newest one has read the tables as a whole."""
        due = self.settled and self.reread and self.epoch > max(swept, FIRST_EPOCH)
        return Position(self.epoch, 0, SNAPSHOT_SEQ).text() if due else ""


def cut_to(reach: TopicsReach, reached: Reached, shown: Fence | None, tables: Iterable[str]) -> EagerProgress:
    """The cut of a look, for a state. Its fence is the state's own where there is nothing to do.

    ``shown``: what the state is known to show. ``tables``: the names of the tables.
    """
    before = max(reached.fence, reached.published)
    epoch = max(reach.epoch, before.epoch)
    settled = reach.settled and reach.epoch == epoch
    starts = reached.offsets
    due = (
        reached.fence < before
        or epoch > reached.fence.epoch
        or shown is None
        or reach.shown > shown
        or any(
            end > starts.get(topic, {}).get(p, 0) for topic, ends in reach.offsets.items() for p, end in ends.items()
        )
        or (settled and any(reached.swept.get(name, 0) < epoch for name in tables))
    )
    lsn = max(reach.lsn, before.lsn if before.epoch == epoch else 0)
    begun = reach.begun.get(reached.fence.epoch, {}) if 0 < reached.fence.epoch < reach.epoch else {}
    # Until an epoch's reading is over it may be noted once more, under the same number (H215).
    epoch_id = reach.epoch_id if settled else reached.epoch_id if epoch == reached.fence.epoch else ""
    return EagerProgress(
        epoch=epoch,
        lsn=(lsn // _STEP + 1) * _STEP if due else reached.fence.lsn,
        offsets=reach.offsets,
        reread=reach.reread,
        settled=settled,
        begun=begun,
        epoch_id=epoch_id,
    )


def rests_long(reached: Reached, now_ms: int, retention_s: float) -> bool:
    """Whether a state that has read all is to be noted as level once more, though nothing has come since. A start
    throws one away that was level before the topics forgot deletions, with the long values that it has kept (H565)."""
    return reached.proven and 0 < retention_s * 1000 / _LOOKS < now_ms - reached.level_ms


class ShownLsns:
    """The LSN up to which documents show everything at least, by the fence that they are published at.

    >>> shown = ShownLsns()
    >>> shown.note(Fence(1, 64), Fence(1, 50))
    >>> shown.at(Fence(1, 72)), shown.at(Fence(1, 56))
    (Fence(epoch=1, lsn=50), None)
    """

    def __init__(self) -> None:
        self._fences: list[Fence] = []
        self._shown: list[Fence] = []

    def note(self, fence: Fence, shown: Fence) -> None:
        """A cut at a fence. Fences come in their order."""
        if self._fences and fence <= self._fences[-1]:
            return
        self._fences.append(fence)
        self._shown.append(max(shown, self._shown[-1]) if self._shown else shown)
        if len(self._fences) > _MOST_MARKS:
            # The coarser the older: a claim below one that is gone waits for the next.
            del self._fences[1::2], self._shown[1::2]

    def at(self, fence: Fence) -> Fence | None:
        """The epoch and LSN of all documents once everything up to a fence is published. None where nobody knows."""
        found = bisect_right(self._fences, fence)
        return self._shown[found - 1] if found else None
