"""Rows that former epochs left behind in a store: rows that no record of the newest epoch speaks of.

Debezium's connector that began without offsets has read its tables anew, and nothing in its topics says which rows
are there no more. So the sink sweeps below the epoch by itself, once that reading is over by the connector's own
word and all of it is in the store. Where we capture, floors in the topics say it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import pyarrow as pa

from cdc.epochs import FIRST_EPOCH, EpochsState
from cdc.json_bytes import dumped
from cdc.position import SNAPSHOT_SEQ, Position
from cdc.progress import Offsets, Watermark
from cdc.wire.format import TRUNCATE_KEY, TRUNCATE_OP
from sinks.batch import Event, events_of
from sinks.table_shapes import SchemaBook
from spark.known_epochs import SnapshotAgain
from spark.ports import SinkTopics
from spark.watermark import Claim, LogView


class Sweeps:
    """The tables of one store, each with the epoch below which it is swept. On the store's own thread."""

    def __init__(self) -> None:
        self._done: dict[str, int] = {}

    def begin(self, watermark: Watermark | None) -> None:
        """All over again: what the watermark speaks of is swept below its epoch, but for tables it holds."""
        whole = watermark is not None and watermark.lsn > 0
        self._done = (
            {topic: watermark.epoch for topic in watermark.offsets if topic not in watermark.held}
            if watermark and whole
            else {}
        )

    def due(self, view: LogView, at: Claim, topics: SinkTopics) -> Mapping[str, int]:
        """topic -> the epoch that it has to be swept below, of a store that shows everything below ``at``."""
        open_topics = [topic for topic in topics.ids if self._done.get(topic, FIRST_EPOCH) < view.reread]
        passed = view.reread_by(at, open_topics, topics) if open_topics else {}
        return {topic: epoch for topic, epoch in passed.items() if epoch > self._done.get(topic, FIRST_EPOCH)}

    def done(self, swept: Mapping[str, int]) -> None:
        """Note that these are swept."""
        self._done |= swept


def floors_of(due: Mapping[str, int], book: SchemaBook) -> pa.Table:
    """Floors as events, one for each table that has a shape: of any other there is no row."""
    newest = {versions[0].topic: versions[0] for versions in book.tables()}
    shapes = ((newest[topic], epoch) for topic, epoch in due.items() if topic in newest)
    return events_of(
        Event(
            topic=shape.topic,
            partition=0,
            offset=0,
            key=dumped({TRUNCATE_KEY: str(shape.table)}),
            value=None,
            pos=Position(epoch, 0, SNAPSHOT_SEQ).text(),
            op=TRUNCATE_OP,
            ver=shape.version,
        )
        for shape, epoch in shapes
    )


def said(due: Iterable[str], book: SchemaBook) -> str:
    """The tables' names, for the log."""
    return ",".join(sorted(str(versions[0].table) for versions in book.tables() if versions[0].topic in set(due)))


def rewound(offsets: Offsets, begun: Offsets) -> Offsets:
    """A store's offsets, no further than where these epochs begin.

    >>> rewound({"t": {0: 9, 1: 3}}, {"t": {0: 5, 1: 5}, "u": {0: 1}})
    {'t': {0: 5, 1: 3}}
    """
    return {
        topic: {p: min(offset, begun.get(topic, {}).get(p, offset)) for p, offset in parts.items()}
        for topic, parts in offsets.items()
    }


def agreed(
    before: Claim,
    at: Claim,
    wanted: Watermark,
    due: Mapping[str, int],
    epochs: Callable[[], EpochsState],
    views: Collection[str] = (),
) -> Claim:
    """A store's new place, of which every position agrees with the epoch that it claims (``wanted``), and with those
    that it is swept below (``due``).

    Others may note an epoch that begins below what was read, and was read as an earlier one. To sweep below it, or to
    claim it, would take rows away that are there: then SnapshotAgain, and the store reads them again.
    ``before``: its place so far, with ``noted`` 0 where records bear their own epoch: it is beyond a beginning whose
    records it has read as such. So do documents: topics of ``views`` are not compared. The notes are asked for
    (``epochs``, which may raise LogError) where an epoch is new to it.
    """
    at = at._replace(offsets=wanted.offsets, noted=before.noted and (at.noted or before.noted))
    newest = max([wanted.epoch, *due.values()])
    if not before.noted or newest <= at.noted == before.noted:
        return at
    known = epochs()
    for place in (before, at):
        begun = {topic: parts for topic, parts in known.behind(place.noted).items() if topic not in views}
        if rewound(place.offsets, begun) != place.offsets:
            raise SnapshotAgain("another epoch has begun: it is read from its beginning")
    return at._replace(noted=max(known.latest, newest))
