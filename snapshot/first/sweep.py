"""The mark that ends a snapshot of a new epoch: what it did not bring is gone from the source.

Rows deleted while the slot was lost have no event. Every row that is there got the snapshot's position, so whatever
a store holds below it is swept, once each partition has told of it (H23, H82).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.position import Position
from cdc.schema import TableSchema
from cdc.state import SlotState
from cdc.wire.floors import sweep_key, sweep_value
from cdc.wire.format import TRUNCATE_OP
from connectors.postgres.encoder import compile_table, record_headers
from snapshot.edges import RowLog, Shapes
from snapshot.first.chunk_worker import FLUSH_S
from snapshot.first.manifest import Manifest

declare("sweep_marked")


def sweep(
    log: RowLog,
    shapes: Shapes,
    manifest: Manifest,
    slot: SlotState,
    topics: Mapping[str, Any],
    *,
    name: str,
    clock: Clock,
) -> None:
    """Write the mark of every table that was read to each of its partitions; brokers hold them when this returns.

    Safe to repeat. ``topics``: topic -> what ``cdc init`` noted of it. Raises LogError.
    """
    floor = Position(slot.epoch, slot.consistent_point, 0)
    for table in manifest.tables():
        state, form = manifest.table(table), manifest.form(table)
        if state is None or form is None or state.gone:
            continue
        schema = shapes.get(form.table, form.version)
        partitions = topics[form.topic]["partitions"]
        value = mark(schema, floor, partitions, name=name, database=slot.database, now_ns=clock.now_ns())
        headers = record_headers(floor, TRUNCATE_OP, schema.version)
        for partition in range(partitions):
            log.produce(form.topic, partition, sweep_key(table), value, headers)
    log.flush(FLUSH_S)
    crash_point("sweep_marked")


def mark(schema: TableSchema, floor: Position, partitions: int, *, name: str, database: str, now_ns: int) -> bytes:
    """The value of a sweep mark: a ``t`` event that names its floor, and how many partitions have one."""
    encoder = compile_table(schema, name=name, database=database)
    envelope = encoder.snapshot_envelope(
        marker="true",
        lsn=floor.commit_lsn,
        tx_id=None,
        epoch=floor.epoch,
        commit_lsn=floor.commit_lsn,
        source_ts_us=now_ns // 1000,
        now_ns=now_ns,
        op=TRUNCATE_OP,
    )
    event = envelope.prefix + b"null" + envelope.suffix
    return sweep_value(event, floor.text(), partitions)
