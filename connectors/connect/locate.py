"""Debezium's last records, as positions of ours: the slot is read once more, and nothing of it acknowledged.

The native capture goes on from the slot's confirmed LSN, below which everything is in the topics. Of what lies
above, some is there too. Reading the same changes shows each partition's newest one's position, and capture's own
progress record then keeps it from being written again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing

from confluent_kafka import murmur2

from cdc.clock import Clock
from cdc.errors import IdentityError
from cdc.masks import masks_of
from cdc.ports import Record
from cdc.settings import Settings
from cdc.state import SlotState, TopicsState
from cdc.topic import schema_topic
from cdc.wire.format import POS
from connectors.connect.places import Lane, StreamedPlace
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.abridge import row_limit
from connectors.postgres.assemble import (
    GONE,
    Assembler,
    AssemblerPorts,
    Limits,
    Pipeline,
    Selected,
    Start,
    WantedValues,
)
from connectors.postgres.connections import connect
from connectors.postgres.cut import write_fence
from connectors.postgres.stream import ReplicationStream
from connectors.postgres.visible import newest_xid
from connectors.session.captured import CapturedTopics
from connectors.session.relations import Relations

_READ_S = 0.2


class Placeless:
    """Re-selects nothing: only positions are wanted. Implements :class:`connectors.postgres.held.Reselect`."""

    seen_lsn = 0

    def rows(self, wanted: Sequence[WantedValues], xids: Collection[int], *, brief: bool = False) -> Sequence[Selected]:
        return [GONE for _ in wanted]


class Finder:
    """Watches records of ours go by. ``found``: the position of each place's newest record, as text."""

    def __init__(self, places: Mapping[Lane, StreamedPlace]) -> None:
        self._places = dict(places)
        self._needles = {
            lane: b'"txId":%d,"lsn":%d,' % (place.transaction, place.lsn) for lane, place in places.items()
        }
        self._counts: dict[Lane, int] = {}
        self._key: dict[Lane, bytes] = {}
        self.found: dict[str, dict[int, str]] = {}

    def see(self, lane: Lane, record: Record) -> None:
        """The records of one lane in their order."""
        place = self._places.get(lane)
        if place is None:
            return
        _, key, value, headers = record
        if value is None:
            told = self._key.get(lane) == key
        else:
            told = self._needles[lane] in value
            self._key.pop(lane, None)
        if not told:
            return
        self._key[lane] = key
        self._counts[lane] = self._counts.get(lane, 0) + 1
        if self._counts[lane] <= place.count:
            self.found.setdefault(lane[0], {})[lane[1]] = dict(headers)[POS].decode()


def locate(
    settings: Settings,
    slot: SlotState,
    topics: TopicsState,
    start: int,
    places: Mapping[Lane, StreamedPlace],
    clock: Clock,
) -> dict[str, dict[int, str]]:
    """topic -> partition -> position of the newest record there, for places that lie above ``start``.

    Reads the slot from ``start`` to a fence that it writes. The slot stays as it is. Raises what capture raises.
    """
    finder = Finder(places)
    with closing(connect(settings.source, application_name="cdc handover")) as side:
        fence = write_fence(side)
        stream = _stream(settings, slot, start, clock)
        try:
            partitions = {topic: topics.topics[topic]["partitions"] for topic in topics.tables.values()}
            bases: dict[str, int] = {}
            lanes: list[Lane] = []
            for topic, count in partitions.items():
                bases[topic] = len(lanes)
                lanes += [(topic, partition) for partition in range(count)]

            def look(records: Sequence[Record]) -> None:
                for record in records:
                    finder.see(lanes[record[0]], record)

            shapes = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name)))
            assembler = Assembler(
                Pipeline(name=settings.name, database=slot.database, epoch=slot.epoch),
                AssemblerPorts(
                    schemas=Relations(
                        side,
                        settings,
                        CapturedTopics(settings, topics, clock, registry=shapes),
                        shapes,
                    ),
                    lanes=lambda topic: (bases[topic], partitions[topic]),
                    partition=murmur2,
                    reselect=Placeless(),
                    overflow=look,
                    masks=masks_of(settings),
                ),
                Start(near_xid=newest_xid(side), after_lsn=start),
                Limits(spill_folder=settings.capture.spill_path),
            )
            _read(stream, assembler, fence, look, clock)
        finally:
            stream.abandon()
    return finder.found


def _read(
    stream: ReplicationStream, assembler: Assembler, upto: int, look: Callable[[Sequence[Record]], None], clock: Clock
) -> None:
    while True:
        frames, _ = stream.read(_READ_S)
        assembled = assembler.feed(frames, clock.now_ns())
        look(assembled.records)
        if assembled.commits and assembled.commits[-1].end_lsn > upto:
            return


def _stream(settings: Settings, slot: SlotState, start: int, clock: Clock) -> ReplicationStream:
    connection = connect(settings.source, application_name="cdc handover stream", replication=True)
    try:
        row = connection.execute("IDENTIFY_SYSTEM").fetchone()
        if row is None or row[0] != slot.system_identifier:
            raise IdentityError("the dsn leads to more than one server", hint="name one host in [source] dsn")
        return ReplicationStream(
            connection,
            settings.source,
            slot=slot.slot,
            publication=slot.publication,
            start_lsn=start,
            row_limit=row_limit(settings.log.max_message_bytes),
            clock=clock,
        )
    except BaseException:
        connection.close()
        raise
