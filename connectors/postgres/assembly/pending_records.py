"""Records held back until the values they lack are known, and everything behind them.

An update leaves out TOASTed columns it did not touch. Where neither the old row nor an earlier change of
the transaction brings them, the row's record waits, and so do all records after it, so that order stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeGuard

from cdc.record.ports import Headers, Record, Withheld
from cdc.record.schema import Column, TableSchema
from cdc.record.tables_aside import CannotFollow
from cdc.wire.envelope import read_at, reselected, seen_header
from cdc.wire.format import NEW_ROW, OLD_ROW, UNAVAILABLE
from cdc.wire.jsontree import quote
from connectors.postgres.encoding.encoder import TableEncoder
from connectors.postgres.encoding.wire_values import codec
from connectors.postgres.protocol.messages import UNCHANGED, Omitted, Unchanged

_RECORD_BYTES = 400
"""The memory of a record beside its key and value, roughly."""
_COMMIT = slice(8, 24)
"""Where the commit LSN stands in a position's text."""
HELD_ROWS = 64
"""How many rows are queried at once at most: how wide their values are is not known before."""
_ANSWER_BYTES = 8 << 20


class RowGone(Enum):
    """There is no such row any more, or its table or a column is gone or of another type."""

    GONE = "gone"


class Undecided(Enum):
    """Nobody can say now: the table is locked, or a commit is not visible yet."""

    LATER = "later"


GONE = RowGone.GONE
LATER = Undecided.LATER
Selected = tuple[bytes | Omitted | None, ...] | RowGone | Undecided


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRow:
    """Values to look up. ``key``: the key columns' text, in key order. ``columns``: indexes into schema.columns."""

    schema: TableSchema
    key: tuple[bytes, ...]
    columns: tuple[int, ...]


class Reselect(Protocol):
    """Looks up the newest values of rows in the source."""

    @property
    def seen_lsn(self) -> int:
        """The values of the last answer may be from any commit below it, and from none above."""

    def rows(self, wanted: Sequence[WantedRow], xids: Collection[int], *, brief: bool = False) -> Sequence[Selected]:
        """The wanted columns' text, or GONE, in the order of ``wanted``. Of text that no topic takes its length.

        An answer counts only if every transaction of ``xids`` (64 bit) is visible to the statement that gave
        it: right after its COMMIT message a transaction often is not yet. LATER for rows of a table that cannot
        be asked, or not with such an answer, within about two seconds. Within milliseconds if ``brief``.
        """


@dataclass(slots=True, kw_only=True)
class Pending:
    """A record whose row lacks values. ``before``: JSON. ``tail``: what follows the row in the value. ``lanes``: those
    of its topic. ``xid``: its transaction. ``gone``: what is written instead where there is no such row, the record
    with placeholders if that is empty. With it, nothing of the row is known from the change itself."""

    lane: int
    lanes: range
    xid: int
    key: bytes
    headers: Headers
    encoder: TableEncoder
    before: bytes
    values: list[bytes | Unchanged | None]
    tail: bytes
    gone: tuple[Record, ...] = ()

    @property
    def missing(self) -> list[int]:
        """The indexes of the columns that the change did not carry."""
        return [i for i, value in enumerate(self.values) if value is UNCHANGED]

    def record(self, answer: Answer) -> Record:
        """The record with what was found. Debezium's placeholder where the row is gone.

        The record says which values it has from the answer: they may be newer than the change.
        """
        encoder, found = self.encoder, answer.found
        selected = {} if isinstance(found, RowGone | Undecided) else dict(zip(answer.columns, found, strict=True))
        encoded = []
        for i, value in enumerate(self.values):
            if isinstance(value, Unchanged) and i not in selected:
                encoded.append(placeholder(encoder.schema.columns[i]))
                continue
            known = selected[i] if isinstance(value, Unchanged) else value
            if isinstance(known, Omitted):
                return self.lane, self.key, Withheld(known.size_bytes), self.headers
            encoded.append(encoder.value(i, known))
        tail = self.tail
        if self.gone:
            tail = read_at(tail, answer.seen_lsn)
        elif selected:
            columns = encoder.schema.columns
            tail = reselected(tail, [columns[i].name for i in self.missing if i in selected], answer.seen_lsn)
        value = b"".join((OLD_ROW, self.before, NEW_ROW, encoder.placed(encoded), tail))
        return self.lane, self.key, value, self.headers

    def removal(self, seen_lsn: int) -> Sequence[Record]:
        """The records to write where there is no such row, with the LSN up to which it may have gone."""
        found: list[Record] = []
        for lane, key, value, headers in self.gone:
            if value is None:
                found.append((lane, key, None, [*headers, seen_header(seen_lsn)]))
            else:
                known = value if isinstance(value, Withheld) else read_at(value, seen_lsn)
                found.append((lane, key, known, headers))
        return found


