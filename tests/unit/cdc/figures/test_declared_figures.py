"""A gauge is bound to one that says whether it is known, grows as an age, or tells of its own process (H110)."""

from __future__ import annotations

from cdc.figures.declared_figures import CAPTURE, SINKS
from tests.figure_kinds import left_over

OF_CAPTURE = {
    "cdc_build_info": "of the program",
    "cdc_up": "0 as soon as changes do not flow",
    "cdc_queue_records": "the process's own buffer",
    "cdc_waiting_records": "the process's own buffer",
    "cdc_table_state": "the process's own notes",
    "cdc_reread_requests": "the process's own work; that it stands still shows in the time left",
    "cdc_reread_windows": "the process's own work",
    "cdc_reread_progress_ratio": "the process's own work",
    "cdc_reread_remaining_seconds": "+Inf while it stands still",
    "cdc_snapshot_progress_ratio": "of the state topic, while the first snapshot is waited for",
    "cdc_snapshot_remaining_seconds": "+Inf while it stands still",
}
OF_SINKS = {
    "cdc_build_info": "of the program",
    "cdc_sink_up": "0 as soon as the store does not answer",
    "cdc_sink_stopped": "the process's own decision",
}


def test_h110_each_gauge_says_when_it_is_not_known() -> None:
    """Whoever adds one decides which kind it is: a figure that keeps its last value would look well for ever."""
    assert left_over(CAPTURE) == OF_CAPTURE.keys()
    assert left_over(SINKS) == OF_SINKS.keys()
    for figures in (CAPTURE, SINKS):
        bound = {one.known for one in figures.values() if one.known}
        assert bound == {name for name in figures if name.endswith("_known")}, "each gauge of this kind is used"
