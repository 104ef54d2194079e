"""The steps from keys that wait to finished documents: the roots, the rows that they reach, and the rows' evaluation by
the plan's own program. A task writes documents to files, and the driver publishes them unread.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from cdc.position import Position
from cdc.topic import TableName
from cdc.views.bucket_layout import GatheredRows
from cdc.views.document_pieces import DocumentPiece, PieceMaker
from cdc.views.lookups import DocumentSource, Row
from cdc.views.view_records import ViewRecord, ViewRecords
from spark.views.bucket_files import DOCUMENTS, PENDING, PUBLISHED, BucketFiles, entries
from spark.views.exchange import ASKS, KEYS, ROWS, Parcel, gathered
from spark.views.view_parts import Files, ShippedView, ViewParts, members_of, parcels, said, told
from spark.views.walk_steps import (
    files_of,
    key_name,
    key_of,
    published_digests,
    published_table,
    root_hash,
    waiting_names,
)

_MOST_ROOTS = 2_000
"""Documents that are evaluated together: their rows are in memory at once."""


@dataclass(frozen=True, slots=True)
class TakeRoots:
    """For each bucket of roots the keys that are due, what was published under them, and the roots' rows.

    ``whole``: all roots and all that is published are due. A payload has keys that are due beside those that wait.
    ``shares``: into how many parts the roots of a bucket are divided. The next steps' targets are such shares.
    """

    shipped: ShippedView
    files: Files
    shares: int
    whole: bool

    def __call__(self, found: Iterator[Parcel]) -> Iterator[Parcel]:
        parts, files = self.shipped.parts(), self.shipped.parts().files()
        for place, of_place in gathered(found).items():
            bucket = place % self.shipped.buckets
            names = waiting_names(files.newest(PENDING, files_of(self.files, PENDING.table, bucket)))
            names |= {key_name(key) for key in members_of(of_place)}
            hashes = None if self.whole else sorted({root_hash(parts, key_of(name)) for name in names})
            published = files_of(self.files, PUBLISHED.table, bucket)
            known = published_digests(parts, files.newest(PUBLISHED, published, hashes))
            files.join(PUBLISHED, bucket, published)
            links = None if self.whole else {parts.layout.root.found_by(key_of(name)) for name in names}
            copy, rows = parts.found(files, self.files, place, links)
            width = len(copy.relation.key)
            if self.whole:
                names |= known.keys() | {key_name(row[:width]) for row in rows}
            yield from self._shared(parts, bucket, names, known, rows)
        yield told(files)

    def _shared(
        self, parts: ViewParts, bucket: int, names: Iterable[str], known: dict[str, bytes], rows: list[Row]
    ) -> Iterator[Parcel]:
        root = parts.layout.root
        keys: dict[int, list[list[Any]]] = {}
        for name in sorted(names):
            digest = known.get(name)
            kept = None if digest is None else b64encode(digest).decode()
            keys.setdefault(self._share(parts, bucket, key_of(name)), []).append([name, kept])
        for share, of_share in keys.items():
            yield from parcels(share, KEYS, of_share)
        by_share: dict[int, list[Row]] = {}
        for row in rows:
            by_share.setdefault(self._share(parts, bucket, row[: len(root.relation.key)]), []).append(row)
        for share, of_rows in by_share.items():
            if share in keys:
                yield from rows_found(parts, share, root.relation.table, of_rows)
                yield from _downward(parts, share, parts.plan.root.number, of_rows)

    def _share(self, parts: ViewParts, bucket: int, key: Row) -> int:
        return bucket * self.shares + root_hash(parts, key) // self.shipped.buckets % self.shares


def rows_found(parts: ViewParts, share: int, table: TableName, rows: list[Row]) -> Iterator[Parcel]:
    """Rows for the documents of a share."""
    number = parts.numbers[table]
    yield from parcels(share, ROWS, [[number, row] for row in rows])


def _downward(parts: ViewParts, share: int, number: int, rows: list[Row]) -> Iterator[Parcel]:
    """The rows that are looked up below others, for a share."""
    for step in parts.walks.below(number):
        by_place: dict[int, list[Any]] = {}
        for link in step.links(rows):
            by_place.setdefault(parts.layout.place(step.copy, link)[0], []).append([share, step.number, link])
        for place, found in by_place.items():
            yield from parcels(place, ASKS, found)


@dataclass(frozen=True, slots=True)
class LookDown:
    """One step down: rows by the values of those above, for each share that asks."""

    shipped: ShippedView
    files: Files

    def __call__(self, found: Iterator[Parcel]) -> Iterator[Parcel]:
        parts, files = self.shipped.parts(), self.shipped.parts().files()
        for place, of_place in gathered(found).items():
            asked: dict[tuple[int, int], set[Row]] = {}
            for share, number, link in members_of(of_place):
                asked.setdefault((share, number), set()).add(tuple(link))
            copy, rows = parts.found(files, self.files, place, {link for links in asked.values() for link in links})
            index: dict[Row, list[Row]] = {}
            for row in rows:
                index.setdefault(copy.link(row), []).append(row)
            for (share, number), links in asked.items():
                below = [row for link in links for row in index.get(link, ())]
                if below:
                    yield from rows_found(parts, share, copy.relation.table, below)
                    yield from _downward(parts, share, number, below)
        yield said("read", files.read_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeDocuments:
    """Documents of each share, evaluated and written. ``parked``: names of keys that were parked before.

    ``view``, ``topic``, ``partitions``, ``name`` and ``database``: as :class:`cdc.views.view_records.ViewRecords` has
    them. ``largest``: bytes of a document. ``shares``: as in :class:`TakeRoots`.
    ``above``: the position that records are numbered above.
    """

    shipped: ShippedView
    turn: int
    shares: int
    view: str
    topic: str
    partitions: int
    name: str
    database: str
    largest: int
    above: Position
    now_ns: int
    parked: frozenset[str]

    def __call__(self, found: Iterator[Parcel]) -> Iterator[Parcel]:
        parts, files = self.shipped.parts(), self.shipped.parts().files()
        records = ViewRecords(
            parts.plan, self.view, self.topic, self.partitions, name=self.name, database=self.database
        )
        maker, source = PieceMaker(records, None, self.largest), DocumentSource(parts.plan)
        for share, of_share in sorted(gathered(found).items()):
            keys = dict(members_of(one for one in of_share if one.tag == KEYS))
            tables: dict[TableName, list[Row]] = {}
            for number, row in members_of(one for one in of_share if one.tag == ROWS):
                tables.setdefault(parts.tables[number], []).append(tuple(row))
            rows = GatheredRows(parts.layout, tables)
            computed = source.of(rows, [key_of(name) for name in keys])
            known = {key_of(name): b64decode(kept) for name, kept in keys.items() if kept is not None}
            piece = maker.of(computed, {}, known, (), self.above, self.now_ns)
            yield from self._written(parts, files, share, piece, keys)
        yield told(files)

    def _written(
        self, parts: ViewParts, files: BucketFiles, share: int, piece: DocumentPiece, keys: Iterable[str]
    ) -> Iterator[Parcel]:
        if piece.written:
            files.write(DOCUMENTS, share, documents_table(piece.written))
        if piece.digests:
            digests = [(key_name(key), digest) for key, digest in piece.digests.items()]
            files.write(PUBLISHED, share // self.shares, published_table(parts, digests, self.turn))
        reasons = {key_name(key): reason for key, reason in piece.parked.items()}
        for name, reason in reasons.items():
            yield said("parked", name, reason)
        done = [name for name in keys if name in self.parked and name not in reasons]
        if done:
            yield said("done", done)
        gone = sum(1 for digest in piece.digests.values() if digest is None)
        yield said("made", len(piece.digests) - gone, gone)


def documents_table(records: Iterable[ViewRecord]) -> pa.Table:
    """Records for the view's topic as they are staged."""
    found = list(records)
    headers = [orjson.dumps([[name, (value or b"").decode()] for name, value in one.headers]).decode() for one in found]
    columns: dict[str, list[Any]] = {
        "partition": [one.partition for one in found],
        "key": [one.key for one in found],
        "value": [one.value for one in found],
        "headers": headers,
    }
    return entries(DOCUMENTS, columns)


def shares_for(waiting: int, buckets: int) -> int:
    """Into how many shares each bucket of roots is divided.

    >>> shares_for(100, 64), shares_for(1_000_000, 64)
    (1, 8)
    """
    return max(1, -(-waiting // (buckets * _MOST_ROOTS)))
