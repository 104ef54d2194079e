"""Where Debezium stopped in each partition: the newest change that it wrote there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from cdc.progress import Offsets
from cdc.settings import LogSettings
from cdc.wire.format import SOURCE
from connectors.kafka.compacted import read_range

_LAST_RECORDS = 500
Lane = tuple[str, int]
"""topic, partition"""


@dataclass(frozen=True, slots=True)
class StreamedPlace:
    """The newest streamed change of a partition: its transaction, the LSN of its record, and how many records of
    that LSN the partition holds at its end, tombstones included. ``behind``: where the commit before it ended."""

    transaction: int
    lsn: int
    count: int
    behind: int


def newest_places(settings: LogSettings, ends: Offsets) -> dict[Lane, StreamedPlace]:
    """The place of each partition that has one: without a streamed record of Debezium's there is none."""
    found: dict[Lane, StreamedPlace] = {}
    for topic, parts in ends.items():
        for partition, end in parts.items():
            place = _newest(settings, topic, partition, end)
            if place is not None:
                found[topic, partition] = place
    return found


def _newest(settings: LogSettings, topic: str, partition: int, end: int) -> StreamedPlace | None:
    span = _LAST_RECORDS
    while end > 0:
        low = max(0, end - span)
        messages = ((m.key(), m.value()) for m in read_range(settings, topic, partition, low))
        place = newest_place(messages, whole=low == 0)
        if place is not None or low == 0:
            return place
        span *= 100
    return None


def newest_place(records: Iterable[tuple[Any, Any]], *, whole: bool = True) -> StreamedPlace | None:
    """The place of a partition by its last records in their order. None when they show none, or not all of it.

    ``whole``: whether they begin where the partition begins.
    """
    place: StreamedPlace | None = None
    counts_from_start = False
    key = None
    for at, (found_key, value) in enumerate(records):
        if value is None:
            if place is not None and found_key == key:
                place = StreamedPlace(place.transaction, place.lsn, place.count + 1, place.behind)
            continue
        source = _source(value)
        key = found_key
        if source is None or source.get("snapshot") not in ("false", None, False) or "commit_lsn" in source:
            continue
        transaction, lsn = int(source["txId"]), int(source["lsn"])
        if place is not None and (place.transaction, place.lsn) == (transaction, lsn):
            place = StreamedPlace(transaction, lsn, place.count + 1, place.behind)
        else:
            place = StreamedPlace(transaction, lsn, 1, int(orjson.loads(source["sequence"])[0] or 0))
            counts_from_start = at == 0
    return None if counts_from_start and not whole else place


def _source(value: bytes) -> Mapping[str, Any] | None:
    document = orjson.loads(value)
    if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
        document = document["payload"]
    source = document.get(SOURCE) if isinstance(document, dict) else None
    return source if isinstance(source, dict) and source.get("txId") is not None else None
