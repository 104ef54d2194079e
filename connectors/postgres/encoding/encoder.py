"""Rows of one table as JSON: keys, rows and whole values, compiled once per version of its shape.

The stream's way is :attr:`TableEncoder.rows` (see :mod:`connectors.postgres.assembly.routes`), the snapshot's is
:attr:`TableEncoder.snapshot_line`. Both take raw bytes. :meth:`TableEncoder.row` and
:meth:`TableEncoder.key` are the long way for what the compiled functions leave: any value, column by column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cdc.process.errors import DecodeError
from cdc.record.schema import TableSchema
from cdc.settings.mask_rules import Masks
from cdc.wire.envelope import Envelope, Stamp, record_headers
from cdc.wire.format import NEW_ROW, NO_OLD_ROW, READ_OP
from cdc.wire.jsontree import name as member
from cdc.wire.types import CATALOG_KINDS, ENUM, EXTENSION_KINDS, OTHER, SPELLED
from connectors.postgres.encoding.compiled import Made, compile_rows, unescape
from connectors.postgres.encoding.masked_rows import MaskedValues
from connectors.postgres.encoding.wire_values import codec

__all__ = ["SnapshotEnvelope", "TableEncoder", "compile_table", "record_headers", "unescape"]

_HINT = "nothing was skipped; please report it with the column's type and the server's version"


@dataclass(frozen=True, slots=True)
class SnapshotEnvelope:
    """The bytes before and after the row in a snapshot record's value. Constant for a chunk."""

    prefix: bytes
    suffix: bytes


def compile_table(schema: TableSchema, *, name: str, database: str, masks: Masks) -> TableEncoder:
    """The encoder of one version of a table's shape, for the pipeline ``name`` on ``database``.

    Takes some milliseconds. Keep it as long as the version lasts. A table without a key has the key ``{}``.
    ConfigError where the shape lacks one of ``masks``, or has one of another key: no value is ever written as it is.
    """
    return TableEncoder(schema, Envelope(name, database, schema.table), MaskedValues(schema, masks))


