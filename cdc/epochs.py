"""In which epoch a pipeline is, and the offsets at which each began.

The native capture writes its epoch into every record. It looks behind those offsets for records of an epoch that has
ended. Debezium's records bear none: a new snapshot of its connector begins new topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from cdc.errors import ConfigError
from cdc.position import MAX_EPOCH
from cdc.progress import Offsets
from cdc.state import Document, SlotState

FIRST_EPOCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsState(Document):
    """The epochs of positions, and the offsets at which they begin.

    ``starts``: topic -> partition (as text) -> first offsets of epoch 2, 3 and so on. ``latest`` the newest. ``ids``:
    epoch (as text) -> the text that tells it from another one of its number, which a log that was put back and went on
    from there gives again.
    """

    WHAT: ClassVar[str] = "epochs"
    latest: int = FIRST_EPOCH
    starts: Mapping[str, Mapping[str, list[int]]] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    def begin(self, ends: Offsets, identity: str = "") -> EpochsState:
        """One epoch more, from these end offsets on. A topic or partition not named here begins at 0: where it comes
        back, all of it is of the newest epoch.

        ``identity``: the same for all who note this epoch, and another one for each that is begun. Raises ConfigError
        at the highest epoch.

        >>> state = EpochsState().begin({"shop.public.a": {0: 7}})
        >>> state.latest, state.began("shop.public.a", 0), state.began("new", 0)
        (2, 7, 0)
        """
        if self.latest >= MAX_EPOCH:
            raise ConfigError(f"the epoch is at its highest, {MAX_EPOCH}", hint="start a new pipeline under a new name")
        starts = {
            topic: {str(p): self._grown(topic, p, end) for p, end in parts.items()} for topic, parts in ends.items()
        }
        ids = {**self.ids, str(self.latest + 1): identity} if identity else self.ids
        return EpochsState(latest=self.latest + 1, starts=starts, ids=ids)

    def identity(self, epoch: int) -> str:
        """The text that tells an epoch from another one of its number. Empty where that was not noted."""
        return self.ids.get(str(epoch), "")

    def knows(self, epoch: int, identity: str) -> bool:
        """Whether what was made in an epoch of this identity is of the one that has its number here. A log that was put
        back to before it may have given the number again. Where no identity is noted the number alone counts.

        >>> second = EpochsState().begin({}, "second")
        >>> second.knows(2, "second"), second.knows(2, "other"), second.knows(3, "third"), second.knows(1, "first")
        (True, False, False, True)
        """
        known = self.identity(epoch)
        return not identity or known == identity or (not known and epoch <= self.latest)

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

    def began(self, topic: str, partition: int) -> int:
        """The offset from which the latest epoch holds there.

        >>> second = EpochsState().begin({"shop.public.a": {0: 7}})
        >>> EpochsState().began("shop.public.a", 0), second.began("shop.public.a", 0)
        (0, 7)
        """
        offsets = self.starts.get(topic, {}).get(str(partition), [])
        return offsets[-1] if offsets and len(offsets) == self.latest - FIRST_EPOCH else 0

    def _boundaries(self, topic: str, partition: int) -> list[int]:
        """Where the second epoch begins, and each after it. One that the partition did not exist for lies at 0."""
        known = self.starts.get(topic, {}).get(str(partition), [])
        return known + [0] * (self.latest - FIRST_EPOCH - len(known))

    def _grown(self, topic: str, partition: int, end: int) -> list[int]:
        """The same with one more, at the end. One beyond it is of records that are gone."""
        return [*(min(boundary, end) for boundary in self._boundaries(topic, partition)), end]


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
