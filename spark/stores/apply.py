"""Apply a batch's records: the same function on the driver and on executors.

Parse the headers, set aside what is no record of ours and what belongs to a parked key, and hand the rest to
the sink, which takes the newest of each key. A task gets plain data alone: it knows neither settings nor Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from cdc.record.progress import Offsets
from cdc.wire.dead_letter import DeadLetter, Parking, Why
from cdc.wire.format import HEADERS, OP, POS, VER
from sinks.contract.batch import EVENT_SCHEMA, FLOOR_OP, Event, Mask, events_of, pc, where
from sinks.contract.history_rows import with_histories
from sinks.contract.missing_values import patterns
from sinks.contract.newest import newest
from sinks.contract.port import Applied, Refused, Sink
from sinks.contract.table_places import SchemaBook
from spark.records.foreign_records import LogReach, told_apart
from spark.records.source import ForeignRecord, ReadSample, headers_of, parse, read_sample

BEHIND = "an earlier event of this key is parked"
Shape = tuple[str, int]
"""(topic, version)"""
History = Callable[[Mapping[str, list[bytes]]], pa.Table]
"""topic -> keys, to all events that a batch has of them"""
_EARLIER_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules by which a batch is sorted. ``absent``: versions that the schema topic does not hold. Their records are
    refused. ``parked``: topic -> key -> from where on it waits. ``held``: topics whose records are left alone.
    ``reach``: which records are somebody else's. None where nobody knows."""

    book: SchemaBook
    parked: Mapping[str, Mapping[bytes, Parking]] = field(default_factory=dict)
    absent: frozenset[Shape] = frozenset()
    held: frozenset[str] = frozenset()
    reach: LogReach | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """Records by kind. ``events`` are for the sink. ``needs`` are shapes to be fetched before it may have them."""

    records: pa.Table
    events: pa.Table
    behind: pa.Table
    unreadable: list[ForeignRecord]
    needs: frozenset[Shape]

    @property
    def floors(self) -> pa.Table:
        """The events that set floors."""
        return self.events.filter(pc.equal(self.events[OP], FLOOR_OP))

    def unheld(self, held: Collection[str]) -> Sorted:
        """The same less the records of some topics."""
        if not held:
            return self
        tables = (without_topics(table, held) for table in (self.records, self.events, self.behind))
        unreadable = [one for one in self.unreadable if one.topic not in held]
        records, events, behind = tables
        return replace(self, records=records, events=events, behind=behind, unreadable=unreadable)


def sort_out(records: pa.Table, rules: Rules) -> Sorted:
    """Sort a batch's records (:data:`spark.records.source.RECORD_SCHEMA`) by kind. Pure."""
    records = unheld(records, rules)
    if rules.book.histories:
        records = with_histories(records, rules.book.histories)
    parsed, unreadable = parse(records)
    events, foreign = told_apart(parsed, rules.reach)
    free, behind = split_parked(events, rules.parked)
    unreadable += foreign
    return Sorted(records=records, events=free, behind=behind, unreadable=unreadable, needs=unknown(free, rules))


def unheld(table: pa.Table, rules: Rules) -> pa.Table:
    """Records or events, less those of held tables."""
    return without_topics(table, rules.held)


def without_topics(table: pa.Table, topics: Collection[str]) -> pa.Table:
    """Records or events, less those of some topics."""
    if not topics:
        return table
    return where(table, pc.invert(pc.is_in(table["topic"], value_set=pa.array(sorted(topics), pa.string()))))


def unknown(events: pa.Table, rules: Rules) -> frozenset[Shape]:
    """Shapes that have to be asked for before these events can be applied."""
    return frozenset(shape for shape in _shapes(events) if shape not in rules.book and shape not in rules.absent)


def split_parked(events: pa.Table, parked: Mapping[str, Mapping[bytes, Parking]]) -> tuple[pa.Table, pa.Table]:
    """Events that may go on, and those that wait: of a parked key, all but what lies before its first letter."""
    waiting = _waiting(events, parked)
    if waiting is None:
        return events, events.slice(0, 0)
    return events.filter(pc.invert(waiting)), events.filter(waiting)


def replayed(
    behind: pa.Table, parked: Mapping[str, Mapping[bytes, Parking]], offsets: Offsets
) -> dict[str, list[bytes]]:
    """Keys whose first letter is still ahead of the watermark: what lies before it was brought down as well."""
    found: dict[str, list[bytes]] = {}
    waiting = {(one["topic"], one["key"]) for one in behind.select(["topic", "key"]).to_pylist()}
    for topic, key in sorted(waiting):
        partition, offset = parked[topic][key]
        if offset > offsets.get(topic, {}).get(partition, 0):
            found.setdefault(topic, []).append(key)
    return found


def _shapes(events: pa.Table) -> list[Shape]:
    kinds = events.select(["topic", VER]).group_by(["topic", VER]).aggregate([])
    return [(kind["topic"], kind[VER]) for kind in kinds.to_pylist()]


