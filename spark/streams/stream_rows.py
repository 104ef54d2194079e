"""Rows of a result as records of a table: the types as Postgres would have them, each value in its form on the wire.

Spark writes both JSON texts, of the key and of the row, in the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from cdc.process.errors import ConfigError, PoisonError
from cdc.record.position import Position
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import STREAM_SCHEMA, TableName, partition_of
from cdc.wire.envelope import Envelope, Headers, Stamp, record_headers
from cdc.wire.format import CREATE_OP, NEW_ROW, NO_OLD_ROW, NO_ROWS, POS, TRUNCATE_OP, UPDATE_OP
from cdc.wire.records import sweep_key, sweep_value

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_KINDS: Mapping[type[DataType], str] = {
    BooleanType: "bool",
    ByteType: "int2",
    ShortType: "int2",
    IntegerType: "int4",
    LongType: "int8",
    FloatType: "float4",
    DoubleType: "float8",
    StringType: "text",
    BinaryType: "bytea",
    DateType: "date",
    TimestampType: "timestamptz",
    TimestampNTZType: "timestamp",
    DecimalType: "numeric",
    StructType: "jsonb",
    ArrayType: "jsonb",
    MapType: "jsonb",
}
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"


_PLACE = ("reason", "topic", "partition", "offset", POS, "at_us")


_RECORD_BYTES = 1024
"""The bytes of a batch and a record around key and value, generously."""


class StreamRecord(NamedTuple):
    """A record to be written. ``key`` None: of an event that had none."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def shape_of(name: str, topic: str, result: StructType, key: Sequence[str]) -> TableSchema:
    """The shape of a stream's table. ConfigError for a column of the key that the result lacks or that has no order,
    and for one of a type that no table has."""
    for column in key:
        if column not in result.names:
            raise ConfigError(
                f"[streams.{name}] key names {column}, and the result has no such column",
                hint=f"its columns are {', '.join(result.names)}",
            )
        if _kind(name, column, result[column].dataType) in ("jsonb", "bytea", "float4", "float8"):
            raise ConfigError(
                f"[streams.{name}] key names {column}, whose type {result[column].dataType.simpleString()} is no key's",
                hint="window.start and window.end are timestamps; cast it to a text or a number in the text",
            )
    doubled = {one for one in result.names if result.names.count(one) > 1}
    if doubled:
        raise ConfigError(f"the result of the stream {name} has two columns {min(doubled)}", hint="call one otherwise")
    columns = tuple(
        Column(
            name=field.name,
            attnum=number,
            type=(kind := _kind(name, field.name, field.dataType)),
            type_oid=0,
            kind=kind,
            typmod=_typmod(field.dataType),
            key_position=list(key).index(field.name) + 1 if field.name in key else None,
        )
        for number, field in enumerate(result.fields, start=1)
    )
    return TableSchema(
        table=TableName(STREAM_SCHEMA, name),
        topic=topic,
        version=1,
        oid=0,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=columns,
    )


def _kind(stream: str, column: str, kind: DataType) -> str:
    found = next((name for of, name in _KINDS.items() if isinstance(kind, of)), None)
    if found is None:
        raise ConfigError(
            f"the column {column} of the stream {stream} has the type {kind.simpleString()}, which no table has",
            hint=f"cast it: cast({column} as string)",
        )
    return found


def _typmod(kind: DataType) -> int:
    return (kind.precision << 16 | kind.scale) + 4 if isinstance(kind, DecimalType) else -1


def json_texts(result: DataFrame, key: Sequence[str]) -> DataFrame:
    """The result as two texts of JSON, the key's and the row's."""
    columns = {field.name: _on_wire(field.name, field.dataType).alias(field.name) for field in result.schema.fields}
    keep = {"ignoreNullFields": "false"}
    return result.select(
        F.to_json(F.struct(*(columns[name] for name in key)), keep).alias("key"),
        F.to_json(F.struct(*columns.values()), keep).alias("row"),
    )


