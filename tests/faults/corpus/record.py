"""Record what a server sends for the golden scripts: ``python -m tests.faults.corpus.record DSN PSQL``.

Writes ``<major version>.hex``, one message a line, an empty line between scripts, long ones left out; and
``<major version>.shapes.jsonl``, the shape behind every announcement.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.protocol.messages import Relation
from connectors.postgres.protocol.pgoutput import decode
from connectors.postgres.server.catalog_shapes import from_relation, resolve_tables
from connectors.postgres.server.connections import connect
from tests.golden.direct import frames, make_slot, publish, run_script, settings_of
from tests.golden.records import CASES

HERE = Path(__file__).parent
_DATABASE, _SLOT = "recorded", "recorded"
_LONGEST_BYTES = 2_000


def recorded(case: str, dsn: str, psql: Path, shapes: list[str]) -> Iterator[bytes]:
    """One script's messages in a database of its own."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"drop database if exists {_DATABASE} with (force)")
        admin.execute(f"create database {_DATABASE}")
    inside = make_conninfo(dsn, dbname=_DATABASE)
    run_script(psql, inside, case, "schema.sql")
    run_script(psql, inside, case, "seed.sql")
    settings = settings_of(case, inside, "readable")
    with closing(connect(settings.source)) as conn, closing(connect(settings.source, replication=True)) as stream:
        tables = {table.oid: table for table in resolve_tables(conn, settings) if not table.problems}
        conn.execute("set search_path = pg_catalog")
        publish(conn, "p", list(tables.values()))
        make_slot(stream, _SLOT)
        run_script(psql, inside, case, "changes.sql")
        conn.execute("select pg_logical_emit_message(false, 'golden-end', '')")
        for frame in frames(stream, _SLOT, "p"):
            payload = frame[25:]
            if len(payload) > _LONGEST_BYTES:
                continue
            message = decode(payload)
            if isinstance(message, Relation) and message.relation_oid in tables:
                topic = tables[message.relation_oid].topic
                shape = from_relation(conn, message, topic=topic, encoding="readable", masks=NO_MASKS, publication="p")
                shapes.append(shape.to_json().decode())
            yield payload
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", [_SLOT]
        )
        admin.execute(f"drop database {_DATABASE} with (force)")


def main() -> None:
    dsn, psql = sys.argv[1], Path(sys.argv[2])
    with psycopg.connect(dsn) as session:
        version = session.info.server_version // 10_000
    shapes: list[str] = []
    streams = []
    for folder in sorted(CASES.iterdir()):
        try:
            streams.append("".join(f"{m.hex()}\n" for m in recorded(folder.name, dsn, psql, shapes)))
        except AssertionError as error:
            print(f"left out {folder.name}: {error}", file=sys.stderr)
    (HERE / f"{version}.hex").write_text("\n".join(streams), encoding="ascii")
    (HERE / f"{version}.shapes.jsonl").write_text("".join(f"{s}\n" for s in dict.fromkeys(shapes)), encoding="utf-8")


if __name__ == "__main__":
    main()
