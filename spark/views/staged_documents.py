"""Finished documents as executors have staged them: the driver reads them as bytes and hands them on, unparsed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import orjson
import pyarrow.parquet as pq

from cdc.views.view_records import ViewRecord

_READ_ROWS = 2_000


def staged_records(paths: Iterable[Path], topic: str) -> Iterator[ViewRecord]:
    """The records of files, in their order."""
    for path in paths:
        with pq.ParquetFile(path) as opened:
            for batch in opened.iter_batches(_READ_ROWS):
                columns = batch.to_pydict()
                rows = (columns["partition"], columns["key"], columns["value"], columns["headers"])
                for partition, key, value, headers in zip(*rows, strict=True):
                    pairs = [(name, text.encode()) for name, text in orjson.loads(headers)]
                    yield ViewRecord(topic, partition, key, value, pairs)


def staged_pieces(
    paths: Sequence[Path], topic: str, most: int, last: Sequence[ViewRecord]
) -> Iterator[tuple[list[ViewRecord], bool]]:
    """Records in pieces of about ``most``, each with whether it is the last. ``last``: records that end it.

    The records of a key stand in one piece: a deletion is two.
    """
    piece: list[ViewRecord] = []
    for record in staged_records(paths, topic):
        if len(piece) >= most and record.key != piece[-1].key:
            yield piece, False
            piece = []
        piece.append(record)
    yield [*piece, *last], True
