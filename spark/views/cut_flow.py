"""The changes of one cut as a flow of executors, with what their tasks tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.topic import TableName
from cdc.views.cut_reading import CutReading
from cdc.views.record_rows import require_planned
from cdc.views.view_plan import ViewPlan
from spark.views.cut_steps import ReadCut, read_record
from spark.views.keeper_parts import BucketKeeperParts


class CutFlow:
    """Reads cuts of a view's topics. ``topics``: topic -> table."""

    def __init__(self, parts: BucketKeeperParts, plan: ViewPlan, topics: Mapping[str, TableName]) -> None:
        self._parts = parts
        self._plan = plan
        self._topics = topics
        self._shapes: dict[str, dict[int, str]] = {}

    def read(self, cut: CutReading, progress: bytes, sure_ms: float) -> Any:
        """The cut's changes as a flow. A version of a shape that is new is looked up."""
        parts = self._parts
        while True:
            step = ReadCut(parts.shipped, parts.opener, progress, self._topics, dict(self._shapes), sure_ms)
            flow, report = parts.batches.read(cut.spans, step)
            unknown = {(str(topic), int(version)) for topic, version in report.all("version")}
            if not unknown:
                break
            for topic, version in unknown:
                shape = self._parts.input.shape(topic, version)
                require_planned(shape, self._plan.relations[self._topics[topic]])
                self._shapes.setdefault(topic, {})[version] = shape.to_json().decode()
        count = 0
        for topic, partition, end, foreign, beyond_ms, records in report.all("end"):
            cut.note_part(topic, partition, end, foreign, beyond_ms)
            count += records
        cut.unreadable += [read_record(members) for members in report.all("unreadable")]
        for members in report.all("floor"):
            record = read_record(members)
            try:
                cut.floor(record)
            except (ValueError, KeyError, TypeError, AttributeError):
                cut.unreadable.append(record)
        cut.records = count
        return flow