Entry = Record | Pending


class Answer(NamedTuple):
    """``columns``: those that were asked for. ``seen_lsn``: of :class:`Reselect`, as of this answer."""

    columns: tuple[int, ...]
    found: Selected
    seen_lsn: int = 0


Answers = Mapping[tuple[int, bytes], Answer]
"""By encoder and key."""


def lane_of(entry: Entry) -> int:
    """The lane of a record, complete or not."""
    return entry.lane if isinstance(entry, Pending) else entry[0]


def commit_of(entry: Entry) -> int:
    """The commit LSN of an entry."""
    headers = entry.headers if isinstance(entry, Pending) else entry[3]
    return int(headers[0][1][_COMMIT], 16)


def size_of(entry: Entry) -> int:
    """The memory of an entry in bytes, roughly."""
    if isinstance(entry, Pending):
        known = sum(len(value) for value in entry.values if isinstance(value, bytes))
        return known + len(entry.before) + len(entry.tail) + _RECORD_BYTES
    return len(entry[1]) + len(entry[2] or b"") + _RECORD_BYTES


def is_later(entry: Entry, answers: Answers) -> TypeGuard[Pending]:
    """Whether the answer for this entry's row is that it cannot be had yet."""
    return isinstance(entry, Pending) and answers[(id(entry.encoder), entry.key)].found is LATER


def completed(entry: Entry, answers: Answers) -> Sequence[Record]:
    """The records that an entry becomes: one, or those of a row that is gone."""
    if not isinstance(entry, Pending):
        return (entry,)
    answer = answers[(id(entry.encoder), entry.key)]
    if entry.gone and isinstance(answer.found, RowGone):
        return entry.removal(answer.seen_lsn)
    return (entry.record(answer),)


class PendingRecords:
    """The queue. ``size_bytes``: of what waits in it, ``full``: enough rows are to be queried."""

    def __init__(self, reselect: Reselect) -> None:
        self._reselect = reselect
        self._queue: list[Entry] = []
        self._rows: set[tuple[int, bytes]] = set()
        self._rows_at_once = HELD_ROWS
        self.size_bytes = 0

    @property
    def full(self) -> bool:
        """Whether to release now, so that the answer stays within memory. Fewer rows after wide ones."""
        return len(self._rows) >= self._rows_at_once

    def __bool__(self) -> bool:
        return bool(self._queue)

    def wait(self, pending: Pending) -> None:
        """A record that lacks values."""
        self._queue.append(pending)
        self._rows.add((id(pending.encoder), pending.key))
        self.size_bytes += size_of(pending)

    def follow(self, record: Record) -> None:
        """A record behind one that waits."""
        self._queue.append(record)
        self.size_bytes += size_of(record)

    def release(
        self, emit: Callable[[Record], None], later: Callable[[Entry, Pending], None], *, brief: bool = False
    ) -> None:
        """Look up what is missing and emit everything, in order. Records of a table whose rows cannot be read now go to
        ``later``, with an example of the rows. ``brief``: within milliseconds."""
        queue = self._queue
        answers = ask(self._reselect, [entry for entry in queue if isinstance(entry, Pending)], brief=brief)
        self._adapt([answer.found for answer in answers.values()])
        apart = {lane: entry for entry in queue if is_later(entry, answers) for lane in entry.lanes}
        for entry in queue:
            if (example := apart.get(lane_of(entry))) is not None:
                later(entry, example)
            else:
                for record in completed(entry, answers):
                    emit(record)
        self.clear()

    def oldest_of(self, lanes: Container[int]) -> int | None:
        """The lowest commit LSN of what waits of these lanes."""
        return min((commit_of(entry) for entry in self._queue if lane_of(entry) in lanes), default=None)

    def leave(self, lanes: Container[int]) -> None:
        """Drop what belongs to a table that is set aside."""
        self._queue = [entry for entry in self._queue if lane_of(entry) not in lanes]
        waiting = [entry for entry in self._queue if isinstance(entry, Pending)]
        self._rows = {(id(entry.encoder), entry.key) for entry in waiting}
        self.size_bytes = sum(map(size_of, self._queue))

    def clear(self) -> None:
        """Forget everything. The stream will bring it again."""
        self._queue = []
        self._rows = set()
        self.size_bytes = 0

    def _adapt(self, selected: Sequence[Selected]) -> None:
        """As many rows next time as fit if they are like these. After wide ones it grows back step by step."""
        found = sum(len(v) for row in selected if isinstance(row, tuple) for v in row if isinstance(v, bytes))
        fitting = _ANSWER_BYTES * len(selected) // max(found, 1)
        self._rows_at_once = max(1, min(HELD_ROWS, 2 * self._rows_at_once, fitting))


