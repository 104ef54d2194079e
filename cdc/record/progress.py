"""How far the log holds the source, and where: the progress record, the epochs with their offsets, and whose turn it
is to write.

Two writers in one topic would undo each other, so the state topic says that the native capture writes what Debezium has
begun. ``cdc connect handover`` notes each step before the next one: killed in between, it is run again. A resnapshot
makes new topics, and takes the note away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from cdc.process.errors import ConfigError, DamagedError
from cdc.record.documents import FIRST, FORMAT, dumped, read_members, record_of
from cdc.record.position import MAX_EPOCH, Lsn
from cdc.record.source_lineage import SourceLineage
from cdc.record.state import Document, SlotState

PROGRESS_KEY = b'{"what":"progress"}'

_POSITION = re.compile("[0-9a-f]{32}")

Offsets = Mapping[str, Mapping[int, int]]
"""topic -> partition -> next offset."""


_T = TypeVar("_T")


def _by_text(parts: Mapping[str, Mapping[int, _T]]) -> dict[str, dict[str, _T]]:
    return {topic: {str(p): value for p, value in found.items()} for topic, found in parts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Every change with ``commit_lsn < lsn`` lies below ``offsets`` (exclusive).

    Below them may lie more. ``ahead``: the newest streamed position (as text) of each partition whose records
    below ``offsets`` reach to ``lsn`` or beyond. A start must not write them again, and would not find them in
    what stands behind ``offsets``. ``aside``: topics of tables that are set aside, each with what is to be said of
    it: of these the log lacks changes. ``lineage``: the server whose WAL ``lsn`` is a place of. None where the writer
    did not note it.
    """

    epoch: int
    lsn: int
    offsets: Offsets = field(default_factory=dict)
    ahead: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    aside: Mapping[str, str] = field(default_factory=dict)
    heartbeat_ms: int = field(default=0, compare=False)
    """When the source was heard to have nothing new below ``lsn``, in ms since 1970. 0 behind a change."""
    lineage: SourceLineage | None = None
    xid: int = field(default=0, compare=False)
    """The newest 64-bit transaction id of the source that capture has seen. 0 where the writer did not note it."""
    at_us: int = field(default=0, compare=False)
    """The running maximum of the commit times below ``lsn``, in us since 1970. 0 where none is known."""

    def at(self, offsets: Offsets) -> Progress:
        """The same with other offsets."""
        return replace(self, offsets=offsets)

    def to_json(self) -> bytes:
        """The value of its record. :meth:`from_json` reads it back."""
        document: dict[str, Any] = {
            FORMAT: FIRST,
            "epoch": self.epoch,
            "lsn": self.lsn,
            "offsets": _by_text(self.offsets),
        }
        if self.ahead:
            document["ahead"] = _by_text(self.ahead)
        if self.aside:
            document["aside"] = dict(self.aside)
        if self.heartbeat_ms:
            document["heartbeat_ms"] = self.heartbeat_ms
        if self.lineage is not None:
            document["lineage"] = self.lineage.document()
        if self.xid:
            document["xid"] = self.xid
        if self.at_us:
            document["at_us"] = self.at_us
        return dumped(document)

    @classmethod
    def from_json(cls, value: bytes) -> Progress:
        """Read :meth:`to_json` back. FormatError for another format, DamagedError for what none has."""
        about = "a record of the progress topic"
        record = record_of(cls, read_members(value, about), about)
        _require_possible(record, about)
        return record


def _require_possible(record: Progress, about: str) -> None:
    """DamagedError for numbers that no capture writes: they would be taken for places further down."""
    ahead = [text for parts in record.ahead.values() for text in parts.values()]
    lowest = min((min(parts.values()) for parts in record.offsets.values() if parts), default=0)
    if not (1 <= record.epoch <= MAX_EPOCH and record.lsn >= 0 and lowest >= 0):
        raise DamagedError(f"{about} has an epoch, an LSN or an offset that cannot be")
    if not all(_POSITION.fullmatch(text) for text in ahead):
        raise DamagedError(f"{about} says something ahead that is no position")


class Mark(NamedTuple):
    """A progress record and when the broker took it."""

    epoch: int
    lsn: int
    at_ms: int


