"""Topics that Debezium fills, as the queries read them: what is known of their order and their shapes, in a run.

The module :mod:`spark.translate` has the rules for one record. Here the driver decides about several: a new shape, a
snapshot that begins, an order that has begun anew.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Protocol

import pyarrow as pa

from cdc.epochs import EpochsState
from cdc.errors import TopicError
from cdc.position import SNAPSHOT_SEQ
from cdc.schema import TableSchema
from cdc.wire.debezium.falls import PositionsFell, ServerMove
from cdc.wire.debezium.reading import DebeziumChange, PartitionReader
from cdc.wire.format import POS
from cdc.wire.records import BEGINNING, Lot, RecordReader, Span
from spark.known_epochs import Epochs, SnapshotAgain
from spark.translate import (
    Begun,
    EmbeddedVersion,
    Fall,
    Moved,
    Partition,
    RecordPlace,
    TaskNotes,
    TaskTranslation,
    Version,
    in_order,
    translated,
)

log = logging.getLogger(__name__)

_BACK = (64, 4096)
"""Offsets to look back where a run begins in the middle. More where the cleaner left none of the first ones."""


class TopicShapes(Protocol):
    """The schema topic, for shapes that come with records. LogError when the log does not answer."""

    def version(self, topic: str, shape: TableSchema | None, *, key: object = None) -> int:
        """The version that an embedded shape is known by. Of None the topic's newest, 0 for none. ``key``: the form of
        the table's key of now, where it is known: the newest shape has it from here on, where any has."""
        ...

    def rekeys(self, topic: str, shape: TableSchema) -> bool:
        """Whether the topic's newest shape has another key than this one."""
        ...


