"""What keeps an Iceberg table small: which statements are due, by count and by the clock. Pure but for the clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from cdc.clock import Clock
from cdc.sql import quote_literal
from sinks.iceberg.iceberg_catalog import LakePlace
from sinks.warehouse.warehouse_spark import quoted_name

EVERY_S = 600.0
"""Upkeep by the clock: three jobs of Spark."""
MOST_SNAPSHOTS = 500
"""A table's metadata lists its snapshots, and each commit writes it anew."""


class Upkeep:
    """Of one table."""

    def __init__(self, place: LakePlace, table: str, clock: Clock) -> None:
        self._place = place
        self._table = quote_literal(f"{quoted_name(place.namespace)}.{quoted_name(table)}")
        self._clock = clock
        self._at = clock.monotonic()
        self._unjoined = 0

    def written(self) -> None:
        """A commit has added files."""
        self._unjoined += 1

    def due(self, catalog: str, snapshot_times: Sequence[int]) -> Iterator[str]:
        """The statements to carry out now. ``snapshot_times``: in ms since 1970, the oldest first."""
        now = self._clock.monotonic()
        by_clock = now - self._at >= EVERY_S
        system = f"{quoted_name(catalog)}.system"
        if self._unjoined and (by_clock or self._unjoined >= self._place.compact_files):
            few = self._place.compact_files
            options = f"'min-input-files', '{few}', 'delete-file-threshold', '{few}'"
            yield f"call {system}.rewrite_data_files(table => {self._table}, options => map({options}))"
            options = f"'min-input-files', '{few}'"
            yield f"call {system}.rewrite_position_delete_files(table => {self._table}, options => map({options}))"
            self._unjoined = 0
        if by_clock or len(snapshot_times) > 2 * MOST_SNAPSHOTS:
            self._at = now
            until_ms = self._clock.now_ns() // 1_000_000 - int(self._place.snapshots_for_s * 1000)
            if len(snapshot_times) > MOST_SNAPSHOTS:
                until_ms = max(until_ms, snapshot_times[-MOST_SNAPSHOTS])
            if snapshot_times and snapshot_times[0] < until_ms:
                until = f"{datetime.fromtimestamp(until_ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"
                yield (
                    f"call {system}.expire_snapshots(table => {self._table}, "
                    f"older_than => timestamp '{until}', retain_last => 1)"
                )
