"""The steps from changed rows up to the keys of the documents that they concern, and of keeping those keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from cdc.views.lookups import Row
from spark.views.bucket_files import GONE, HASH, PENDING, PUBLISHED, TURN, BucketFile, entries, values
from spark.views.exchange import Parcel, gathered
from spark.views.view_parts import Files, ShippedView, ViewParts, members_of, present, said, told


def key_name(key: Sequence[Any]) -> str:
    """A root's key as text."""
    return orjson.dumps(key).decode()


def key_of(name: str) -> Row:
    """:func:`key_name` read back."""
    return tuple(orjson.loads(name))


@dataclass(frozen=True, slots=True)
class WalkUp:
    """One step up, from the values of rows to the rows above. ``files``: of the state before or behind the batch.

    ``tag``: of the walk, for its next step.
    """

    shipped: ShippedView
    files: Files
    tag: int

    def __call__(self, found: Iterator[Parcel]) -> Iterator[Parcel]:
        parts, files = self.shipped.parts(), self.shipped.parts().files()
        for place, of_place in gathered(found).items():
            by_step: dict[int, set[Row]] = {}
            for number, link in members_of(of_place):
                by_step.setdefault(number, set()).add(tuple(link))
            links = {link for wanted in by_step.values() for link in wanted}
            copy, rows = parts.found(files, self.files, place, links)
            for number, wanted in by_step.items():
                above = [row for row in rows if copy.link(row) in wanted]
                reaches = parts.walks.up[number].reaches
                if parts.walks.is_root(reaches):
                    yield from parts.root_keys({row[: len(copy.relation.key)] for row in above})
                else:
                    yield from parts.asks(self.tag, parts.walks.up[reaches], above)
        yield said("read", files.read_bytes)


@dataclass(frozen=True, slots=True)
class KeepKeys:
    """Keys of documents wait to be published. ``files``: of the keys that wait already.

    ``published``: something is published under each of them, and nobody here knows what. ``waits``: whether they wait.
    """

    shipped: ShippedView
    files: Files
    turn: int
    published: bool = False
    waits: bool = True

    def __call__(self, found: Iterator[Parcel]) -> Iterator[Parcel]:
        parts, files = self.shipped.parts(), self.shipped.parts().files()
        count = 0
        for place, of_place in gathered(found).items():
            bucket = place % self.shipped.buckets
            names = dict.fromkeys(key_name(key) for key in members_of(of_place))
            if self.published:
                files.write(PUBLISHED, bucket, published_table(parts, [(name, b"") for name in names], self.turn))
            if not self.waits:
                continue
            waited = files_of(self.files, PENDING.table, bucket)
            known = waiting_names(files.newest(PENDING, waited))
            new = [name for name in names if name not in known]
            count += len(new)
            if new:
                columns: dict[str, list[Any]] = {HASH: [root_hash(parts, key_of(name)) for name in new], "key": new}
                # A view that may not publish gets keys for hours, in files that each batch reads (H245).
                files.add(PENDING, bucket, waited, entries(PENDING, columns))
        yield told(files)
        yield said("waiting", count)


def waiting_names(table: pa.Table) -> set[str]:
    """The names of the keys in entries."""
    return set(values(table, "key"))


def root_hash(parts: ViewParts, key: Row) -> int:
    """The hash of a root's key."""
    root = parts.layout.root
    return parts.layout.place(root, root.found_by(key))[1]


def published_table(parts: ViewParts, digests: Iterable[tuple[str, bytes | None]], turn: int) -> pa.Table:
    """Entries of what is published: names of keys and digests, None for a document that went."""
    found = list(digests)
    columns: dict[str, list[Any]] = {
        HASH: [root_hash(parts, key_of(name)) for name, _ in found],
        TURN: [turn] * len(found),
        GONE: [digest is None for _, digest in found],
        "key": [name for name, _ in found],
        "digest": [digest for _, digest in found],
    }
    return entries(PUBLISHED, columns)


def published_digests(parts: ViewParts, table: pa.Table) -> dict[str, bytes]:
    """Names of keys to digests, from entries of what is published."""
    there = present(table)
    return dict(zip(values(there, "key"), values(there, "digest"), strict=True))


def files_of(listed: Files, table: str, bucket: int) -> Sequence[BucketFile]:
    """The files of a bucket of a table."""
    return listed.get(table, {}).get(bucket, ())
