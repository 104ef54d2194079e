"""In which epoch a pipeline is, and where positions start over on topics that Debezium writes, by offset.

The native capture writes its epoch into every record, so its number is all there is to note. Debezium's records
carry none: there a change of epoch (offsets reset, a slot made anew) is noted as the offsets from which it holds.
The native capture looks behind those offsets for records of an epoch that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from cdc.errors import ConfigError
from cdc.json_bytes import dumped
from cdc.position import MAX_EPOCH
from cdc.progress import Offsets
from cdc.state import Document, SlotState, find_all

FIRST_EPOCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedAnewState(Document):
    """A topic whose table got another key within an epoch.

    A record of its own, which nobody changes: every program that reads the topic may write it, and one that writes a
    whole document anew puts back what another has noted since it read.
    """

    WHAT: ClassVar[str] = "keyed_anew"
    topic: str
    epoch: int

    def key(self) -> bytes:
        return dumped({"what": self.WHAT, "topic": self.topic, "epoch": self.epoch})


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
    back and went on from there gives again. ``keys``: topic -> the newest epoch in which its table's key changed, by
    each :class:`KeyedAnewState` as well. ``topic_ids``: topic -> Kafka's id of the one that ``starts`` speak of, where
    that was noted.
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
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def begin(self, ends: Offsets, identity: str = "", topic_ids: Mapping[str, str] | None = None) -> EpochsState:
        """One epoch more, from these end offsets on. A topic or partition not named here begins at 0: where it comes
        back, all of it is of the newest epoch.

        ``identity``: the same for all who note this epoch, and another one for each that is begun. ``topic_ids``: topic
        -> Kafka's id of it, as far as known. Raises ConfigError at the highest epoch.

        >>> state = EpochsState().begin({"shop.public.a": {0: 7}})
        >>> state.epoch("shop.public.a", 0, 6), state.epoch("shop.public.a", 0, 7), state.epoch("new", 0, 0)
        (1, 2, 2)
        """
        if self.latest >= MAX_EPOCH:
            raise ConfigError(f"the epoch is at its highest, {MAX_EPOCH}", hint="start a new pipeline under a new name")
        known = self.of_topics(topic_ids or {})
        starts = {
            topic: {str(p): known._grown(topic, p, end) for p, end in parts.items()} for topic, parts in ends.items()
        }
        ids = {**self.ids, str(self.latest + 1): identity} if identity else self.ids
        noted = {**known.topic_ids, **(topic_ids or {})}
        begun = EpochsState(latest=self.latest + 1, starts=starts, reread=self.reread, firsts=self.firsts)
        return replace(begun, ids=ids, keys=self.keys, topic_ids={t: one for t, one in noted.items() if t in starts})

    def of_topics(self, topic_ids: Mapping[str, str]) -> EpochsState:
        """The same without what was noted of topics that have another id now: they were made anew since, so all that
        they hold is of the newest epoch. ``topic_ids``: those of today. A topic not named is as it was.

        >>> second = EpochsState().begin({"shop.public.a": {0: 7}}, topic_ids={"shop.public.a": "id1"})
        >>> second.epoch("shop.public.a", 0, 3), second.of_topics({"shop.public.a": "id2"}).epoch("shop.public.a", 0, 3)
        (1, 2)
        """
        gone = {topic for topic, one in self.topic_ids.items() if topic_ids.get(topic, one) != one}
        starts = {topic: parts for topic, parts in self.starts.items() if topic not in gone}
        ids = {topic: one for topic, one in self.topic_ids.items() if topic not in gone}
        return replace(self, starts=starts, topic_ids=ids) if gone else self

    @classmethod
    def find(cls, documents: Mapping[bytes, bytes]) -> Self | None:
        """As of every document, with the keys that have a document of their own.

        >>> note = KeyedAnewState(topic="t", epoch=1)
        >>> EpochsState.find({note.key(): note.to_json()}).rekeyed()
        frozenset({'t'})
        """
        found = super(EpochsState, cls).find(documents)
        for note in find_all(documents, KeyedAnewState):
            found = (found or cls()).keyed_anew(note.topic, note.epoch)
        return found

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

    def keyed_anew(self, topic: str, epoch: int) -> Self:
        """The same with another key of a topic's table, since some record of this epoch."""
        return replace(self, keys={**self.keys, topic: max(epoch, self.keys.get(topic, epoch))})

    def rekeyed(self) -> frozenset[str]:
        """The topics that hold rows of the latest epoch under a former key of their table.

        >>> state = EpochsState().keyed_anew("t", 1)
        >>> state.rekeyed(), state.begin({}).rekeyed()
        (frozenset({'t'}), frozenset())
        """
        return frozenset(topic for topic, epoch in self.keys.items() if epoch >= self.latest)

    def still_rekeyed(self, before: EpochsState, repeated: str) -> EpochsState:
        """The same, begun for one ``repeated`` topic: what all others have in the latest epoch ``before`` is of this
        one now, and so are its rows under a former key."""
        kept = before.rekeyed() - {repeated}
        return replace(self, keys={**self.keys, **dict.fromkeys(kept, self.latest)})

    def fallen(self, why: str) -> EpochsState:
        """The same with its latest positions in no order any more: ``why`` in one sentence."""
        return replace(self, fell=why)

    def moved_on(self, said: str) -> EpochsState:
        """The same with changes of another server in its latest epoch: ``said`` in one sentence."""
        return replace(self, moved=said)

    def settled(self) -> EpochsState:
        """The same once the connector's offsets are gone: it begins the latest epoch by reading its tables anew."""
        return replace(self, unsettled=False, reread=self.latest)

    def reaching(
        self, epoch: int, ends: Offsets, identity: str = "", topic_ids: Mapping[str, str] | None = None
    ) -> EpochsState:
        """As many epochs more as it takes to be in ``epoch`` from these end offsets on. ``identity``: of each."""
        state = self
        while state.latest < epoch:
            state = state.begin(ends, identity, topic_ids)
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
        return FIRST_EPOCH + sum(offset >= boundary for boundary in self._boundaries(topic, partition))

    def _boundaries(self, topic: str, partition: int) -> list[int]:
        """Where the second epoch begins, and each after it. One that the partition did not exist for lies at 0."""
        known = self.starts.get(topic, {}).get(str(partition), [])
        return known + [0] * (self.latest - FIRST_EPOCH - len(known))

    def _grown(self, topic: str, partition: int, end: int) -> list[int]:
        """The same with one more, at the end. One beyond it is of records that are gone."""
        return [*(min(boundary, end) for boundary in self._boundaries(topic, partition)), end]


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