def with_keys(events: pa.Table, keys: Mapping[str, list[bytes]]) -> pa.Table:
    """All events of some keys."""
    return split_parked(events, {topic: dict.fromkeys(some, (-1, 0)) for topic, some in keys.items()})[1]


def _waiting(events: pa.Table, parked: Mapping[str, Mapping[bytes, Parking]]) -> Mask | None:
    """True for events that wait. None when none does."""
    found: Mask | None = None
    for topic, firsts in parked.items():
        if events.num_rows < len(firsts):
            mask = _waiting_few(events, topic, firsts)
            found = mask if found is None else pc.or_(found, mask)
            continue
        number = pc.index_in(events["key"], value_set=pa.array(list(firsts), pa.binary()))
        partition = pc.take(pa.array([one for one, _ in firsts.values()], pa.int32()), number)
        offset = pc.take(pa.array([one for _, one in firsts.values()], pa.int64()), number)
        before = pc.and_(pc.equal(events["partition"], partition), pc.less(events["offset"], offset))
        listed = pc.fill_null(pc.invert(before), False)
        mask = pc.and_(pc.equal(events["topic"], topic), listed)
        found = mask if found is None else pc.or_(found, mask)
    return found if found is not None and pc.any(found, min_count=0).as_py() else None


def _waiting_few(events: pa.Table, topic: str, firsts: Mapping[bytes, Parking]) -> Mask:
    """The same for few events beside many parked keys: as many steps as there are events."""
    columns = (events[name].to_pylist() for name in ("topic", "key", "partition", "offset"))
    waits = []
    for own, key, partition, offset in zip(*columns, strict=True):
        first = firsts.get(key) if own == topic else None
        waits.append(first is not None and not (partition == first[0] and offset < first[1]))
    return pa.chunked_array([pa.array(waits, pa.bool_())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a batch, or of a part of it: ``letters`` are for the dead-letter topic, as yet without a sink."""

    applied: Applied = field(default_factory=Applied)
    letters: tuple[DeadLetter, ...] = ()
    records: int = 0
    read: ReadSample = field(default_factory=ReadSample)

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            applied=self.applied + other.applied,
            letters=self.letters + other.letters,
            records=self.records + other.records,
            read=self.read + other.read,
        )


def apply_sorted(batch: Sorted, sink: Sink, book: SchemaBook) -> Outcome:
    """Give a sorted batch to the sink. SinkError when the store stays down: any part may have been applied then."""
    applied = apply_events(batch.events, sink, book)
    letters = [
        *_unreadable_letters(batch.unreadable),
        *_behind_letters(batch),
        *_refused_letters(batch, applied.refused),
    ]
    return Outcome(
        applied=applied, letters=tuple(letters), records=batch.records.num_rows, read=read_sample(batch.records)
    )


def apply_events(events: pa.Table, sink: Sink, book: SchemaBook, history: History | None = None) -> Applied:
    """Apply events. For a key whose newest is refused, the one before it, so that batches' borders show nowhere.

    ``history``: where ``events`` are the newest alone, finds all events of some keys.
    """
    applied = sink.apply(events, book)
    refused = applied.refused
    for _ in range(_EARLIER_TRIES):
        if not refused:
            break
        every = events if history is None else history(keys_of(refused))
        before = earlier(every, applied.refused)
        if before.num_rows == 0:
            break
        again = sink.apply(before, book)
        applied, refused = applied + again, again.refused
    return applied


def keys_of(refused: Iterable[Refused]) -> dict[str, list[bytes]]:
    """topic -> keys."""
    found: dict[str, list[bytes]] = {}
    for one in refused:
        if one.key is not None:
            found.setdefault(one.topic, []).append(one.key)
    return found


def earlier(events: pa.Table, refused: Iterable[Refused]) -> pa.Table:
    """Of the refused rows' keys, the events that lie before every one that was refused."""
    first: dict[tuple[str, bytes], tuple[str, int]] = {}
    for one in refused:
        if one.key is None or one.pos is None or one.op == FLOOR_OP:
            continue
        place = (one.pos, one.offset)
        first[(one.topic, one.key)] = min(place, first.get((one.topic, one.key), place))
    near = events.filter(pc.is_in(events["key"], value_set=pa.array({key for _, key in first}, pa.binary())))
    kept = [
        number
        for number, event in enumerate(near.select(["topic", "key", POS, "offset", OP]).to_pylist())
        if event[OP] != FLOOR_OP and (event[POS], event["offset"]) < first.get((event["topic"], event["key"]), ("", -1))
    ]
    return near.take(pa.array(kept, pa.int64()))


def compact(events: pa.Table, book: SchemaBook) -> pa.Table:
    """The events that a later ``apply`` needs to come out the same: the newest of each key, and all of a key
    whose newest lacks a value that an earlier one of the batch may have. Of histories all: each of their records is a
    row."""
    if all(shape in book and book(*shape).history for shape in _shapes(events)):
        return events
    winners = newest(events)
    lacking = None
    for pattern in sorted(
        {pattern for shape in _shapes(winners) if shape in book for pattern in patterns(book(*shape))}
    ):
        found = pc.fill_null(pc.match_substring(winners["value"], pattern), False)
        lacking = found if lacking is None else pc.or_(lacking, found)
    if lacking is None or not pc.any(lacking, min_count=0).as_py():
        return winners
    keys = pc.unique(winners["key"].filter(lacking))
    suspect = pc.is_in(events["key"], value_set=keys)
    others = winners.filter(pc.invert(pc.is_in(winners["key"], value_set=keys)))
    return pa.concat_tables([events.filter(suspect), others])


def letters_of(batch: Sorted) -> tuple[DeadLetter, ...]:
    """The letters that need no store to be known."""
    return (*_unreadable_letters(batch.unreadable), *_behind_letters(batch))


def refused_letters(refused: Iterable[Refused], why: Why = Why.REFUSED) -> tuple[DeadLetter, ...]:
    """Letters of refused events whose records are elsewhere: with the three headers that every event has."""
    return tuple(_refused_letter(one, _own_headers(one), why) for one in refused)


def behind_letters(events: pa.Table) -> tuple[DeadLetter, ...]:
    """Letters of events whose key waits."""
    return refused_letters((Refused(**event, reason=BEHIND) for event in events.to_pylist()), Why.BEHIND)


def events_of_letters(letters: Iterable[DeadLetter]) -> pa.Table:
    """Letters of records of ours as the events they were."""
    return events_of([_event(letter) for letter in letters])


def _event(letter: DeadLetter) -> Event:
    own = {name: (value or b"").decode(errors="replace") for name, value in letter.headers if name in HEADERS}
    return Event(
        topic=letter.topic,
        partition=letter.partition,
        offset=letter.offset,
        key=letter.key,
        value=letter.value,
        pos=own.get(POS),
        op=own.get(OP),
        ver=int(own[VER]) if own.get(VER, "").isdigit() else None,
    )


def _unreadable_letters(unreadable: Iterable[ForeignRecord]) -> Iterator[DeadLetter]:
    for one in unreadable:
        yield DeadLetter(
            sink="",
            why=Why.UNREADABLE,
            topic=one.topic,
            partition=one.partition,
            offset=one.offset,
            reason=one.reason,
            key=one.key,
            value=one.value,
            headers=one.headers,
        )


def _behind_letters(batch: Sorted) -> Iterator[DeadLetter]:
    if batch.behind.num_rows == 0:
        return
    headers = _headers(batch.records, batch.behind)
    for event in batch.behind.to_pylist():
        refused = Refused(**event, reason=BEHIND)
        yield _refused_letter(refused, headers.get(_place(refused), _own_headers(refused)), Why.BEHIND)


def _refused_letters(batch: Sorted, refused: tuple[Refused, ...]) -> Iterator[DeadLetter]:
    if not refused:
        return
    places = pa.table(
        {"topic": [one.topic for one in refused], "partition": [one.partition for one in refused],
         "offset": [one.offset for one in refused]},
        schema=pa.schema([EVENT_SCHEMA.field(name) for name in ("topic", "partition", "offset")]),
    )  # fmt: skip
    headers = _headers(batch.records, places)
    for one in refused:
        yield _refused_letter(one, headers.get(_place(one), _own_headers(one)))


def _refused_letter(
    refused: Refused, headers: tuple[tuple[str, bytes | None], ...], why: Why = Why.REFUSED
) -> DeadLetter:
    return DeadLetter(
        sink="",
        why=why,
        topic=refused.topic,
        partition=refused.partition,
        offset=refused.offset,
        reason=refused.reason,
        key=refused.key,
        value=refused.value,
        headers=headers,
    )


def _place(refused: Refused) -> tuple[str, int, int]:
    return (refused.topic, refused.partition, refused.offset)


def _headers(records: pa.Table, wanted: pa.Table) -> dict[tuple[str, int, int], tuple[tuple[str, bytes | None], ...]]:
    """The headers of some records, by their place. Read from the records that share an offset with one wanted."""
    near = records.filter(pc.is_in(records["offset"], value_set=pc.unique(wanted["offset"])))
    return {
        (row["topic"], row["partition"], row["offset"]): headers_of(row)
        for row in near.select(["topic", "partition", "offset", *HEADERS, "headers"]).to_pylist()
    }


def _own_headers(refused: Refused) -> tuple[tuple[str, bytes | None], ...]:
    own = ((POS, refused.pos), (OP, refused.op), (VER, refused.ver))
    return tuple((name, str(value).encode()) for name, value in own if value is not None)