def _on_wire(name: str, kind: DataType) -> SparkColumn:
    column = F.col(f"`{name}`")
    if isinstance(kind, TimestampType | TimestampNTZType):
        return F.date_format(column, _TIME)
    if isinstance(kind, DateType):
        return F.date_format(column, "yyyy-MM-dd'Z'")
    if isinstance(kind, DecimalType):
        return column.cast("string")
    if isinstance(kind, BinaryType):
        return F.base64(column)
    if isinstance(kind, StructType | ArrayType | MapType):
        return F.to_json(column)
    return column


class ResultRecords:
    """Makes the records of one generation. ``name``: the pipeline's. ``mode``: of the stream. ``partition``: of a key,
    among so many, as :func:`cdc.record.topic_names.partition_of` has it."""

    def __init__(
        self, name: str, stream: str, topic: str, partitions: int, generation: int, mode: str, *,
        partition: Callable[[bytes, int], int],
    ) -> None:  # fmt: skip
        self._table = TableName(STREAM_SCHEMA, stream)
        self._envelope = Envelope(name, "", self._table)
        self._topic = topic
        self._partitions = partitions
        self._partition = partition
        self.generation = generation
        self._op = CREATE_OP if mode == "append" else UPDATE_OP

    def rows(self, batch: int, found: Sequence[tuple[str, str]], at_us: int, now_ns: int) -> list[StreamRecord]:
        """A batch's rows, each a key and a row as JSON, numbered in the order of the keys. PoisonError for two of one
        key."""
        begin = Position(self.generation, (batch + 1) << 3, 0)
        tail = self._tail(begin, self._op, at_us, now_ns)
        place, (_, *headers) = begin.text()[:-8].encode(), record_headers(begin, self._op, 1)
        records, before = [], None
        for number, (key, row) in enumerate(sorted(found), start=1):
            if key == before:
                raise PoisonError(
                    f"two rows of the stream {self._table.table} have the key {key} in batch {batch}",
                    hint="name a key that tells all rows of the result apart, then cdc stream rebuild",
                )
            before = key
            name, pos = key.encode(), (POS, b"%b%08x" % (place, number))
            value = b"%b%b%b%b" % (NO_OLD_ROW, NEW_ROW, row.encode(), tail % number)
            partition = self._partition(name, self._partitions)
            records.append(StreamRecord(self._topic, partition, name, value, [pos, *headers]))
        return records

    def sweep(self, batch: int, at_us: int, now_ns: int) -> list[StreamRecord]:
        """A mark in every partition: rows of the generations before are gone."""
        floor = Position(self.generation, 0, 0)
        pos = Position(self.generation, (batch + 1) << 3, 0)
        key = sweep_key(str(self._table))
        tail = self._tail(pos, TRUNCATE_OP, at_us, now_ns) % 0
        value = sweep_value(NO_ROWS + tail, floor.text(), self._partitions)
        headers = record_headers(pos, TRUNCATE_OP, 1)
        return [StreamRecord(self._topic, partition, key, value, headers) for partition in range(self._partitions)]

    def _tail(self, pos: Position, op: str, at_us: int, now_ns: int) -> bytes:
        stamp = Stamp(pos.epoch, pos.commit_lsn, at_us, now_ns, None)
        return self._envelope.tail(stamp, op.encode(), b"%d" % pos.commit_lsn, b"%d")


def set_apart_records(
    topic: str, partitions: int, limit_bytes: int, found: Sequence[Mapping[str, Any]], generation: int
) -> list[StreamRecord]:
    """Records that are set apart, as they were, with where they stand and why as headers. A value of more bytes than
    fit is left out, and a header says how many there were."""
    made = []
    for one in sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"])):
        place: dict[str, Any] = {"generation": generation} | {
            name: one[name] for name in ("reason", "topic", "partition", "offset", POS, "at_us")
        }
        headers = [(name, str(value).encode()) for name, value in place.items() if value is not None]
        partition = partition_of(one["key"], partitions) if one["key"] is not None else 0
        value = one["value"]
        if value is not None and len(value) + len(one["key"] or b"") + _RECORD_BYTES > limit_bytes:
            headers.append(("bytes", b"%d" % len(value)))
            value = None
        made.append(StreamRecord(topic, partition, one["key"], value, headers))
    return made
