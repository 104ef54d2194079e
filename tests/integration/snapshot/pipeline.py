"""A pipeline under test: its settings, its source, and what a store would make of its topics and its slot."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import orjson
import psycopg
from psycopg import sql

from cdc.record.position import Position
from cdc.record.schema import TableSchema
from cdc.record.state import ChunkState, RequestState, SlotIntent, SlotState, SnapshotState, TopicsState
from cdc.record.topic_names import TableName, partition_of
from cdc.settings.mask_rules import NO_MASKS
from cdc.settings.model import Settings, parse
from cdc.wiring import open_schemas, open_source, open_state
from cdc.wiring.pipeline import build_snapshot, prepare_pipeline
from connectors.kafka.compacted_topic import read_range
from connectors.operate.snapshot import SnapshotEdges
from connectors.postgres.encoding.encoder import TableEncoder, compile_table
from connectors.postgres.protocol.messages import UNCHANGED, Delete, Insert, Relation, Truncate, Tuple, Update
from connectors.postgres.protocol.pgoutput import decode
from connectors.postgres.server.catalog_shapes import table_schema
from snapshot.first.row_writer import ChunkTask
from snapshot.first.slot_creation import open_cut
from snapshot.first.summary import Summary
from snapshot.source.read_transaction import copy_out
from tests.settings_file import write_settings

Session = psycopg.Connection[Any]
Row = dict[str, Any]
Store = dict[bytes, Row]
"""Key JSON -> row, as the newest record of each key has it."""


class Told:
    """A reporter that keeps what it is told, and does at the ``n``-th progress what a test wants done there."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.shares: dict[str, float] = {}
        self._calls = 0
        self._due: list[tuple[int, Any]] = []

    def after(self, calls: int, action: Any) -> None:
        """Run ``action`` at that call of :meth:`progress`."""
        self._due.append((calls, action))

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def plan(self, tables: Any) -> None:
        self.shares |= dict.fromkeys(tables, 0.0)

    def progress(self, table: str, rows: int, share: float) -> None:
        self.shares[table] = share
        self._calls += 1
        for calls, action in list(self._due):
            if self._calls >= calls:
                self._due.remove((calls, action))
                action()

    def text(self) -> str:
        return "\n".join(self.sentences)


@dataclass
class Pipeline:
    """``document``: the settings, to be changed before :attr:`settings` is read."""

    dsn: str
    document: dict[str, Any]
    folder: Path
    told: Told = field(default_factory=Told)

    @property
    def settings(self) -> Settings:
        return parse(self.document)

    @property
    def name(self) -> str:
        return str(self.document["name"])

    def session(self) -> Session:
        return psycopg.connect(self.dsn, autocommit=True)

    def execute(self, *statements: str) -> None:
        with self.session() as session:
            for statement in statements:
                session.execute(statement.encode())

    def one(self, statement: str, *values: object) -> Any:
        with self.session() as session:
            row = session.execute(statement.encode(), values or None).fetchone()
            return row[0] if row else None

    def prepare(self) -> None:
        """What ``cdc init`` does."""
        prepare_pipeline(self.settings)

    def run(self, *, workers: int = 2, rows: bool = True) -> Summary:
        """What ``cdc snapshot`` does, in this process."""
        return build_snapshot(self.settings, self.told, workers=workers).run(rows=rows)

    def edges(self) -> SnapshotEdges:
        return SnapshotEdges(self.settings)

    def config(self) -> Path:
        """The settings as a file."""
        return write_settings(self.folder, self.document)

    def task(self, session: Session, snapshot: str, table: str = "t") -> ChunkTask:
        """A chunk of the whole table, as planned now, in the cut ``snapshot``."""
        oid = self.one(f"select '{table}'::regclass::oid::int8")
        filenode = self.one(f"select pg_relation_filenode('{table}')::int8")
        with closing(open_cut(self.edges().source)) as holder:
            cut = holder.cut
        topic = f"{self.name}.public.{table}"
        schema = table_schema(session, oid, topic=topic, encoding="readable", masks=NO_MASKS, version=1)
        leaf = f"public.{table}"
        return ChunkTask(
            chunk=ChunkState(table=leaf, leaf=leaf, number=1, filenode=filenode, low=0, high=None),
            leaf=TableName("public", table),
            leaf_oid=oid,
            schema=schema,
            partition_count=3,
            condition=None,
            cut=replace(cut, snapshot=snapshot),
            position=Position(1, 1, 0),
        )

    # What the topics hold.

    def state(self) -> dict[bytes, bytes]:
        return dict(open_state(self.settings).read())

    def head(self) -> SnapshotState | None:
        return SnapshotState.find(self.state())

    def intent(self) -> SlotIntent | None:
        return SlotIntent.find(self.state())

    def slot(self) -> SlotState:
        found = SlotState.find(self.state())
        assert found is not None
        return found

    def chunks(self) -> list[ChunkState]:
        return [ChunkState.from_json(value) for key, value in self.state().items() if b'"chunk"' in key]

    def requests(self) -> dict[str, RequestState]:
        found = [RequestState.from_json(value) for key, value in self.state().items() if b'"request"' in key]
        return {request.table: request for request in found}

    def schema(self, table: str) -> TableSchema:
        schema_name, _, name = table.partition(".")
        found = open_schemas(self.settings).latest(TableName(schema_name, name))
        assert found is not None, table
        return found

    def records(self, topic: str) -> list[Record]:
        """Every record of a topic, partition by partition in order."""
        topics = TopicsState.find(self.state())
        assert topics is not None
        found = []
        for partition in range(topics.topics[topic]["partitions"]):
            for message in read_range(self.settings.log, topic, partition):
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                headers = dict(cast("list[tuple[str, bytes]]", message.headers() or []))
                found.append(Record(key, orjson.loads(value), partition, headers))
        return found

    def copied(self, table: str) -> Store:
        """The newest row of every key in a table's topic; checks what holds of each record."""
        schema, slot = self.schema(table), self.slot()
        topics = TopicsState.find(self.state())
        assert topics is not None
        count = topics.topics[schema.topic]["partitions"]
        store: Store = {}
        for record in self.records(schema.topic):
            assert Position.parse(record.headers["pos"].decode()) == Position(slot.epoch, slot.consistent_point, 0)
            assert record.headers["op"] == b"r"
            assert record.partition == partition_of(record.key, count)
            assert record.value["op"] == "r"
            assert record.value["before"] is None
            store[record.key] = record.value["after"]
        return store

    # What the source holds, and what the slot will say.

    def encoder(self, table: str) -> TableEncoder:
        return compile_table(self.schema(table), name=self.name, database="test", masks=NO_MASKS)

    def source(self, table: str) -> Store:
        """A table's rows now, as they would be written."""
        schema, encoder = self.schema(table), self.encoder(table)
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in schema.columns)
        statement = sql.SQL("copy (select {} from {}) to stdout").format(
            columns, sql.Identifier(schema.table.schema, schema.table.table)
        )
        with closing(open_source(self.settings)) as session:
            lines = [line for block in copy_out(session, statement.as_bytes(session)) for line in block]
        pairs = [encoder.snapshot_line(line) for line in lines]
        return {key: orjson.loads(row) for key, row in pairs}

    def stream(self, stores: dict[str, Store]) -> dict[str, Store]:
        """Apply what the slot holds to ``stores`` (by table), as a sink would, whole transactions in order."""
        with self.session() as session:
            messages = session.execute(
                b"select data from pg_logical_slot_peek_binary_changes(%s, null, null, 'proto_version', '1',"
                b" 'publication_names', %s)",
                [self.settings.slot, f'"{self.settings.publication}"'],
            ).fetchall()
        applier = _Applier(self, stores)
        for (payload,) in messages:
            applier.apply(decode(bytes(payload)))
        return stores

    def followed(self, tables: Sequence[str]) -> dict[str, Store]:
        """What a store holds once it has read the topics and then the stream to its end."""
        return self.stream({table: self.copied(table) for table in tables})

    def assert_equal(self, *tables: str) -> None:
        """The stores would show the source: nothing lost, nothing extra."""
        followed = self.followed(tables)
        for table in tables:
            source = self.source(table)
            lost = sorted(source.keys() - followed[table].keys())
            extra = sorted(followed[table].keys() - source.keys())
            other = sorted(key for key in source.keys() & followed[table].keys() if source[key] != followed[table][key])
            assert not lost, f"{table}: {len(lost)} rows are lost: {lost[:3]}"
            assert not extra, f"{table}: {len(extra)} rows are extra: {extra[:3]}"
            assert not other, f"{table}: {len(other)} rows differ: {other[:3]} {[source[k] for k in other[:3]]}"


