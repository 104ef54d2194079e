"""Every named crash point, by the program that passes it: what ``crash_points`` kills at."""

from __future__ import annotations

import cdc.verification.rounds
import cdc.wiring.capture
import connectors.opening
import sinks.registry
import sinks.search
import sinks.warehouse_delta
import sinks.warehouse_sql
import snapshot.run
import snapshot.worker
import spark.store
from cdc.crash import POINTS

_DECLARING = (
    cdc.verification.rounds,
    cdc.wiring.capture,
    connectors.opening,
    sinks.registry,
    sinks.search,
    sinks.warehouse_delta,
    sinks.warehouse_sql,
    snapshot.run,
    snapshot.worker,
    spark.store,
)
"""Importing them declares the points."""

CAPTURE = (
    "opening_locked",
    "opening_checked",
    "first_progress_written",
    "tails_read",
    "stream_started",
    "after_read",
    "after_assemble",
    "lane_introduced",
    "group_half_sent",
    "large_carried",
    "reselect_begun",
    "reselect_answered",
    "netting_spilled",
    "shape_registered",
    "after_produce",
    "before_progress",
    "after_progress",
    "before_acknowledge",
    "after_acknowledge",
    "while_draining",
)
SNAPSHOT = (
    "snapshot_planned",
    "slot_made",
    "slot_recorded",
    "cut_exported",
    "cut_recorded",
    "chunk_reported",
    "chunk_recorded",
    "chunks_all_recorded",
    "snapshot_completed",
)
"""In the order in which one snapshot can die at all of them."""
SNAPSHOT_WORKER = (
    "chunk_begun",
    "chunk_locked",
    "chunk_checked",
    "chunk_first_block",
    "chunk_produced",
    "chunk_flushed",
    "chunk_committed",
)
SINK = (
    "sink_before_apply",
    "sink_after_apply",
    "sink_after_letters",
    "sink_after_watermark",
    "table_prepared",
    "table_written",
    "writes_shown",
    "floor_noted",
    "floor_enforced",
)
"""Passed by the sink of every store."""
OF_STORE = {
    "cache": ("cache_trip_sent",),
    "search": ("search_index_made", "search_body_taken", "search_page_swept"),
    "delta": ("delta_table_made", "delta_columns_added", "delta_merged", "delta_note_written"),
    "sql": ("sql_staged", "sql_before_commit", "sql_after_commit"),
}
VERIFY = ("verify_cut", "verify_reached", "verify_looked")


def visited() -> set[str]:
    """Every point that the experiment dies at."""
    return {*CAPTURE, *SNAPSHOT, *SNAPSHOT_WORKER, *SINK, *VERIFY, *(p for points in OF_STORE.values() for p in points)}


def declared() -> set[str]:
    """Every point of the code."""
    assert _DECLARING
    return set(POINTS)
