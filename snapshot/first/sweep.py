"""The mark that ends a snapshot of a new epoch: what it did not bring is gone from the source.

Rows deleted while the slot was lost have no event. Every row that is there got the snapshot's position, so whatever
a store holds below it is swept, once each partition has brought its mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.masks import masks_of
from cdc.position import Position
from cdc.settings import Settings
from cdc.state import SlotState
from connectors.postgres.encoder import compile_table
from snapshot.edges import RowLog, Shapes
from snapshot.first.chunk_worker import FLUSH_S
from snapshot.first.manifest import Manifest
from snapshot.row_records import sweep_mark

declare("sweep_marked")


def sweep(
    log: RowLog,
    shapes: Shapes,
    manifest: Manifest,
    slot: SlotState,
    topics: Mapping[str, Any],
    *,
    settings: Settings,
    clock: Clock,
) -> None:
    """Write the mark of every table that was read to each of its partitions. Brokers hold them when this returns.

    Safe to repeat. ``topics``: topic -> what ``cdc init`` noted of it. Raises LogError.
    """
    masks = masks_of(settings)
    floor = Position(slot.epoch, slot.consistent_point, 0)
    for table in manifest.tables():
        state, form = manifest.table(table), manifest.form(table)
        if state is None or form is None or state.gone:
            continue
        schema = shapes.get(form.table, form.version)
        partitions = topics[form.topic]["partitions"]
        encoder = compile_table(schema, name=settings.name, database=slot.database, masks=masks)
        mark = sweep_mark(encoder, floor, floor.text(), partitions, marker="true", now_ns=clock.now_ns())
        for partition in range(partitions):
            log.produce(form.topic, partition, mark.key, mark.value, mark.headers)
    log.flush(FLUSH_S)
    crash_point("sweep_marked")