CATCHING_UP = "is being brought up to date"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A table that a store does not show as far as its LSN says.

    ``reason``: one sentence on why its changes wait. Empty once they wait no more and are being applied. ``since_ms``:
    when, in ms since 1970, the store was last level with the log before it held the table. 0 where nobody knows.
    """

    table: str
    reason: str = ""
    since_ms: int = field(default=0, compare=False)

    @property
    def passing(self) -> bool:
        """Whether nothing is in its way any more: it is being brought up to date."""
        return not self.reason or self.reason.endswith(CATCHING_UP)

    def sentence(self, sink: str) -> str:
        """The sentence about it, with the remedy.

        >>> Hold(table="public.orders").sentence("cache")
        'cache: public.orders was held and is being brought up to date'
        """
        if self.reason.startswith("the view "):
            return f"{sink}: {self.reason}: it does not show the view as far as its LSN says"
        if not self.reason:
            return f"{sink}: {self.table} was held and is being brought up to date"
        return f"{sink} holds {self.reason}; its changes wait in the log: cdc rebuild {sink}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """A store's note about itself: it shows every change with ``(epoch, commit_lsn) < (epoch, lsn)``, but for those of
    the tables in ``held``: topic -> why.

    ``offsets`` are the end offsets of the last batch it holds, from the query's checkpoint. ``lsn`` is 0
    while the store is still being filled from the log's beginning. ``topic_ids`` says of which
    topics the offsets speak: topic -> Kafka's id of it, another one for a topic made anew. ``level_ms``:
    when, in ms since 1970, the store was last seen to be level with the log's end, or began. 0 where nobody knows.
    ``aside``: as the progress record had it that ``lsn`` is of: of these tables the log lacks changes. ``epoch_id``:
    what tells the epoch from another one of its number. Empty where nothing was noted. ``lineage``: the
    server whose WAL ``lsn`` is a place of, as the progress record had it. None where that did not name it.
    """

    epoch: int
    lsn: int
    offsets: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, Hold] = field(default_factory=dict)
    level_ms: int = field(default=0, compare=False)
    aside: Mapping[str, str] = field(default_factory=dict)
    epoch_id: str = ""
    lineage: SourceLineage | None = None

    def sure_ms(self, topic: str) -> int:
        """When, in ms since 1970, the store was last sure to show all of a table. 0 where nobody knows."""
        return self.held[topic].since_ms if topic in self.held else self.level_ms

    def to_json(self) -> bytes:
        """The watermark as a store keeps it. :meth:`from_json` reads it back."""
        document: dict[str, Any] = {
            FORMAT: FIRST,
            "epoch": self.epoch,
            "lsn": self.lsn,
            "offsets": _by_text(self.offsets),
            "topic_ids": dict(self.topic_ids),
        }
        if self.held:
            document["held"] = {
                topic: {"table": hold.table, "reason": hold.reason, "since_ms": hold.since_ms}
                for topic, hold in self.held.items()
            }
        if self.aside:
            document["aside"] = dict(self.aside)
        if self.level_ms:
            document["level_ms"] = self.level_ms
        if self.epoch_id:
            document["epoch_id"] = self.epoch_id
        if self.lineage is not None:
            document["lineage"] = self.lineage.document()
        return dumped(document)

    @classmethod
    def from_json(cls, value: bytes) -> Watermark:
        """Read :meth:`to_json` back. FormatError for another format, DamagedError for what none has."""
        about = "the watermark in the store"
        read = record_of(cls, read_members(value, about), about)
        # To Kafka an offset of -1 is the end of the log: all that the store lacks would be passed over.
        lowest = min(
            read.epoch, read.lsn, read.level_ms, *(o for parts in read.offsets.values() for o in parts.values())
        )
        if lowest < 0:
            raise DamagedError(f"{about} has a number below 0")
        return read


# In which epoch a pipeline is, and the offsets at which each began.
#
# The native capture writes its epoch into every record. It looks behind those offsets for records of an epoch that has
# ended. Debezium's records bear none: a new snapshot of its connector begins new topics.

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


Writer = Literal["native", "debezium"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterState(Document):
    """That the native capture writes the topics which Debezium has filled, or is about to.

    ``step``: ``begun``, ``stopped`` (Debezium has stopped, and every change below ``lsn`` is in the topics), ``done``.
    ``ends``: topic -> partition (as text) -> where its records end. Absent until a handover."""

    WHAT: ClassVar[str] = "writer"
    step: str
    lsn: int = 0
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether the handover is complete."""
        return self.step == "done"

    @property
    def offsets(self) -> Offsets:
        """Its ``ends``, by numbers."""
        return {topic: {int(p): end for p, end in parts.items()} for topic, parts in self.ends.items()}


def require_settled(documents: Mapping[bytes, bytes]) -> None:
    """ConfigError while a handover is under way."""
    state = WriterState.find(documents)
    if state is not None and not state.settled:
        raise ConfigError(
            "a handover to the native capture was begun and not finished",
            hint="cdc connect handover goes on where it was",
        )


def require_turn(documents: Mapping[bytes, bytes], writer: Writer) -> None:
    """ConfigError when the state topic says that it is not this writer's turn."""
    require_settled(documents)
    state = WriterState.find(documents)
    if state is None or writer == "native":
        return
    raise ConfigError(
        f"the native capture writes this pipeline's topics since {Lsn(state.lsn)}, and two would undo each other",
        hint='[source] kind = "postgres" goes with what is now; back to Debezium: stop cdc run, then cdc connect '
        "resnapshot, which makes new topics",
    )