@dataclass(frozen=True)
class Record:
    key: bytes
    value: Any
    partition: int
    headers: dict[str, bytes]


class _Applier:
    """The simplest sink there is: dictionaries."""

    def __init__(self, pipeline: Pipeline, stores: dict[str, Store]) -> None:
        self._pipeline = pipeline
        self._stores = stores
        self._encoders: dict[int, TableEncoder] = {}
        self._captured = set(open_schemas(pipeline.settings).tables())

    def apply(self, message: object) -> None:
        match message:
            case Relation():
                # Of a partition both its own and its root's are sent; rows come under the root's.
                if TableName(message.schema, message.table) in self._captured:
                    encoder = self._pipeline.encoder(f"{message.schema}.{message.table}")
                    self._encoders[message.relation_oid] = encoder
            case Insert():
                self._write(message.relation_oid, message.new)
            case Update():
                former = message.old or message.key
                if former is not None and self._key(message.relation_oid, former) != self._key(
                    message.relation_oid, message.new
                ):
                    kept = self._store(message.relation_oid).pop(self._key(message.relation_oid, former), {})
                    self._write(message.relation_oid, message.new, kept)
                else:
                    self._write(message.relation_oid, message.new)
            case Delete():
                former = message.old or message.key
                assert former is not None
                self._store(message.relation_oid).pop(self._key(message.relation_oid, former), None)
            case Truncate():
                for oid in message.relation_oids:
                    self._store(oid).clear()
            case _:
                pass

    def _store(self, oid: int) -> Store:
        return self._stores.setdefault(str(self._encoders[oid].schema.table), {})

    def _key(self, oid: int, values: Tuple) -> bytes:
        return self._encoders[oid].key([value if isinstance(value, bytes) else None for value in values])

    def _write(self, oid: int, values: Tuple, kept: Row | None = None) -> None:
        encoder, store = self._encoders[oid], self._store(oid)
        key = self._key(oid, values)
        held = kept if kept is not None else store.get(key, {})
        row: Row = orjson.loads(encoder.row([value if isinstance(value, bytes) else None for value in values]))
        for column, value in zip(encoder.schema.columns, values, strict=True):
            if value is UNCHANGED:
                row[column.name] = held.get(column.name)
        store[key] = row
