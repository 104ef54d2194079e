"""Debezium's records as records of ours: with the three headers, before anything else looks at them.

A record that cannot be read keeps its bytes and gets a header that says why; :mod:`spark.source` sets it aside.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.epochs import EpochsState
from cdc.errors import CdcError, Exit, Retry, TopicError
from cdc.position import SNAPSHOT_SEQ, Position
from cdc.schema import TableSchema
from cdc.wire.debezium.read import Change, PartitionReader, Settled, Unreadable
from cdc.wire.format import OP, POS, REASON_HEADER, VER
from cdc.wire.records import BEGINNING, Lot, RecordReader, Span
from spark.source import RECORD_SCHEMA

log = logging.getLogger(__name__)

Register = Callable[[str, TableSchema | None], int]
"""(topic, embedded shape or None) -> the version that the schema topic knows it by; 0 for none."""
_BACK = (64, 4096)
"""Offsets to look back where a run begins in the middle; more where the cleaner left none of the first ones."""


class PositionsFell(CdcError):
    """The connector's positions are in no order any more: whoever goes on takes each change for an old one."""

    exit = Exit.IDENTITY


class SnapshotAgain(CdcError):
    """A snapshot was cut short and began anew: another epoch was noted, and the stores read it from its beginning."""

    exit = Exit.UNAVAILABLE
    retry = Retry.NOW


class Place(NamedTuple):
    """A record's place, and the topic's time of it."""

    topic: str
    partition: int
    offset: int
    time_ms: int


class Epochs(Protocol):
    """Where the positions of Debezium's records start over. LogError when the log does not answer."""

    def read(self) -> EpochsState:
        """As noted now."""
        ...

    def fell(self, why: str) -> None:
        """Note that the latest epoch's positions are in no order any more; ``why``: one sentence."""
        ...

    def snapshot_at(self, place: Place) -> None:
        """Note where the latest epoch's snapshot began."""
        ...

    def snapshot_again(self, place: Place) -> None:
        """Note that a snapshot cut short began anew there: a new epoch, from what was written since then on."""
        ...

    def reading(self) -> bool:
        """Whether the connector says now that it reads its first snapshot."""
        ...


class KnownEpochs:
    """Epochs that nobody notes anything of, in memory."""

    def __init__(self, state: EpochsState | None = None) -> None:
        self.state = state or EpochsState()
        self.is_reading = False

    def read(self) -> EpochsState:
        return self.state

    def fell(self, why: str) -> None:
        self.state = self.state.fallen(why)

    def snapshot_at(self, place: Place) -> None:
        self.state = self.state.snapshot_at(*place[:3])

    def snapshot_again(self, place: Place) -> None:
        begun = self.state.begin({place.topic: {place.partition: place.offset}}).settled()
        self.state = begun.snapshot_at(*place[:3])

    def reading(self) -> bool:
        return self.is_reading