class TableEncoder:
    """See :func:`compile_table`.

    ``lost`` counts by column the values that the encoding cannot express (numeric NaN and infinities under
    ``debezium``, written as null). ``snapshot_line(line)`` turns one line of COPY in text format, columns in
    the schema's order, into (key, row) and raises DecodeError. It masks what it reads. All else takes values that are
    masked already.
    """

    __slots__ = ("_encoders", "_key", "_labels", "_line", "_masked", "envelope", "lost", "rows", "schema")

    def __init__(self, schema: TableSchema, envelope: Envelope, masked: MaskedValues) -> None:
        self.schema = schema
        self.envelope = envelope
        self.lost: Counter[str] = Counter()
        self._masked = masked
        codecs = [codec(column, schema.encoding, self.lost) for column in schema.columns]
        self._encoders = [c.encode for c in codecs]
        self._labels = [member(column.name) for column in schema.columns]
        self._key = [schema.columns.index(column) for column in schema.key]
        self.rows = compile_rows([c.name for c in schema.columns], codecs, self._key)
        self._line: Callable[[bytes], Made] | None = None

    @property
    def snapshot_line(self) -> Callable[[bytes], Made]:
        """The function over lines of COPY. It is made when it is first asked for: the stream of thousands of tables
        needs none."""
        if self._line is None:
            self._line = self._snapshot_line()
        return self._line

    @property
    def key_columns(self) -> Sequence[int]:
        """Indexes of the key's columns, in key order."""
        return self._key

    def key(self, values: Sequence[bytes | None]) -> bytes:
        """Key JSON from a row's text values in column order. Only the key's columns are read."""
        return b"{%b}" % b",".join(self._member(i, values[i]) for i in self._key)

    def row(self, values: Sequence[bytes | None]) -> bytes:
        """Row JSON from text values in column order. Raises DecodeError."""
        if len(values) != len(self._encoders):
            raise self._error(f"a row of {len(values)} columns where {len(self._encoders)} were announced")
        return b"{%b}" % b",".join(self._member(i, value) for i, value in enumerate(values))

    def key_row(self, values: Sequence[bytes | None]) -> bytes:
        """A row of which only the key is known: every other column null (D3)."""
        known = (value if i in self._key else None for i, value in enumerate(values))
        return self.row(list(known))

    def placed(self, encoded: Sequence[bytes]) -> bytes:
        """Row JSON from values that are JSON already."""
        return b"{%b}" % b",".join(label + value for label, value in zip(self._labels, encoded, strict=True))

    def value(self, index: int, text: bytes | None) -> bytes:
        """One value as JSON. Raises DecodeError."""
        if text is None:
            return b"null"
        try:
            return self._encoders[index](text)
        except (ValueError, KeyError):
            column = self.schema.columns[index]
            raise self._error(f"a value of column {column.name} that is no {column.type}") from None

    def masked(self, index: int, text: bytes) -> bytes:
        """The text of a value as the source has it, masked if its column is."""
        return self._masked.value(index, text)

    def snapshot_envelope(  # noqa: PLR0913 - each is a field of the record
        self,
        *,
        marker: str,
        lsn: int,
        tx_id: int | None,
        epoch: int,
        commit_lsn: int,
        tx_seq: int = 0,
        source_ts_us: int,
        now_ns: int,
        op: str = READ_OP,
    ) -> SnapshotEnvelope:
        """The constant part of a chunk's values: prefix + row + suffix is an event's value.

        ``marker``: ``source.snapshot`` ("true", "first", "last", "incremental", ...). ``lsn``: the record LSN
        shown. ``commit_lsn`` and ``tx_seq``: the position. ``source_ts_us``: when the cut was taken.
        """
        stamp = Stamp(
            epoch=epoch,
            commit_lsn=commit_lsn,
            committed_us=source_ts_us,
            now_ns=now_ns,
            xid=tx_id,
            snapshot=marker.encode(),
        )
        tail = self.envelope.tail(stamp, op.encode(), b"%d" % lsn, b"%d" % tx_seq)
        # The tail is made for templates, where a percent sign stands doubled.
        return SnapshotEnvelope(prefix=NO_OLD_ROW + NEW_ROW, suffix=tail % ())

    def _member(self, index: int, text: bytes | None) -> bytes:
        return self._labels[index] + self.value(index, text)

    def _snapshot_line(self) -> Callable[[bytes], Made]:
        compiled, long_way = self.rows.line, self._long_line
        plain, loose = self.rows.row_templates

        def snapshot_line(line: bytes) -> Made:
            return compiled(line, plain, loose) or long_way(line)

        masked = self._masked.line
        return (lambda line: snapshot_line(masked(line, unescape))) if self._masked else snapshot_line

    def _long_line(self, line: bytes) -> Made:
        values = [unescape(field) for field in line.removesuffix(b"\n").split(b"\t")]
        row = self.row(values)
        return self.key(values), row

    def _error(self, what: str) -> DecodeError:
        return DecodeError(f"{self.schema.table}: {what}", hint=_HINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """A row of pg_type. ``element``: the array's element, 0 for every type that is not an array."""

    oid: int
    name: str
    schema: str
    kind: str
    base: int
    typmod: int
    element: int
    extension: str | None


class Resolved(NamedTuple):
    """The facts of a type that :class:`cdc.record.schema.Column` keeps."""

    kind: str
    array: bool
    typmod: int


def resolve(oid: int, typmod: int, types: Mapping[int, Type], *, keyed: bool = False) -> Resolved:
    """Kind, arrayness and typmod of a type, through domains. A type that is gone is ``other``.

    ``keyed``: of a column of the key. Different keys have different texts, so what has no such form is ``other`` (D26).
    """
    found = _resolved(oid, typmod, types)
    return Resolved(OTHER, False, -1) if keyed and (found.array or found.kind in SPELLED) else found


def _resolved(oid: int, typmod: int, types: Mapping[int, Type]) -> Resolved:
    base, typmod = _through_domains(oid, typmod, types)
    if base is None:
        return Resolved(OTHER, False, typmod)
    if not base.element:
        return Resolved(_kind(base), False, typmod)
    element, element_typmod = _through_domains(base.element, typmod, types)
    if element is None or element.element:
        # An element that is an array by a domain stands quoted in its parent's text: carried as that text.
        return Resolved(OTHER, True, -1)
    return Resolved(_kind(element), True, element_typmod)


def missing(oids: set[int], types: Mapping[int, Type]) -> set[int]:
    """Types that must be read too before all of ``oids`` resolve. Empty when all is there."""
    wanted = oids | {t.base for t in types.values() if t.base} | {t.element for t in types.values() if t.element}
    return wanted - types.keys()


def _through_domains(oid: int, typmod: int, types: Mapping[int, Type]) -> tuple[Type | None, int]:
    found = types.get(oid)
    while found is not None and found.kind == "d":
        if typmod < 0:
            typmod = found.typmod
        found = types.get(found.base)
    return found, typmod


def _kind(base: Type) -> str:
    if base.kind == "e":
        return ENUM
    if base.schema == "pg_catalog":
        return base.name if base.name in CATALOG_KINDS else OTHER
    if base.extension is not None and base.name in EXTENSION_KINDS:
        return base.name
    return OTHER