def ask(reselect: Reselect, waiting: Sequence[Pending], *, brief: bool = False) -> Answers:
    """One question per row, however many of its records wait. The answers are masked.

    CannotFollow for a table whose key is masked, by which no row can be found.
    """
    _require_plain_keys(waiting)
    columns: dict[tuple[int, bytes], set[int]] = {}
    example: dict[tuple[int, bytes], Pending] = {}
    for entry in waiting:
        place = (id(entry.encoder), entry.key)
        columns.setdefault(place, set()).update(entry.missing)
        example[place] = entry
    wanted = [
        WantedRow(
            schema=example[place].encoder.schema,
            key=_key_text(example[place]),
            columns=tuple(sorted(columns[place])),
        )
        for place in columns
    ]
    if not wanted:
        return {}
    selected = reselect.rows(wanted, frozenset(entry.xid for entry in waiting), brief=brief)
    seen_lsn = reselect.seen_lsn
    return {
        place: Answer(w.columns, _masked(example[place].encoder, w.columns, s), seen_lsn)
        for place, w, s in zip(columns, wanted, selected, strict=True)
    }


def _require_plain_keys(waiting: Sequence[Pending]) -> None:
    masked = {entry.encoder.schema.table for entry in waiting if entry.encoder.schema.masked_key}
    if masked:
        names = ", ".join(sorted(map(str, masked)))
        raise CannotFollow(
            f"an update of {names} left out values, and its key is masked, so they cannot be looked up",
            hint="alter table ... replica identity full, for it and each of its partitions; then cdc snapshot reads it",
            tables=sorted(masked),
        )


def _masked(encoder: TableEncoder, columns: Sequence[int], found: Selected) -> Selected:
    if isinstance(found, RowGone | Undecided):
        return found
    return tuple(
        encoder.masked(i, value) if isinstance(value, bytes) else value for i, value in zip(columns, found, strict=True)
    )


def placeholder(column: Column) -> bytes:
    """The value that Debezium writes where it has none, in the shape of the column's type.

    >>> placeholder(Column(name="a", attnum=1, type="text[]", type_oid=1009, kind="text", array=True))
    b'["__debezium_unavailable_value"]'
    """
    plain = UNAVAILABLE.encode()
    if column.array and column.kind in ("int2", "int4", "int8"):
        return b"[%b]" % b",".join(b"%d" % code for code in plain)
    text = quote(plain)
    if column.kind == "bytea":
        text = codec(_scalar(column), "readable").encode(b"\\x" + plain.hex().encode())
    elif column.kind == "hstore":
        text = quote(b"{%b:%b}" % (text, text))
    return b"[%b]" % text if column.array else text


def _scalar(column: Column) -> Column:
    return Column(name=column.name, attnum=column.attnum, type=column.type, type_oid=column.type_oid, kind=column.kind)


def _key_text(pending: Pending) -> tuple[bytes, ...]:
    found = [pending.values[i] for i in pending.encoder.key_columns]
    return tuple(value for value in found if isinstance(value, bytes))
