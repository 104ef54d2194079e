"""Older versions of a view's documents in its topic, collected while that is read whole. Pure.

A document may nest a deleted row without saying so. But each one has the position at which it was computed: those from
before the delete may nest the row. The newest of a key from before it cannot, once the view has passed the delete: it
would have been computed anew. Unless the view never computes it anew, as it does with a closed window (H302).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import orjson

from cdc.forget.key_history import SeenRecord
from cdc.forget.typed_key import TypedKey
from cdc.json_bytes import dumped
from cdc.position import Position
from cdc.schema import TableSchema
from cdc.wire.plain import PlainTable


class DocumentForm(NamedTuple):
    """Where a view's documents have values of rows, beside their members.

    ``in_keys``: their keys are of groups, so a tombstone and the memory of a delete have values. ``final``: some stay
    as they are, whatever is deleted.
    """

    in_keys: bool = False
    final: bool = False


PLAIN = DocumentForm()


class DocumentHistory:
    """Takes every record of a view's topic, each partition in its order.

    ``deleted``: the delete's position in the log. None where that is not known any more: every older version counts.
    ``older``: versions that may nest the row and that a newer record stands behind. ``newest_ms``: when the newest of
    those newer records was written. ``partition``: its own. ``ends``: by partition, the offset behind the last record.
    ``groups``: tombstones whose key has values. ``groups_ms``: when the newest of them was written.
    """

    def __init__(self, deleted: Position | None, form: DocumentForm = PLAIN) -> None:
        self._deleted = deleted
        self._form = form
        self._standing: dict[tuple[int, bytes], None] = {}
        self.older = self.newest_ms = self.partition = self.groups = self.groups_ms = 0
        self.ends: dict[int, int] = {}

    def take(self, record: SeenRecord) -> None:
        """The next record of its partition."""
        self.ends[record.partition] = record.offset + 1
        if record.floor or record.key is None:
            return
        # A digest: a view of millions of documents has as many keys.
        key = (record.partition, blake2b(record.key, digest_size=12).digest())
        if key in self._standing:
            del self._standing[key]
            self.older += 1
            if record.time_ms >= self.newest_ms:
                self.newest_ms, self.partition = record.time_ms, record.partition
        if record.value is not None and self._may_nest(record):
            self._standing[key] = None
        if record.value is None and self._form.in_keys:
            self.groups += 1
            self.groups_ms = max(self.groups_ms, record.time_ms)

    @property
    def final(self) -> int:
        """The newest versions that may have been made of the row, and that nothing computes anew."""
        return len(self._standing) if self._form.final else 0

    def _may_nest(self, record: SeenRecord) -> bool:
        if self._deleted is None:
            return True
        try:
            at = Position.parse(record.pos)
        except ValueError:
            return True
        # A fence is below everything that it does not hold.
        return (at.epoch, at.commit_lsn) <= (self._deleted.epoch, self._deleted.commit_lsn)


def late_rows(records: Iterable[SeenRecord], key: TypedKey, shape: TableSchema) -> int:
    """How many records of what came too late for a view's closed windows have a row of the key."""
    plain = PlainTable(shape)
    return sum(record.value is not None and _is_late_of(record.key, key, plain) for record in records)


def _is_late_of(name: bytes | None, key: TypedKey, plain: PlainTable) -> bool:
    try:
        return key.matches(plain.key(dumped(orjson.loads(name or b"")["row"])))
    except (ValueError, KeyError, TypeError):
        # Of another table: the view's rows are its root's.
        return False
