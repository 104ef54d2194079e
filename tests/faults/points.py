"""Every named crash point, by the program that passes it: what ``crash_points`` kills at."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("cdc", "connectors", "snapshot", "sinks", "spark")
_DECLARED = re.compile(r"^declare\(([^)]*)\)", re.MULTILINE)

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
    "places_written",
    "tables_taken_back",
    "floor_noted",
    "floor_enforced",
)
"""Passed by the sink of every store."""
OF_STORE = {
    "cache": ("cache_trip_sent",),
    "search": ("search_index_made", "search_body_taken", "search_page_swept"),
    "delta": ("delta_table_made", "delta_columns_added", "delta_files_written", "delta_merged", "delta_note_written"),
    "sql": ("sql_staged", "sql_before_commit", "sql_after_commit"),
}
VERIFY = ("verify_cut", "verify_reached", "verify_looked")


def visited() -> set[str]:
    """Every point that the experiment dies at."""
    return {*CAPTURE, *SNAPSHOT, *SNAPSHOT_WORKER, *SINK, *VERIFY, *(p for points in OF_STORE.values() for p in points)}


def declared() -> set[str]:
    """Every point of the code."""
    texts = (path.read_text(encoding="utf-8") for package in _PACKAGES for path in (_ROOT / package).rglob("*.py"))
    return {name for text in texts for names in _DECLARED.findall(text) for name in re.findall(r'"(\w+)"', names)}
