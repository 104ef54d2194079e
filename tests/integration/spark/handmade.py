"""A pipeline's topics filled by hand: what capture would have written, without a Postgres."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from confluent_kafka import Producer

from cdc.capture.topic_specs import TopicSpec, pipeline_topic_specs, table_topic_spec
from cdc.record.position import Position
from cdc.record.progress import PROGRESS_KEY, Offsets, Progress
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName, partition_of, progress_topic, schema_topic, state_topic, table_topic
from cdc.settings.model import LogSettings, Settings, parse
from connectors.kafka.admin import TopicAdmin, topics_state
from connectors.kafka.clients import producer_config
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from sinks.contract.port import OpenSink
from tests.waiting import TIME_SCALE

FIRST_LSN = 0x1000000


def orders_schema(name: str, table: str = "orders", *, extra: Sequence[Column] = ()) -> TableSchema:
    """A table with a number as key, a text and a numeric; ``extra`` columns behind."""
    return TableSchema(
        table=TableName("public", table),
        topic=table_topic(name, TableName("public", table)),
        version=1,
        oid=16400,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=(
            Column(name="id", attnum=1, type="int8", type_oid=20, kind="int8", nullable=False, key_position=1),
            Column(name="status", attnum=2, type="text", type_oid=25, kind="text"),
            Column(name="total", attnum=3, type="numeric(12,2)", type_oid=1700, kind="numeric", typmod=(12 << 16) + 6),
            *extra,
        ),
    )


NOTE = Column(name="note", attnum=4, type="text", type_oid=25, kind="text")


@dataclass
class HandMadeLog:
    """Topics of one pipeline; every record goes where capture would have put it, with a position of its own."""

    name: str
    bootstrap_servers: str
    partitions: int = 2
    compaction_lag: str = "1m"
    tables: Sequence[str] = ("orders",)
    lsn: int = FIRST_LSN
    time_ms: int = 0
    """Of the records that are written, for the cleaner. 0 for now."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark, under those that are asked for with the sinks."""
    shapes: dict[str, TableSchema] = field(default_factory=dict)
    rows: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """What a store has to show in the end: table -> key -> row as plain values."""

    def __post_init__(self) -> None:
        self.admin = TopicAdmin(self.log)
        self._producer = Producer(producer_config(self.log))

    @property
    def log(self) -> LogSettings:
        return LogSettings(
            bootstrap_servers=self.bootstrap_servers,
            partitions=self.partitions,
            min_compaction_lag=self.compaction_lag,
        )

    def document(self, sinks: Mapping[str, Mapping[str, Any]], **spark: Any) -> dict[str, Any]:
        """The settings of this pipeline with these sinks, section by section."""
        return {
            "source": {"dsn": "host=127.0.0.1 dbname=none", "tables": ["public.*"]},
            "log": {
                "bootstrap_servers": self.bootstrap_servers,
                "partitions": self.partitions,
                "min_compaction_lag": self.compaction_lag,
            },
            **{f"sinks.{sink}": dict(options) for sink, options in sinks.items()},
            "spark": {"http_address": "", **spark, "conf": {**self.conf, **spark.get("conf", {})}},
        }

    def settings(self, sinks: Mapping[str, Mapping[str, Any]], **spark: Any) -> Settings:
        """Settings of this pipeline with these sinks."""
        return parse(tomllib.loads(self.toml(sinks, **spark)))

    def toml(self, sinks: Mapping[str, Mapping[str, Any]], **spark: Any) -> str:
        """The same as a settings file. A JSON scalar or list is a TOML one."""
        lines = [f'name = "{self.name}"']
        for section, options in self.document(sinks, **spark).items():
            lines.append(f"[{section}]")
            lines += [
                f"{name} = {orjson.dumps(value).decode()}"
                for name, value in options.items()
                if not isinstance(value, dict)
            ]
            for name, inner in options.items():
                if isinstance(inner, dict):
                    lines.append(f"[{section}.{name}]")
                    lines += [f'"{key}" = {orjson.dumps(value).decode()}' for key, value in inner.items()]
        return "\n".join(lines) + "\n"

    def init(self) -> None:
        """What ``cdc init`` makes: topics, their state, and the first shapes."""
        specs = pipeline_topic_specs(self.log, self.name)
        specs += [self.spec(orders_schema(self.name, table).topic) for table in self.tables]
        self.admin.create(specs)
        for table in self.tables:
            self.add_shape(orders_schema(self.name, table))
        self.note_topics()

    def spec(self, topic: str) -> TopicSpec:
        """A table's topic as ``cdc init`` makes it."""
        return table_topic_spec(self.log, topic)

    def note_topics(self) -> None:
        """Note the topics as they are now in the state topic."""
        topics = {str(shape.table): shape.topic for shape in self.shapes.values()}
        facts = self.admin.describe(topics.values())
        state = topics_state(facts, topics, self.admin.cluster_id(), "readable")
        KafkaCompactedTopic(self.log, state_topic(self.name)).write([(state.key(), state.to_json())])

    def add_shape(self, shape: TableSchema) -> TableSchema:
        """A new version of a table's shape, as the schema topic numbers it."""
        registered = SchemaRegistry(KafkaCompactedTopic(self.log, schema_topic(self.name))).register(shape)
        self.shapes[shape.table.table] = registered
        return registered

    def topic(self, table: str = "orders") -> str:
        return self.shapes[table].topic

    def put(self, rows: Iterable[Mapping[str, Any]], *, table: str = "orders", op: str = "u") -> None:
        """Write rows, each in a transaction of its own; a row of its key alone is a delete."""
        shape = self.shapes[table]
        shown = self.rows.setdefault(table, {})
        names = [column.name for column in shape.columns]
        for row in rows:
            self.lsn += 64
            key = orjson.dumps({"id": row["id"]})
            if len(row) == 1:
                shown.pop(str(row["id"]), None)
                self._send(shape, key, envelope(shape, "d", row, None, self.lsn), "d", 1)
                self._send(shape, key, None, "d", 2)
            else:
                shown[str(row["id"])] = {name: row.get(name) for name in names}
                self._send(shape, key, envelope(shape, op, None, row, self.lsn), op, 1)
        self.flush()

    def truncate(self, table: str = "orders") -> None:
        """A ``t`` event to every partition."""
        self.lsn += 64
        shape = self.shapes[table]
        self.rows[table] = {}
        key = orjson.dumps({"__truncate": str(shape.table)})
        for partition in range(self.partitions):
            value = envelope(shape, "t", None, None, self.lsn)
            self._send(shape, key, value, "t", 1, partition=partition)
        self.flush()

    def put_raw(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        *,
        table: str = "orders",
        partition: int = 0,
    ) -> None:
        """A record as somebody else might write it."""
        carried: Any = list(headers)
        self._producer.produce(self.topic(table), value, key, partition, headers=carried)
        self.flush()

    def headers(self, op: str = "u", *, table: str = "orders") -> list[tuple[str, bytes]]:
        """Sound headers with a position of their own."""
        self.lsn += 64
        return self._headers(self.shapes[table], op, 1)

    def flush(self) -> None:
        assert self._producer.flush(30 * TIME_SCALE) == 0

    def shown(self, store: OpenSink, table: str = "orders") -> dict[str, dict[str, Any]]:
        """What a store shows of a table: key -> row as plain values."""
        return {
            stored["key"]: orjson.loads(stored["row"])
            for batch in store.reader.scan(self.shapes[table])
            for stored in batch.to_pylist()
            if not stored["deleted"]
        }

    def assert_shown(self, store: OpenSink, table: str = "orders") -> None:
        """That a store shows the table as it was written, row by row."""
        assert self.shown(store, table) == self.rows.get(table, {})

    def offsets(self) -> Offsets:
        """Where the tables' topics end."""
        return self.admin.end_offsets({shape.topic: self.partitions for shape in self.shapes.values()})

    def progress(self, lsn: int | None = None, *, epoch: int = 1, offsets: Offsets | None = None) -> int:
        """Write a progress record: everything so far, unless told otherwise. Returns its LSN."""
        lsn = self.lsn + 8 if lsn is None else lsn
        record = Progress(epoch=epoch, lsn=lsn, offsets=self.offsets() if offsets is None else offsets)
        KafkaCompactedTopic(self.log, progress_topic(self.name)).write([(PROGRESS_KEY, record.to_json())])
        return lsn

    def _send(
        self, shape: TableSchema, key: bytes, value: bytes | None, op: str, seq: int, partition: int | None = None
    ) -> None:
        where = partition_of(key, self.partitions) if partition is None else partition
        headers: Any = self._headers(shape, op, seq)
        while True:
            try:
                self._producer.produce(shape.topic, value, key, where, headers=headers, timestamp=self.time_ms)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _headers(self, shape: TableSchema, op: str, seq: int) -> list[tuple[str, bytes]]:
        pos = Position(1, self.lsn, seq).text()
        return [("pos", pos.encode()), ("op", op.encode()), ("ver", str(shape.version).encode())]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}" = {_toml(held)}' for name, held in value.items()) + "}"
    return orjson.dumps(value).decode()


def envelope(
    shape: TableSchema, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, lsn: int
) -> bytes:
    """A value as on the wire; columns the row does not name are null."""
    names = [column.name for column in shape.columns]

    def whole(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return None if row is None else {name: row.get(name) for name in names}

    source = {
        "version": "0.1.0", "connector": "postgresql", "name": shape.topic.split(".", maxsplit=1)[0],
        "ts_ms": 1760000000000, "snapshot": "false", "db": "shop", "sequence": f'["{lsn - 64}","{lsn}"]',
        "ts_us": 1760000000000000, "ts_ns": 1760000000000000000, "schema": shape.table.schema,
        "table": shape.table.table, "txId": 700, "lsn": lsn, "xmin": None, "origin": None, "origin_lsn": None,
        "epoch": 1, "commit_lsn": lsn, "tx_seq": 1,
    }  # fmt: skip
    return orjson.dumps(
        {
            "before": whole(before),
            "after": whole(after),
            "source": source,
            "transaction": None,
            "op": op,
            "ts_ms": 1760000000000,
            "ts_us": 1760000000000000,
            "ts_ns": 1760000000000000000,
        }
    )
