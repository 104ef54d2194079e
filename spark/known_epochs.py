"""The port to the notes of where Debezium's positions start over, and a double of it in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from cdc.epochs import EpochsState
from cdc.errors import CdcError, Exit, Retry
from spark.translate import RecordPlace


class SnapshotAgain(CdcError):
    """A snapshot was cut short and began anew: another epoch was noted, and the stores read it from its beginning."""

    exit = Exit.UNAVAILABLE
    retry = Retry.NOW


class Epochs(Protocol):
    """Where the positions of Debezium's records start over. LogError when the log does not answer."""

    def read(self) -> EpochsState:
        """As noted now."""
        ...

    def fell(self, why: str) -> None:
        """Note that the latest epoch's positions are in no order any more. ``why``: one sentence."""
        ...

    def moved(self, said: str) -> None:
        """Note that changes are of another server. ``said``: one sentence."""
        ...

    def snapshot_at(self, place: RecordPlace) -> None:
        """Note where the latest epoch's snapshot began."""
        ...

    def snapshot_again(self, place: RecordPlace) -> None:
        """Note that a snapshot cut short began anew there: a new epoch, from what was written since then on."""
        ...

    def table_again(self, place: RecordPlace) -> None:
        """The same of a later table in it: what other topics have in the latest epoch is of the new one."""
        ...

    def repeated(self, places: Collection[RecordPlace]) -> Collection[RecordPlace]:
        """Those whose topic has older records of the latest epoch."""
        ...

    def keyed_anew(self, topic: str, epoch: int) -> None:
        """Note that a topic's table has another key since some record of this epoch."""
        ...

    def ends(self, topic: str) -> Mapping[int, int]:
        """Where each partition of a topic ends now."""
        ...

    def reading(self) -> bool:
        """Whether the connector says now that it reads its first snapshot."""
        ...

    def asked(self, place: RecordPlace) -> bool | None:
        """Whether somebody asked for the snapshot that begins there. None where that is not known."""
        ...


class KnownEpochs:
    """Epochs in memory, of which no note is kept. Implements :class:`Epochs`."""

    def __init__(self, state: EpochsState | None = None) -> None:
        self.state = state or EpochsState()
        self.is_reading = False
        self.is_asked: bool | None = None
        self.repeats = False
        self.ends_at: dict[int, int] = {}

    def read(self) -> EpochsState:
        return self.state

    def fell(self, why: str) -> None:
        self.state = self.state.fallen(why)

    def moved(self, said: str) -> None:
        self.state = self.state.moved_on(said)

    def snapshot_at(self, place: RecordPlace) -> None:
        self.state = self.state.snapshot_at(*place[:3])

    def snapshot_again(self, place: RecordPlace) -> None:
        begun = self.state.begin({place.topic: {place.partition: place.offset}}).settled()
        self.state = begun.snapshot_at(*place[:3])

    def keyed_anew(self, topic: str, epoch: int) -> None:
        self.state = self.state.keyed_anew(topic, epoch)

    def ends(self, topic: str) -> Mapping[int, int]:
        return self.ends_at

    def reading(self) -> bool:
        return self.is_reading

    def asked(self, place: RecordPlace) -> bool | None:
        return self.is_asked

    def table_again(self, place: RecordPlace) -> None:
        starts = {topic: {int(p): o[-1] for p, o in parts.items()} for topic, parts in self.state.starts.items()}
        begun = self.state.begin({**starts, place.topic: {place.partition: place.offset}}).settled()
        self.state = begun.still_rekeyed(self.state, place.topic)

    def repeated(self, places: Collection[RecordPlace]) -> Collection[RecordPlace]:
        return places if self.repeats else ()
