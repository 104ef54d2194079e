"""Values of every type, Postgres being the oracle: snapshot, stream and store say the same, and all comes back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import orjson
import psycopg
from psycopg.conninfo import make_conninfo

from cdc.record.ports import Record
from cdc.record.position import Position
from cdc.record.schema import Encoding, TableSchema
from cdc.settings.mask_rules import NO_MASKS
from cdc.wire.canonical import CanonicalTable
from cdc.wire.plain import PlainTable
from connectors.postgres.assembly.assembler import Assembler, AssemblerPorts, Pipeline
from connectors.postgres.assembly.pending_records import Undecided
from connectors.postgres.encoding.encoder import compile_table
from connectors.postgres.protocol.messages import Relation
from connectors.postgres.server.catalog_shapes import table_schema
from connectors.postgres.server.connections import Connection, connect
from sinks.contract.batch import Event, events_of
from sinks.contract.memory_store import MemoryStore
from sinks.contract.table_places import SchemaBook
from tests.faults.lab import Found, Lab
from tests.faults.typed import SETUP, TYPES, differences, rows
from tests.golden.direct import Rereads, make_slot, settings_of, start, until_mark

ROWS = 500
"""Of one seed."""
_TOPIC = "typed.public.every"
_ENCODINGS: tuple[Encoding, ...] = ("readable", "debezium")
_BEFORE = b'{"before":null,"after":'


def run(lab: Lab) -> None:
    """Every seed writes rows into a table with a column of each type, and reads them in every way."""
    postgres = lab.stack.ensure("postgres")["postgres"]["dsn"]
    with _database(postgres) as dsn:
        source = settings_of("typed", dsn, "readable").source
        with (
            closing(connect(source)) as conn,
            # Nobody tells the server here how far the stream was read, which it would take for a dead client.
            closing(connect(source, replication=True, options={"wal_sender_timeout": "0"})) as stream,
            closing(psycopg.connect(dsn, autocommit=True)) as user,
        ):
            conn.execute("create publication p for table public.every")
            make_slot(stream, "typed")
            start(stream, "typed", "p")
            trip = _Trip(conn, stream, user)
            for seed in lab.seeds():
                lab.count(**{"values": trip.once(seed), "rows": ROWS})


@contextmanager
def _database(postgres: str) -> Iterator[str]:
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute("drop database if exists typed with (force)")
        admin.execute("create database typed template template0 encoding 'utf8'")
        dsn = make_conninfo(postgres, dbname="typed")
        with psycopg.connect(dsn, autocommit=True) as session:
            for statement in SETUP:
                session.execute(statement.encode())
        yield dsn
        admin.execute(
            "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = 'typed' and active"
        )
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute("select pg_drop_replication_slot('typed')")
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute("drop database typed with (force)")


class _Shape:
    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema

    def schema(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema | Undecided | None:
        return self._schema


class _Trip:
    """One seed after the other, over the same sessions."""

    def __init__(self, conn: Connection, stream: Connection, user: Connection) -> None:
        self._conn = conn
        self._stream = stream
        self._user = user
        self._user.execute(b"create temp table read (id int, doc jsonb)")
        oid = conn.execute("select 'public.every'::regclass::oid").fetchone()
        assert oid is not None
        self._schemas = {
            encoding: replace(
                table_schema(
                    conn,
                    int(oid[0]),
                    topic=_TOPIC,
                    encoding=encoding,
                    masks=NO_MASKS,
                ),
                version=1,
            )
            for encoding in _ENCODINGS
        }
        self._batches: dict[Encoding, list[Record]] = {encoding: [] for encoding in _ENCODINGS}
        self._assemblers = {
            encoding: Assembler(
                Pipeline(name="typed", database="typed", epoch=1),
                AssemblerPorts(
                    schemas=_Shape(schema),
                    lanes=lambda topic: (0, 1),
                    partition=lambda key, count: 0,
                    reselect=Rereads(conn),
                    overflow=self._batches[encoding].extend,
                    masks=NO_MASKS,
                ),
            )
            for encoding, schema in self._schemas.items()
        }

    def once(self, seed: int) -> int:
        """Write, read and compare the seed's rows; how many values that were, each of them in both encodings."""
        self._write(seed)
        frames = list(until_mark(self._stream))
        for encoding in _ENCODINGS:
            batch = self._batches[encoding]
            batch.clear()
            batch += self._assemblers[encoding].feed(frames, 1).records
            records = [record for record in batch if record[3][1][1] == b"c"]
            snapshot = self._snapshot(encoding)
            if len(records) != ROWS or len(snapshot) != ROWS:
                raise Found(f"{ROWS} rows became {len(records)} in the stream and {len(snapshot)} in the snapshot")
            for _, key, value, _ in records:
                if value is None or not value.startswith(_BEFORE + snapshot[key] + b',"source"'):
                    raise Found(f"{encoding}: {key!r} is {snapshot[key]!r} in the snapshot, {value!r} in the stream")
            self._store(encoding, records, snapshot)
            if encoding == "readable":
                self._back(snapshot)
        return ROWS * len(TYPES)

    def _write(self, seed: int) -> None:
        self._user.execute("delete from every")
        with self._user.cursor().copy("copy every from stdin") as copy:
            for row in rows(random.Random(seed), ROWS):
                copy.write_row(row)
        self._user.execute("select pg_logical_emit_message(false, 'golden-end', '')")

    def _snapshot(self, encoding: Encoding) -> dict[bytes, bytes]:
        """key -> row, as COPY and the snapshot's encoder have it."""
        encoder = compile_table(self._schemas[encoding], name="typed", database="typed", masks=NO_MASKS)
        columns = ", ".join(column.name for column in self._schemas[encoding].columns)
        with self._conn.cursor().copy(f"copy (select {columns} from public.every) to stdout".encode()) as copy:
            return dict(encoder.snapshot_line(bytes(line)) for line in copy)

    def _store(self, encoding: Encoding, records: list[Record], snapshot: dict[bytes, bytes]) -> None:
        """What a store shows of the stream is what the verification makes of the snapshot."""
        schema = self._schemas[encoding]
        opened = MemoryStore().open()
        pos = [Position.parse(record[3][0][1].decode()).text() for record in records]
        events = events_of(
            Event(_TOPIC, 0, at, record[1], record[2], pos[at], "c", schema.version)
            for at, record in enumerate(records)
        )
        applied = opened.sink.apply(events, SchemaBook([schema]))
        if applied.refused:
            raise Found(f"{encoding}: the store refused {applied.refused[0].key!r}: {applied.refused[0].reason}")
        plain, canonical = PlainTable(schema), CanonicalTable(schema)
        wanted = {plain.key(key): canonical.row(plain.row(row)) for key, row in snapshot.items()}
        found = {
            row["key"]: canonical.row(row["row"]) for part in opened.reader.scan(schema) for row in part.to_pylist()
        }
        for key, row in wanted.items():
            if found.get(key) != row:
                raise Found(f"{encoding}: {key} is {found.get(key)!r} in the store, {row!r} in the source")

    def _back(self, snapshot: dict[bytes, bytes]) -> None:
        """Postgres reads our JSON, and finds each value equal to its own."""
        self._user.execute("truncate read")
        with self._user.cursor().copy("copy read from stdin") as copy:
            for key, row in snapshot.items():
                copy.write_row((orjson.loads(key)["id"], row.decode()))
        wrong = self._user.execute(differences().encode()).fetchall()
        if wrong:
            number, name = wrong[0]
            own = self._user.execute(f"select {name}::text from every where id = {number}".encode()).fetchone()
            ours = self._user.execute(f"select doc->>'{name}' from read where id = {number}".encode()).fetchone()
            raise Found(f"{len(wrong)} values do not come back: {name} of row {number} is {own}, and {ours} in JSON")
