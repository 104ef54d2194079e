"""Replay a golden script without Kafka: catalog, COPY, the slot and the assembler in this process."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import cast

from confluent_kafka import murmur2
from psycopg import sql
from psycopg.pq import ExecStatus

from cdc.record.ports import Record
from cdc.record.position import Position
from cdc.record.schema import Encoding, TableSchema
from cdc.settings.mask_rules import NO_MASKS
from cdc.settings.model import Settings, parse
from connectors.postgres.assembly.assembler import GONE, Assembler, AssemblerPorts, Pipeline, Selected, WantedRow
from connectors.postgres.assembly.pending_records import Undecided
from connectors.postgres.encoding.encoder import compile_table, record_headers
from connectors.postgres.protocol.messages import LogicalMessage, Relation
from connectors.postgres.protocol.pgoutput import decode
from connectors.postgres.server.catalog_shapes import (
    CapturedTable,
    KnownShapes,
    from_relation,
    resolve_tables,
    table_schema,
)
from connectors.postgres.server.connections import Connection, connect
from tests.golden.compared_record import Facts, table_facts
from tests.golden.records import CASES, Wire

_FRAME = Struct(">cQQQ")
_END = "golden-end"
_NOW_NS = 1_760_000_000_123_456_789


class Shapes:
    """A schema source over the live catalog; versions are counted here."""

    def __init__(
        self, conn: Connection, publication: str, captured: Sequence[CapturedTable], encoding: Encoding
    ) -> None:
        self._conn = conn
        self._publication = publication
        self._captured = {table.oid: table for table in captured}
        self._encoding = encoding
        self.topics: dict[str, int] = {}
        self.versions: list[TableSchema] = []

    def of(self, table: CapturedTable) -> TableSchema:
        shape = table_schema(
            self._conn,
            table.oid,
            topic=table.topic,
            encoding=self._encoding,
            masks=NO_MASKS,
            publication=self._publication,
        )
        return self._numbered(shape)

    def schema(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema | Undecided | None:
        table = self._captured.get(relation.relation_oid)
        if table is None:
            return None
        shape = from_relation(
            self._conn,
            relation,
            topic=table.topic,
            encoding=self._encoding,
            masks=NO_MASKS,
            known=KnownShapes(next((s for s in reversed(self.versions) if s.oid == table.oid), None)),
            publication=self._publication,
        )
        return self._numbered(shape)

    def lanes(self, topic: str) -> tuple[int, int]:
        return self.topics.setdefault(topic, len(self.topics)), 1

    def _numbered(self, shape: TableSchema) -> TableSchema:
        earlier = [s for s in self.versions if s.oid == shape.oid]
        if earlier and earlier[-1].same_shape(shape):
            return earlier[-1]
        numbered = TableSchema.from_json(shape.to_json().replace(b'"version":0', b'"version":%d' % (len(earlier) + 1)))
        self.versions.append(numbered)
        return numbered


class Rereads:
    """Re-selects at once: nothing else writes while a script is replayed."""

    seen_lsn = 0

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self.asked: list[WantedRow] = []

    def rows(self, wanted: Sequence[WantedRow], xids: Collection[int], *, brief: bool = False) -> Sequence[Selected]:
        assert xids
        self.asked += wanted
        return [self._row(one) for one in wanted]

    def _row(self, wanted: WantedRow) -> Selected:
        schema = wanted.schema
        columns = sql.SQL(", ").join(
            sql.SQL("{}::text").format(sql.Identifier(schema.columns[i].name)) for i in wanted.columns
        )
        key = sql.SQL(" and ").join(
            sql.SQL("{}::text = {}").format(sql.Identifier(c.name), text.decode())
            for c, text in zip(schema.key, wanted.key, strict=True)
        )
        query = sql.SQL("select {} from {} where {}").format(columns, sql.Identifier(*schema.table), key)
        row = self._conn.execute(query).fetchone()
        return GONE if row is None else tuple(None if value is None else str(value).encode() for value in row)


def settings_of(case: str, dsn: str, encoding: str, exclude: Sequence[str] = ()) -> Settings:
    return parse(
        {
            "name": case,
            "source": {"dsn": dsn, "tables": [f"{case}.*"], "exclude": list(exclude)},
            "log": {"bootstrap_servers": "none", "encoding": encoding},
        }
    )


def replay_directly(
    case: str, dsn: str, encoding: str, psql: Path, exclude: Sequence[str] = ()
) -> tuple[list[Wire], Facts]:
    """Every record of a case, snapshot first, in source order; and what is known of its tables."""
    settings = settings_of(case, dsn, encoding, exclude)
    run_script(psql, dsn, case, "schema.sql")
    run_script(psql, dsn, case, "seed.sql")
    with closing(connect(settings.source)) as conn:
        tables = [table for table in resolve_tables(conn, settings) if not table.problems]
        conn.execute("set search_path = pg_catalog")
        publish(conn, settings.publication, tables)
        shapes = Shapes(conn, settings.publication, tables, cast(Encoding, encoding))
        with closing(connect(settings.source, replication=True)) as stream:
            point = make_slot(stream, settings.slot)
            wires = [wire for table in tables for wire in snapshot(conn, shapes.of(table), settings, point)]
            run_script(psql, dsn, case, "changes.sql")
            conn.execute("select pg_logical_emit_message(false, %s, '')", [_END])
            batch: list[Record] = []
            assembler = Assembler(
                Pipeline(name=case, database="postgres", epoch=1),
                AssemblerPorts(
                    schemas=shapes,
                    lanes=shapes.lanes,
                    partition=murmur2,
                    reselect=Rereads(conn),
                    overflow=batch.extend,
                    masks=NO_MASKS,
                ),
            )
            for frame in frames(stream, settings.slot, settings.publication):
                batch += assembler.feed([frame], _NOW_NS).records
        facts = table_facts(conn, shapes.versions)
    topics = {lane: topic for topic, lane in shapes.topics.items()}
    return wires + [_wire(topics[record[0]], at, record) for at, record in enumerate(batch)], facts


def run_script(psql: Path, dsn: str, case: str, file: str) -> None:
    done = subprocess.run(
        [psql, dsn, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", CASES / case / file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{case}/{file}: {done.stderr}"


def publish(conn: Connection, publication: str, tables: Sequence[CapturedTable]) -> None:
    names = sql.SQL(", ").join(sql.Identifier(*table.table) for table in tables)
    conn.execute(
        sql.SQL("create publication {} for table {} with (publish_via_partition_root = true)").format(
            sql.Identifier(publication), names
        )
    )


def make_slot(stream: Connection, slot: str) -> int:
    """A slot on a walsender session; its consistent point."""
    made = stream.pgconn.exec_(f"CREATE_REPLICATION_SLOT \"{slot}\" LOGICAL pgoutput (SNAPSHOT 'nothing')".encode())
    assert made.status == ExecStatus.TUPLES_OK, made.error_message
    point = made.get_value(0, 1)
    assert point is not None
    high, low = point.decode().split("/")
    return int(high, 16) << 32 | int(low, 16)


def snapshot(conn: Connection, schema: TableSchema, settings: Settings, point: int) -> Iterator[Wire]:
    encoder = compile_table(schema, name=settings.name, database="postgres", masks=NO_MASKS)
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in schema.columns)
    order = sql.SQL(", ").join(sql.Identifier(column.name) for column in schema.key)
    query = sql.SQL("copy (select {} from {} order by {}) to stdout").format(
        columns, sql.Identifier(*schema.table), order
    )
    with conn.cursor().copy(query) as copy:
        lines = [bytes(line) for line in copy]
    headers = tuple(
        (name, value.decode()) for name, value in record_headers(Position(1, point, 0), "r", schema.version)
    )
    for at, line in enumerate(lines):
        envelope = encoder.snapshot_envelope(
            marker=_marker(at, len(lines)),
            lsn=point,
            tx_id=7,
            epoch=1,
            commit_lsn=point,
            source_ts_us=_NOW_NS // 1000,
            now_ns=_NOW_NS,
        )
        key, row = encoder.snapshot_line(line)
        value = envelope.prefix + row + envelope.suffix
        yield Wire(topic=schema.topic, offset=at, key=key, value=value, headers=headers)


def frames(stream: Connection, slot: str, publication: str) -> Iterator[bytes]:
    """XLogData messages from the slot's start up to the end mark."""
    start(stream, slot, publication)
    yield from until_mark(stream)


def start(stream: Connection, slot: str, publication: str) -> None:
    options = f"proto_version '1', publication_names '\"{publication}\"', messages 'true'"
    started = stream.pgconn.exec_(f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0 ({options})'.encode())
    assert started.status == ExecStatus.COPY_BOTH, started.error_message


def until_mark(stream: Connection) -> Iterator[bytes]:
    """XLogData messages up to the next end mark (a logical message with the prefix ``golden-end``)."""
    while True:
        _, data = stream.pgconn.get_copy_data(0)
        frame = bytes(data)
        if frame[:1] != b"w":
            continue
        message = decode(frame[_FRAME.size :])
        if isinstance(message, LogicalMessage) and message.prefix == _END:
            return
        yield frame


def _marker(at: int, count: int) -> str:
    """What one reader writes who knows the rows of one table: the run's marks are explained by D24."""
    return "last" if at == count - 1 else "first" if at == 0 else "true"


def _wire(topic: str, at: int, record: Record) -> Wire:
    _, key, value, headers = record
    return Wire(
        topic=topic, offset=at, key=key, value=value, headers=tuple((name, text.decode()) for name, text in headers)
    )