class Translation:
    """Translates the batches of one run of a query, in their order. ``register`` and ``epochs`` may raise LogError.

    ``epochs`` is asked anew for each batch: a new epoch is noted before its first record is written.
    ``compaction_lag_s``: how old a record is at least before the cleaner may take it. ``earlier``: opens a reader of
    records from before the run, which say how the order stood there; None to look at none. ``reselected``: as
    :class:`cdc.wire.debezium.read.PartitionReader` has it.
    """

    def __init__(
        self,
        register: Register,
        epochs: Epochs,
        *,
        compaction_lag_s: float = 0.0,
        earlier: Callable[[], RecordReader] | None = None,
        reselected: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._register = register
        self._epochs = epochs
        self._lag_ms = int(compaction_lag_s * 1000)
        self._earlier = earlier
        self._reselected = reselected
        self._clock = clock
        self._readers: dict[tuple[str, int], PartitionReader] = {}
        self._versions: dict[tuple[str, int], int] = {}
        self._latest: int | None = None

    def __call__(self, records: pa.Table) -> pa.Table:
        """The same columns (:data:`spark.source.RECORD_SCHEMA`); settled tombstones are left out.

        PositionsFell where the connector's order has begun anew, now or before (hazard H124).
        """
        if records.column(POS).null_count == 0:
            return records  # all of them ours
        epochs = self._epochs.read() if records.num_rows else EpochsState()
        if epochs.fell:
            raise _fallen(epochs.fell)
        self._go_on_in(epochs)
        kept_ms = self._clock.now_ns() // 1_000_000 - self._lag_ms
        listed = _in_order(records.to_pylist())
        self._look_back(listed, epochs)
        rows = [found for row in listed if (found := self._row(row, epochs, kept_ms)) is not None]
        return pa.Table.from_pylist(rows, schema=RECORD_SCHEMA)

    def _go_on_in(self, epochs: EpochsState) -> None:
        """SnapshotAgain where an epoch was noted that begins below what this run has read."""
        begun, self._latest = self._latest, epochs.latest
        behind = epochs.behind(begun) if begun is not None else {}
        for (topic, partition), reader in self._readers.items():
            if reader.next_offset > behind.get(topic, {}).get(partition, reader.next_offset):
                raise SnapshotAgain("another epoch has begun: it is read from its beginning")

    def _row(self, row: dict[str, Any], epochs: EpochsState, kept_ms: int) -> dict[str, Any] | None:
        if row[POS] is not None:
            return row  # a record of ours, from before a handover
        headers = row["headers"] or []
        reader = self._readers[row["topic"], row["partition"]]
        reader.epochs = epochs
        time_ms = row["time_ms"] or 0
        found = reader.read(row["offset"], row["key"], row["value"], kept=time_ms > kept_ms, time_ms=time_ms)
        if reader.fell:
            self._note_fall(row, reader.fell)
        if reader.began and isinstance(found, Change) and found.pos.epoch == epochs.latest:
            self._note_first(Place(row["topic"], row["partition"], row["offset"], time_ms), found.pos)
        match found:
            case Settled():
                return None
            case Unreadable(reason):
                return row | {"headers": [*headers, {"key": REASON_HEADER, "value": reason.encode()}]}
            case Change() as change:
                told = {
                    POS: change.pos.text(),
                    OP: change.op,
                    VER: str(self._version(row["topic"], change)),
                }
                own = {name: text.encode() for name, text in told.items()}
                listed = [{"key": name, "value": value} for name, value in own.items()]
                return row | own | {"key": change.key, "value": change.value, "headers": [*headers, *listed]}

    def _note_fall(self, row: dict[str, Any], why: str) -> None:
        place = {"topic": row["topic"], "partition": row["partition"], "offset": row["offset"]}
        log.error("positions_fell", extra={**place, "reason": why})
        sentence = f"the order of {row['topic']} has begun anew at offset {row['offset']}: {why}"
        self._epochs.fell(sentence)
        raise _fallen(sentence)

    def _note_first(self, place: Place, pos: Position) -> None:
        """A snapshot of whole tables begins here: the epoch's first one, one on request, or one that begins anew
        because its worker was killed. What that one does not hold any more is swept (hazard H123)."""
        epochs = self._epochs.read()
        known = epochs.first()
        if known is None:
            self._epochs.snapshot_at(place)
        elif known[:2] != place[:2] or known[2] < place.offset:
            if not self._cut_short(pos):
                log.info("snapshot_on_request", extra=place._asdict())
                return
            self._epochs.snapshot_again(place)
            log.warning("snapshot_again", extra={**place._asdict(), "epoch": epochs.latest + 1})
            raise SnapshotAgain("a snapshot was cut short and began anew: another epoch begins")

    def _cut_short(self, pos: Position) -> bool:
        """Whether the snapshot before was not read to its end. One of Postgres' that was taken while it streamed stands
        behind a commit; of others the connector itself has to say that it is at its first one."""
        if any(reader.over >= pos.epoch for reader in self._readers.values()):
            return False
        return pos[1:] == (0, SNAPSHOT_SEQ) or self._epochs.reading()

    def _look_back(self, rows: Iterable[dict[str, Any]], epochs: EpochsState, depths: Iterable[int] = _BACK) -> None:
        """Make a reader of each partition that has none, and let it see some records from before its first one."""
        begun: dict[tuple[str, int], int] = {}
        for row in rows:
            place = (row["topic"], row["partition"])
            if place not in self._readers and place not in begun:
                begun[place] = row["offset"]
        for place in begun:
            self._readers[place] = PartitionReader(*place, epochs=epochs, reselected=self._reselected)
        missing = {place: offset for place, offset in begun.items() if offset > 0}
        for back in depths if self._earlier is not None else ():
            missing = self._seed(missing, back) if missing else {}

    def _seed(self, begun: dict[tuple[str, int], int], back: int) -> dict[tuple[str, int], int]:
        """Returns those of which nothing was found."""
        assert self._earlier is not None
        spans = [Span(*place, offset - back if offset > back else BEGINNING, offset) for place, offset in begun.items()]
        seen: set[tuple[str, int]] = set()
        reader = self._earlier()
        try:
            # What begins with records that are gone has none to look at.
            with suppress(TopicError):
                for lot in reader.read(spans):
                    seen.add((lot.topic, lot.partition))
                    _show(self._readers[lot.topic, lot.partition], lot)
        finally:
            reader.close()
        return {place: offset for place, offset in begun.items() if place not in seen}

    def _version(self, topic: str, change: Change) -> int:
        known = self._versions.get((topic, change.ver)) if change.schema is not None else None
        if known is None:
            # Without an embedded schema the newest version counts, which may be another one by now.
            known = self._register(topic, change.schema)
            self._versions[topic, change.ver] = known
        return known


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each partition's records by their offsets, as they mostly are: sorting copies kilobytes of each."""
    reached: dict[tuple[str, int], int] = {}
    for row in rows:
        place = (row["topic"], row["partition"])
        if row["offset"] < reached.get(place, -1):
            return sorted(rows, key=lambda one: (one["topic"], one["partition"], one["offset"]))
        reached[place] = row["offset"]
    return rows


def _show(reader: PartitionReader, lot: Lot) -> None:
    for offset, key, value, pos, time_ms in zip(lot.offsets, lot.keys, lot.values, lot.pos, lot.times_ms, strict=True):
        if pos is None:
            reader.look_back(offset, key, value, time_ms=time_ms or 0)


def _fallen(sentence: str) -> PositionsFell:
    return PositionsFell(
        sentence,
        hint="cdc connect offsets --reset, then cdc connect resume: a new epoch begins with a new snapshot",
    )