class Translation:
    """Translates the batches of one run of a query, in their order. ``shapes`` and ``epochs`` may raise LogError.
    Implements :class:`spark.translate.Listener`.

    Records of a small batch come here. For those that tasks read :meth:`for_tasks` makes what they need, and what they
    tell is decided here, slice by slice.

    ``epochs`` is asked anew for each batch: a new epoch is noted before its first record is written.
    ``earlier``: opens a reader of records from before the run, which say how the order stood there. None to look at
    none. ``reader``: makes a reader of a partition.
    """

    def __init__(
        self,
        shapes: TopicShapes,
        epochs: Epochs,
        *,
        earlier: Callable[[], RecordReader] | None = None,
        reader: Callable[..., PartitionReader] = PartitionReader,
    ) -> None:
        self._shapes = shapes
        self._epochs = epochs
        self._earlier = earlier
        self._reader = reader
        self._readers: dict[Partition, PartitionReader] = {}
        self._versions: dict[EmbeddedVersion, int] = {}
        self._unversioned: set[EmbeddedVersion] = set()
        self._keys: dict[tuple[str, int], set[object]] = {}
        """(topic, epoch) -> the key's forms that its records have, as far as they were read."""
        self._decided: set[tuple[str, int, int]] = set()
        self._found: list[Fall | Begun] = []
        self._moved: list[Moved] = []
        self._moves: set[ServerMove] = set()
        self._latest: int | None = None

    @property
    def noted(self) -> int:
        """The newest epoch that was noted at the last look. 0 before the first."""
        return self._latest or 0

    def __call__(self, records: pa.Table) -> pa.Table:
        """The same columns (:data:`spark.source.RECORD_SCHEMA`). Settled tombstones are left out.

        PositionsFell where the connector's order has begun anew, now or before.
        """
        if records.column(POS).null_count == 0:
            return records  # all of them ours
        epochs = self._epochs_now()
        records = in_order(records)
        self._look_back(_firsts(records), epochs)
        self._found = []
        done = translated(records, self._readers.__getitem__, epochs, self)
        self._see_to(self._found, self._readers)
        moved, self._moved = self._moved, []
        self._note_moves(moved)
        return done

    def for_tasks(self, spans: Iterable[Span]) -> TaskTranslation:
        """The translation for the tasks that read these spans. PositionsFell and SnapshotAgain as for records read
        here."""
        epochs = self._epochs_now()
        starts = {span[:2]: max(0, span.start) for span in spans}
        self._look_back(starts, epochs)
        for known in self._unversioned:
            if known[0] in {topic for topic, _ in starts}:
                # Without an embedded schema the newest version counts, which may be another one by now.
                self._versions[known] = self._shapes.version(known[0], None)
        first = epochs.first()
        return TaskTranslation(
            epochs=epochs,
            versions={
                known: ver for known, ver in self._versions.items() if known[0] in {topic for topic, _ in starts}
            },
            decided=frozenset(self._decided | ({first} if first is not None else set())),
            readers={place: pickle.dumps(self._readers[place]) for place in starts},
        )

    def decide(self, told: TaskNotes) -> frozenset[Version]:
        """See to what tasks could not decide. The shapes that have numbers now. Raises as :meth:`__call__`."""
        behind = {place: pickle.loads(reader) for place, reader in told.readers.items()}
        self._see_to((*told.falls, *told.begun), {**self._readers, **behind})
        self._decided |= {one.place[:3] for one in told.begun}
        learned = set()
        for known, shape in told.shapes.items():
            topic, _, epoch = known
            if shape is None:
                self._unversioned.add(known)
            self._versions[known] = self._numbered(topic, shape, epoch)
            learned.add((topic, self._versions[known]))
        return frozenset(learned)

    def go_on(self, told: TaskNotes) -> None:
        """The slice is done: the next one goes on behind what its tasks have read."""
        self._readers |= {place: pickle.loads(reader) for place, reader in told.readers.items()}
        self._decided.clear()
        self._note_moves(told.moved)

    def version(self, topic: str, change: DebeziumChange) -> int:
        known = self._versions.get((topic, change.ver, change.pos.epoch)) if change.schema is not None else None
        if known is None:
            # Without an embedded schema the newest version counts, which may be another one by now.
            known = self._numbered(topic, change.schema, change.pos.epoch)
            self._versions[topic, change.ver, change.pos.epoch] = known
        return known

    def _numbered(self, topic: str, shape: TableSchema | None, epoch: int) -> int:
        """The version of a shape, which the run meets in this epoch for the first time.

        Two keys in one epoch are noted first: it sweeps no row of its own. A key that the latest epoch
        has alone is the table's, whatever the newest shape says and whichever epoch's shape is numbered: the table was
        read anew under it.
        """
        if shape is None or not shape.key:
            return self._shapes.version(topic, shape)
        keys = self._keys.setdefault((topic, epoch), set())
        keys.add(shape.key_form)
        other = self._shapes.rekeys(topic, shape)
        if len(keys) == 1 and not other:
            return self._shapes.version(topic, shape)
        epochs = self._epochs.read()
        seen = self._look_at_ends(topic, epochs) if other else True
        if len(keys) > 1 and epochs.keys.get(topic, 0) < epoch:
            self._epochs.keyed_anew(topic, epoch)
            log.error("table_keyed_anew", extra={"topic": topic, "table": str(shape.table), "epoch": epoch})
        latest = self._keys.get((topic, epochs.latest), set())
        # One that was not seen may have another key. But the shape of an epoch that is over never takes one away.
        alone = len(latest) == 1 and topic not in epochs.rekeyed() and (seen or epoch < epochs.latest)
        return self._shapes.version(topic, shape, key=next(iter(latest)) if alone else None)

    def fell(self, fall: Fall) -> None:
        self._found.append(fall)

    def begins(self, begun: Begun) -> None:
        self._found.append(begun)

    def moves(self, moved: Moved) -> None:
        self._moved.append(moved)

    def _see_to(self, found: Iterable[Fall | Begun], readers: Mapping[Partition, PartitionReader]) -> None:
        """Of a whole slice, by the topics' time: its partitions are read in no order. A snapshot's beginning
        before the falls of that time: where it begins another epoch, no order has fallen."""
        found = sorted(found, key=lambda one: (one.place.time_ms, isinstance(one, Fall), *_by_time(one.place)))
        tables = [one.place for one in found if isinstance(one, Begun) and one.table]
        repeated = frozenset(self._epochs.repeated(tables)) if tables else frozenset()
        for one in found:
            if isinstance(one, Fall):
                self._note_fall(one)
            elif not one.table:
                self._note_first(one, readers.values())
            elif one.place in repeated:
                self._note_table(one)

    def _note_fall(self, fall: Fall) -> None:
        place = fall.place
        where = {"topic": place.topic, "partition": place.partition, "offset": place.offset}
        log.error("positions_fell", extra={**where, "reason": fall.why})
        sentence = f"the order of {place.topic} has begun anew at offset {place.offset}: {fall.why}"
        self._epochs.fell(sentence)
        raise _fallen(sentence)

    def _note_moves(self, moved: Iterable[Moved]) -> None:
        """Each change of server once, whichever partitions have it."""
        for place, move in sorted(moved, key=lambda one: _by_time(one.place)):
            if move in self._moves:
                continue
            self._moves.add(move)
            where = {"topic": place.topic, "partition": place.partition, "offset": place.offset}
            log.warning("source_server_changed", extra={**where, "was": move.before, "now": move.now})
            at = f"since offset {place.offset} of partition {place.partition} of {place.topic}"
            self._epochs.moved(f"changes are of the server {move.now} {at}, and were of {move.before} before")

    def _epochs_now(self) -> EpochsState:
        """SnapshotAgain where an epoch was noted that begins below what this run has read."""
        epochs = self._epochs.read()
        if epochs.fell:
            raise _fallen(epochs.fell)
        begun, self._latest = self._latest, epochs.latest
        behind = epochs.behind(begun) if begun is not None else {}
        for (topic, partition), reader in self._readers.items():
            if reader.next_offset > behind.get(topic, {}).get(partition, reader.next_offset):
                raise SnapshotAgain("another epoch has begun: it is read from its beginning")
        return epochs

    def _note_first(self, begun: Begun, readers: Iterable[PartitionReader]) -> None:
        """A snapshot of whole tables begins here: the epoch's first one, one on request, or one that begins anew
        because its worker was killed. Rows that the latest one lacks are swept."""
        epochs, place = self._epochs.read(), begun.place
        known = epochs.first()
        if known is None:
            self._epochs.snapshot_at(place)
        elif known[:2] != place[:2] or known[2] < place.offset:
            if not self._cut_short(begun, readers):
                log.info("snapshot_on_request", extra=place._asdict())
                return
            self._epochs.snapshot_again(place)
            raise _begins_again(place, epochs.latest + 1)

    def _note_table(self, begun: Begun) -> None:
        """A table is read anew, in a snapshot whose beginning is another table's. A store of this table alone learns by
        it that the first snapshot was cut short. Where that is not known nothing is swept."""
        latest = self._epochs.read().latest
        if begun.pos.epoch == latest and self._epochs.asked(begun.place) is False:
            self._epochs.table_again(begun.place)
            raise _begins_again(begun.place, latest + 1)

    def _cut_short(self, begun: Begun, readers: Iterable[PartitionReader]) -> bool:
        """Whether the connector began anew, because its worker ended before it had stored an offset.

        Where the snapshot before was not read to its end, one of Postgres' that was taken while it streamed stands
        behind a commit, and of others the connector itself has to say that it is at its first one. Where it was, the
        offset behind it may not have been stored: a snapshot that nobody asked for is a first one.

        Another partition's note of the end counts if it was written before.
        """
        place, pos = begun.place, begun.pos
        ends = [(reader.over, -reader.over_ms) for reader in readers]
        over = begun.over or any(end > (pos.epoch, -place.time_ms) for end in ends)
        asked = self._epochs.asked(place)
        if over or asked is False:
            return asked is False
        return (asked is None and pos[1:] == (0, SNAPSHOT_SEQ)) or self._epochs.reading()

    def _look_back(self, starts: Mapping[Partition, int], epochs: EpochsState, depths: Iterable[int] = _BACK) -> None:
        """Make a reader of each partition that has none, and let it see some records from before where it starts."""
        begun = {place: offset for place, offset in starts.items() if place not in self._readers}
        for place in begun:
            self._readers[place] = self._reader(*place, epochs=epochs)
        missing = {place: offset for place, offset in begun.items() if offset > 0}
        for back in depths if self._earlier is not None else ():
            missing = self._seed(missing, back, self._readers) if missing else {}

    def _look_at_ends(self, topic: str, epochs: EpochsState) -> bool:
        """Learn the keys of a topic's last records. A run begins in the middle of an epoch, and partitions that bring
        nothing new to it may end with rows under a former key.

        Whether all partitions were read. One that cannot be read leaves others unread: then each is read by itself.
        """
        if self._earlier is None:
            return True
        ends = {(topic, partition): end for partition, end in self._epochs.ends(topic).items() if end}
        return self._looked(ends, _BACK[0], epochs) or all(
            # Where the stretch begins with deleted records the partition has few others.
            [
                self._looked({place: end}, _BACK[0], epochs) or self._looked({place: end}, end, epochs)
                for place, end in ends.items()
            ]
        )

    def _looked(self, ends: Mapping[Partition, int], back: int, epochs: EpochsState) -> bool:
        with suppress(TopicError):
            self._read_back(ends, back, {place: PartitionReader(*place, epochs=epochs) for place in ends}, set())
            return True
        return False

    def _seed(
        self, begun: dict[Partition, int], back: int, readers: Mapping[Partition, PartitionReader]
    ) -> dict[Partition, int]:
        """Returns those of which nothing was found."""
        seen: set[Partition] = set()
        # A stretch that begins with deleted records has none to read.
        with suppress(TopicError):
            self._read_back(begun, back, readers, seen)
        return {place: offset for place, offset in begun.items() if place not in seen}

    def _read_back(
        self,
        ends: Mapping[Partition, int],
        back: int,
        readers: Mapping[Partition, PartitionReader],
        seen: set[Partition],
    ) -> None:
        """Show readers what lies below these offsets. ``seen`` gets those that have some."""
        assert self._earlier is not None
        spans = [Span(*place, offset - back if offset > back else BEGINNING, offset) for place, offset in ends.items()]
        reader = self._earlier()
        try:
            for lot in reader.read(spans):
                seen.add((lot.topic, lot.partition))
                self._show(readers[lot.topic, lot.partition], lot)
        finally:
            reader.close()

    def _show(self, reader: PartitionReader, lot: Lot) -> None:
        cells = zip(lot.offsets, lot.keys, lot.values, lot.pos, lot.times_ms, strict=True)
        for offset, key, value, pos, time_ms in cells:
            found = reader.look_back(offset, key, value, time_ms=time_ms or 0) if pos is None else None
            if isinstance(found, DebeziumChange) and found.schema is not None and found.schema.key:
                self._keys.setdefault((lot.topic, found.pos.epoch), set()).add(found.schema.key_form)


def _firsts(records: pa.Table) -> dict[Partition, int]:
    """The first offset of each partition, of records in order."""
    found: dict[Partition, int] = {}
    columns = (records[name].to_pylist() for name in ("topic", "partition", "offset"))
    for topic, partition, offset in zip(*columns, strict=True):
        found.setdefault((topic, partition), offset)
    return found


def _by_time(place: RecordPlace) -> tuple[int, str, int, int]:
    return place.time_ms, place.topic, place.partition, place.offset


def _begins_again(place: RecordPlace, epoch: int) -> SnapshotAgain:
    log.warning("snapshot_again", extra={**place._asdict(), "epoch": epoch})
    return SnapshotAgain("a snapshot was cut short and began anew: another epoch begins")


def _fallen(sentence: str) -> PositionsFell:
    return PositionsFell(
        sentence,
        hint="cdc connect offsets --reset, then cdc connect resume: a new epoch begins with a new snapshot",
    )
