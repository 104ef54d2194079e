"""In which epoch a pipeline is, and where positions start over on topics that Debezium writes, by offset.

The native capture writes its epoch into every record, so its number is all there is to note. Debezium's records
carry none: there a change of epoch (offsets reset, a slot made anew) is noted as the offsets from which it holds.
The native capture looks behind those offsets for records of an epoch that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from cdc.errors import ConfigError
from cdc.position import MAX_EPOCH
from cdc.progress import Offsets
from cdc.state import Document, SlotState

FIRST_EPOCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsState(Document):
    """The epochs of positions, and the offsets at which they begin.

    ``starts``: topic -> partition (as text) -> first offsets of epoch 2, 3 and so on. ``latest`` the newest.

    ``unsettled``: the latest was noted, and the connector's offsets of the epoch before may stand yet, so what they
    say is not of the latest. ``reread``: the newest epoch whose connector began without offsets, and so with a
    reading of its tables. 0 for none. ``fell``: why the latest epoch's positions are in no order any more, as a
    sentence. Empty while they are. Another epoch is the cure. ``moved``: that its changes are of another server than
    before, in order, as a sentence. ``firsts``: epoch (as text) -> topic, partition and offset of the row that began
    its snapshot. ``ids``: epoch (as text) -> what tells it from another one of its number, which a log that was put
    back and went on from there gives again. ``keys``: topic -> the newest epoch in which its table's key changed.
    """

    WHAT: ClassVar[str] = "epochs"
    latest: int = FIRST_EPOCH
    starts: Mapping[str, Mapping[str, list[int]]] = field(default_factory=dict)
    unsettled: bool = False
    reread: int = 0
    fell: str = ""
    moved: str = ""
    firsts: Mapping[str, list[Any]] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, int] = field(default_factory=dict)

    def begin(self, ends: Offsets, identity: str = "") -> EpochsState:
        """One epoch more, from these end offsets on. A topic or partition not named here begins at 0.

        ``identity``: the same for all who note this epoch, and another one for each that is begun. Raises ConfigError
        at the highest epoch.

        >>> state = EpochsState().begin({"shop.public.a": {0: 7}})
        >>> state.epoch("shop.public.a", 0, 6), state.epoch("shop.public.a", 0, 7), state.epoch("new", 0, 0)
        (1, 2, 2)
        """
        if self.latest >= MAX_EPOCH:
            raise ConfigError(f"the epoch is at its highest, {MAX_EPOCH}", hint="start a new pipeline under a new name")
        starts = {topic: {p: list(offsets) for p, offsets in parts.items()} for topic, parts in self.starts.items()}
        for topic, parts in ends.items():
            for partition, offset in parts.items():
                offsets = starts.setdefault(topic, {}).setdefault(str(partition), [])
                # An earlier boundary that this partition did not exist for lies at its beginning.
                offsets.extend([0] * (self.latest - FIRST_EPOCH - len(offsets)))
                offsets.append(offset)
        ids = {**self.ids, str(self.latest + 1): identity} if identity else self.ids
        begun = EpochsState(latest=self.latest + 1, starts=starts, reread=self.reread, firsts=self.firsts)
        return replace(begun, ids=ids, keys=self.keys)

    def identity(self, epoch: int) -> str:
        """The text that tells an epoch from another one of its number. Empty where that was not noted."""
        return self.ids.get(str(epoch), "")

    def first(self) -> tuple[str, int, int] | None:
        """Where the latest epoch's snapshot began: topic, partition and offset. None where nobody saw it."""
        first = self.firsts.get(str(self.latest))
        return (str(first[0]), int(first[1]), int(first[2])) if first is not None and len(first) == 3 else None

    def snapshot_at(self, topic: str, partition: int, offset: int) -> EpochsState:
        """The same with the place where the latest epoch's snapshot began."""
        return replace(self, firsts={**self.firsts, str(self.latest): [topic, partition, offset]})

    def behind(self, epoch: int) -> dict[str, dict[int, int]]:
        """Where the epochs after this one begin, in partitions that hold more than one. Empty for the latest.

        >>> second = EpochsState().begin({"shop.public.a": {0: 7}})
        >>> second.behind(1), second.behind(2)
        ({'shop.public.a': {0: 7}}, {})
        """
        number = epoch - FIRST_EPOCH
        return {
            topic: {int(p): offsets[number] for p, offsets in parts.items() if number < len(offsets)}
            for topic, parts in self.starts.items()
            if any(number < len(offsets) for offsets in parts.values())
        }

    def keyed_anew(self, topic: str, epoch: int) -> EpochsState:
        """The same with another key of a topic's table, since some record of this epoch."""
        return replace(self, keys={**self.keys, topic: max(epoch, self.keys.get(topic, epoch))})

    def rekeyed(self) -> frozenset[str]:
        """The topics that hold rows of the latest epoch under a former key of their table.

        >>> state = EpochsState().keyed_anew("t", 1)
        >>> state.rekeyed(), state.begin({}).rekeyed()
        (frozenset({'t'}), frozenset())
        """
        return frozenset(topic for topic, epoch in self.keys.items() if epoch >= self.latest)

    def fallen(self, why: str) -> EpochsState:
        """The same with its latest positions in no order any more: ``why`` in one sentence."""
        return replace(self, fell=why)

    def moved_on(self, said: str) -> EpochsState:
        """The same with changes of another server in its latest epoch: ``said`` in one sentence."""
        return replace(self, moved=said)

    def settled(self) -> EpochsState:
        """The same once the connector's offsets are gone: it begins the latest epoch by reading its tables anew."""
        return replace(self, unsettled=False, reread=self.latest)

    def reaching(self, epoch: int, ends: Offsets, identity: str = "") -> EpochsState:
        """As many epochs more as it takes to be in ``epoch`` from these end offsets on. ``identity``: of each."""
        state = self
        while state.latest < epoch:
            state = state.begin(ends, identity)
        return state

    def began(self, topic: str, partition: int) -> int:
        """The offset from which the latest epoch holds there.

        >>> second = EpochsState().begin({"shop.public.a": {0: 7}})
        >>> EpochsState().began("shop.public.a", 0), second.began("shop.public.a", 0)
        (0, 7)
        """
        offsets = self.starts.get(topic, {}).get(str(partition), [])
        return offsets[-1] if offsets and len(offsets) == self.latest - FIRST_EPOCH else 0

    def epoch(self, topic: str, partition: int, offset: int) -> int:
        """The epoch of the record at this place."""
        known = self.starts.get(topic, {}).get(str(partition), [])
        boundaries = known + [0] * (self.latest - FIRST_EPOCH - len(known))
        return FIRST_EPOCH + sum(offset >= boundary for boundary in boundaries)


def require_reset(epochs: EpochsState, *, stored: bool) -> None:
    """ConfigError where a reset of a connector's offsets was noted and cut short. ``stored``: it has offsets.

    It would go on where it was, and its progress would count for the epoch before, for ever.
    """
    if epochs.unsettled and stored:
        raise ConfigError(
            f"epoch {epochs.latest} was begun and not finished: the connector's offsets are those of the one before",
            hint="run cdc connect offsets --reset again, then cdc connect resume",
        )


def epoch_of(documents: Mapping[bytes, bytes], kind: str) -> int | None:
    """The pipeline's epoch by its state topic, None before it has one. ``kind``: of the source, ``postgres`` or
    ``debezium``."""
    if kind == "debezium":
        return (EpochsState.find(documents) or EpochsState()).latest
    slot = SlotState.find(documents)
    return slot.epoch if slot is not None else None


def require_begun(epochs: EpochsState, slot: SlotState | None) -> None:
    """ConfigError when the slot that is noted is of an epoch before: its end was noted and then cut short."""
    if slot is not None and slot.epoch < epochs.latest:
        raise ConfigError(
            f"epoch {epochs.latest} was begun and not finished: the slot noted is of epoch {slot.epoch}",
            hint="run cdc init --new-epoch again",
        )
