"""Where positions start over on topics that Debezium writes, by offset.

The native capture writes its epoch into every record. Debezium's records carry none, so a change of epoch
(offsets reset, a slot made anew) is noted as the offsets from which the new one holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from cdc.errors import ConfigError
from cdc.position import MAX_EPOCH
from cdc.progress import Offsets
from cdc.state import Document

FIRST_EPOCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsState(Document):
    """``starts``: topic -> partition (as text) -> first offsets of epoch 2, 3 and so on; ``latest`` the newest."""

    WHAT: ClassVar[str] = "epochs"
    latest: int = FIRST_EPOCH
    starts: Mapping[str, Mapping[str, list[int]]] = field(default_factory=dict)

    def begin(self, ends: Offsets) -> EpochsState:
        """One epoch more, from these end offsets on; a topic or partition not named here begins at 0.

        >>> state = EpochsState().begin({"shop.public.a": {0: 7}})
        >>> state.epoch("shop.public.a", 0, 6), state.epoch("shop.public.a", 0, 7), state.epoch("new", 0, 0)
        (1, 2, 2)
        """
        if self.latest >= MAX_EPOCH:
            raise ConfigError(f"the epoch is at its highest, {MAX_EPOCH}", hint="start a new pipeline under a new name")
        starts = {topic: {p: list(held) for p, held in parts.items()} for topic, parts in self.starts.items()}
        for topic, parts in ends.items():
            for partition, offset in parts.items():
                held = starts.setdefault(topic, {}).setdefault(str(partition), [])
                # An earlier boundary that this partition did not exist for lies at its beginning.
                held.extend([0] * (self.latest - FIRST_EPOCH - len(held)))
                held.append(offset)
        return EpochsState(latest=self.latest + 1, starts=starts)

    def reaching(self, epoch: int, ends: Offsets) -> EpochsState:
        """As many epochs more as it takes to be in ``epoch`` from these end offsets on."""
        state = self
        while state.latest < epoch:
            state = state.begin(ends)
        return state

    def epoch(self, topic: str, partition: int, offset: int) -> int:
        """The epoch of the record at this place."""
        held = self.starts.get(topic, {}).get(str(partition), [])
        boundaries = held + [0] * (self.latest - FIRST_EPOCH - len(held))
        return FIRST_EPOCH + sum(offset >= boundary for boundary in boundaries)
