"""One Delta table that Spark merges: on executors, and by deletion vectors, so that what is written is what changed.

The log is read, and what needs no join is written, without a JVM as by the embedded engine. Where no Spark runs, as in
``cdc verify --repair``, that engine's way serves for the merge, too: both keep the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError

from cdc.process.clock import Clock
from cdc.record.schema import TableSchema
from sinks.contract.batch import pc
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.table_places import PlaceStep
from sinks.delta.delta_files import TIERS, Tier, due_tier
from sinks.delta.delta_kind import SPARK_PARTS
from sinks.delta.delta_partitions import buckets_in
from sinks.delta.delta_storage import Storage, table_path
from sinks.delta.delta_table import Delta
from sinks.warehouse.warehouse_columns import EXACT
from sinks.warehouse.warehouse_spark import (
    SparkFailed,
    WarehouseSpark,
    only_onto,
    quote_spark,
    quoted_name,
    running_session,
    within_ranges,
)

T = TypeVar("T")

_SETTINGS = {
    # By default 50 tasks read the log of a table.
    "spark.databricks.delta.snapshotPartitions": "1",
    # The retention is a property of each table, and shorter than the week that is checked.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
}
# Rows that the driver has are the same each time they are read, and need not be kept for it.
_OF_SMALL = {"spark.databricks.delta.merge.materializeSource": "none"}
_OPTIMIZE = "spark.databricks.delta.optimize."
_PURGED_FROM = "0.3"
"""A file of which more rows than this share are hidden is written anew without them: 2.3 rows at most for each one that
changed. From a twentieth on, Delta Lake's default, that is 19, and the whole table at once where changes are spread."""
_SMALL_TABLE_BYTES = 32 * 1024**2
"""Up to this size of its files a table is joined with a small batch by what costs least to begin."""
_CONFLICTS = ("DELTA_CONCURRENT", "Concurrent", "DELTA_FILE_NOT_FOUND", "FileNotFoundException", "FAILED_READ_FILE")
"""Words of Spark about what somebody else did to the table meanwhile: it is tried again."""


def delta_spark() -> WarehouseSpark:
    """Spark for one warehouse of Delta tables."""
    return WarehouseSpark(SPARK_PARTS, _SETTINGS, _OF_SMALL)


class SparkDelta(Delta):
    """As :class:`Delta`. ``spark``: shared by the tables of a warehouse."""

    tidy_every_s = 600.0
    """A VACUUM is three jobs."""

    def __init__(self, storage: Storage, path: str, clock: Clock, spark: WarehouseSpark) -> None:
        super().__init__(storage, path, clock)
        self._spark = spark
        self._name = f"delta.{quoted_name(spark_path(self.path))}"

    def _merged(self, rows: pa.Table, key: str, order: str, step: PlaceStep | None) -> int:
        if running_session() is None:
            return super()._merged(rows, key, order, step)
        small = sum(size for _, size in self._files()) <= _SMALL_TABLE_BYTES
        same = self._same(key)
        if not small:
            # By itself Delta Lake reads the keys of all files for a merge.
            same += f" and ({within_ranges(f't.{key}', map(str, rows[key].to_pylist()))})"
        for name in filter(buckets_in, self.partitions):
            # Said in numbers: files of other buckets are left out before anything is read.
            same += f" and t.{name} in ({', '.join(map(str, pc.unique(rows[name]).to_pylist()))})"

        may = only_onto(step, f"s.{key}", f"t.{EXACT}")

        def merge(relation: str) -> str:
            return (
                f"merge into {self._name} t using {relation} s on {same} "
                f"when matched and (t.{order} is null or s.{order} >= t.{order}){may} then update set * "
                "when not matched then insert *"
            )

        [done] = self._carried_out(lambda: self._spark.with_rows(rows, merge, beside_few=small))
        return int(done["num_inserted_rows"]) + int(done["num_updated_rows"])

    def _deleted(self, predicate: str | None) -> None:
        if running_session() is None:
            super()._deleted(predicate)
            return
        where = f" where {predicate}" if predicate is not None else ""
        self._carried_out(lambda: self._spark.sql(f"delete from {self._name}{where}"))

    def _tidy(self) -> None:
        """Without Spark nothing is removed: to delta-rs a vector's file is one that the log does not know, and it would
        take away those that are in use."""
        if running_session() is None:
            return
        self._optimize(due_tier(self._files()))
        self._carried_out(lambda: self._spark.sql(f"vacuum {self._name}"))
        # Spark keeps the log of a whole day at least, and each commit lists it.
        self._table.cleanup_metadata()

    def _join(self, file_bytes: int) -> None:
        """By tiers, whatever ``file_bytes`` says. Not at all without Spark, which does it later."""
        tier = due_tier(self._files())
        if tier is not None and running_session() is not None:
            self._optimize(tier)

    def _optimize(self, tier: Tier | None) -> None:
        """Join the small files of a tier, and write files anew without the many rows that are hidden in them."""
        below, made = (tier.below, 2 * tier.below) if tier is not None else (1, 2 * TIERS[-1])
        sizes = {"minFileSize": below, "maxFileSize": made, "maxDeletedRowsRatio": _PURGED_FROM}
        settings = {f"{_OPTIMIZE}{name}": str(value) for name, value in sizes.items()}
        where = _in_partitions(self.partitions, tier.partitions) if tier is not None else ""
        self._carried_out(lambda: self._spark.sql(f"optimize {self._name}{where}", settings))

    def _files(self) -> list[tuple[Any, int]]:
        """Partition and size of each file."""
        files: Any = pa.table(self._table.get_add_actions(flatten=True))
        sizes = files["size_bytes"].to_pylist()
        by = self.partitions
        return list(zip(files[f"partition.{by[0]}"].to_pylist() if by else [None] * len(sizes), sizes, strict=True))

    def _carried_out(self, act: Callable[[], T]) -> T:
        try:
            done = act()
        except SparkFailed as failed:
            text = str(failed)
            raise (CommitFailedError if any(words in text for words in _CONFLICTS) else DeltaError)(text) from None
        self._updated()
        return done


def _in_partitions(columns: Sequence[str], values: Sequence[Any]) -> str:
    """The clause that keeps OPTIMIZE to some partitions. Empty for a table that has none."""
    if not columns:
        return ""
    name = quoted_name(columns[0])
    named = ", ".join(quote_spark(str(value)) for value in values if value is not None)
    some = [f"cast({name} as string) in ({named})"] if named else []
    return f" where {' or '.join([*some, *([f'{name} is null'] if None in values else [])])}"


def table_place(spec: SinkSpec, schema: TableSchema) -> str:
    """Where Spark finds a table of a store."""
    return spark_path(f"{Storage.of(spec).root}/{table_path(schema)}")


def spark_path(path: str) -> str:
    """A table's place as Hadoop names it: whole, because Spark may count from another folder.

    >>> spark_path("s3://lake/orders")
    's3a://lake/orders'
    """
    if "://" not in path:
        return str(Path(path).absolute())
    scheme, _, rest = path.partition("://")
    return f"{'s3a' if scheme == 's3' else scheme}://{rest}"
