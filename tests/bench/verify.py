"""1 M rows of the source against three stores, row by row; beside one bare COPY of the same rows.

The stores are filled by the sinks themselves, without Spark; what is measured is ``cdc verify`` from its first cut
to its verdict, the wait for the fence left out. Memory is the process's peak above where it stood before.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa

from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.position import Position
from cdc.record.schema import TableSchema
from cdc.settings.mask_rules import NO_MASKS
from cdc.settings.model import Settings, parse
from cdc.verification.passes import verify
from cdc.verification.ports import VerifiedTable
from cdc.wiring import open_source
from connectors.operate.verify import open_cut
from connectors.postgres.encoding.encoder import compile_table
from connectors.postgres.server.catalog_shapes import resolve_tables, table_schema
from sinks.contract.batch import Event, events_of
from sinks.contract.stores import open_store
from tests.contract.topics import Shapes

if TYPE_CHECKING:
    from cdc.record.topic_names import TableName
    from tests.bench.setting import Bench

ROWS = 1_000_000
_BATCH = 50_000
_COPY = "copy (select * from public.items) to stdout"
_TABLE = """
create table items (id bigint primary key, name text not null, price numeric(12,2), at timestamptz not null,
                    active boolean not null, quantity int, note text);
insert into items select n, 'item ' || n, n * 1.37, timestamptz '2026-01-01' + n * interval '1 s', mod(n, 3) = 0,
                         mod(n, 1000), case when mod(n, 5) = 0 then 'a note of some length about item ' || n end
from generate_series(1, {rows}) n;
analyze items;
"""


class _Silent:
    def reading(self, side: str, table: TableName, rows: int) -> None: ...

    def looking(self, look: int, keys: int) -> None: ...


def bench(bench: Bench) -> None:
    rows = bench.rows(ROWS)
    with bench.database() as dsn, ExitStack() as stack:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(_TABLE.format(rows=rows).encode())
        settings = _settings(bench, dsn)
        shape = _shape(settings)
        stores = {name: open_store(name, settings) for name in settings.sinks}
        for name, store in stores.items():
            stack.callback(store.close)
            began = SYSTEM_CLOCK.monotonic()
            for lines in _lines(settings):
                store.sink.apply(_events(shape, lines), Shapes(shape))
            store.sink.show()
            bench.say(f"{name}: {rows:,} rows put in at {rows / (SYSTEM_CLOCK.monotonic() - began):,.0f} rows/s")
        began = SYSTEM_CLOCK.monotonic()
        copied = sum(len(lines) for lines in _lines(settings))
        copy_s = SYSTEM_CLOCK.monotonic() - began
        _reset_peak()
        before_mb = _memory_mb("VmRSS")
        source = stack.enter_context(closing(open_cut(settings)))
        table = VerifiedTable(shape=shape, stored=shape, rows=rows)
        for chosen in ({name: store} for name, store in stores.items()), (stores,):
            for some in chosen:
                began = SYSTEM_CLOCK.monotonic()
                report = verify(
                    source,
                    {name: store.reader for name, store in some.items()},
                    {name: [table] for name in some},
                    epoch=1,
                    reached=lambda cut: None,
                    clock=SYSTEM_CLOCK,
                    watch=_Silent(),
                )
                took_s = SYSTEM_CLOCK.monotonic() - began
                bench.say(
                    f"verify {', '.join(some)}: {took_s:.1f} s, {copied * len(some) / took_s:,.0f} rows compared/s, "
                    f"{report.differences} differences; a bare COPY takes {copy_s:.1f} s"
                )
        peak_mb = _memory_mb("VmHWM")
        bench.say(f"memory: {before_mb:.0f} MB before, {peak_mb:.0f} MB at the peak")


def _settings(bench: Bench, dsn: str) -> Settings:
    servers = bench.stack.ensure("redis", "opensearch")
    name = f"v{secrets.token_hex(4)}"
    return parse(
        {
            "name": name,
            "source": {"dsn": dsn, "tables": ["public.items"]},
            "log": {"bootstrap_servers": "127.0.0.1:1"},
            "sinks": {
                "cache": {"kind": "redis", "url": servers["redis"]["url"]},
                "search": {"kind": "opensearch", "url": servers["opensearch"]["url"]},
                "warehouse": {"kind": "delta", "path": str(bench.folder / name)},
            },
        }
    )


def _shape(settings: Settings) -> TableSchema:
    with closing(open_source(settings)) as connection:
        (table,) = resolve_tables(connection, settings)
        return table_schema(connection, table.oid, topic=table.topic, encoding="readable", masks=NO_MASKS, version=1)


def _lines(settings: Settings) -> Iterator[list[bytes]]:
    with closing(open_source(settings)) as connection, connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        batch: list[bytes] = []
        for line in copy:
            batch.append(bytes(line))
            if len(batch) == _BATCH:
                yield batch
                batch = []
        yield batch


def _memory_mb(what: str) -> float:
    """``VmRSS`` now, or ``VmHWM``, its peak since :func:`_reset_peak`."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(what):
            return int(line.split()[1]) / 1024
    return 0.0


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _events(shape: TableSchema, lines: list[bytes]) -> pa.Table:
    encoder = compile_table(shape, name="bench", database="bench", masks=NO_MASKS)
    pos = Position(1, 8, 0).text()
    rows = (encoder.snapshot_line(line) for line in lines)
    return events_of(
        Event(shape.topic, 0, number, key, b'{"op":"r","after":' + row + b"}", pos, "r", 1)
        for number, (key, row) in enumerate(rows)
    )
