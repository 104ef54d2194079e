"""Spark for an Iceberg warehouse: a session that knows the catalog, and the statements of upkeep that are due in it.

No setting of the session has a secret. Upkeep is due by count and by the clock. Files are joined by tiers: of one tier
only when there are some of about that size, so that a small batch never has a large file written anew. A byte is
joined once a tier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from pyiceberg.expressions import BooleanExpression, In, IsNull, LessThan
from pyiceberg.manifest import DataFileContent
from pyspark.sql import SparkSession

from cdc.process.clock import Clock
from cdc.process.sql_files import quote_literal
from sinks.iceberg.iceberg_catalog import LakePlace
from sinks.iceberg.iceberg_columns import CDC_KEY, CDC_POS
from sinks.iceberg.iceberg_kind import SPARK_PARTS
from sinks.warehouse.warehouse_spark import WarehouseSpark, quoted_name

if TYPE_CHECKING:
    from pyiceberg.table import Table


_MOST_CATALOGS = 64


class IcebergSpark(WarehouseSpark):
    """As :class:`WarehouseSpark`. ``properties``: of the catalog, with secrets."""

    def __init__(self, catalog: str, properties: Mapping[str, str]) -> None:
        super().__init__(SPARK_PARTS, {})
        self.catalog = catalog
        self._properties = properties
        self._one = Lock()

    def table(self, namespace: str, name: str) -> str:
        """A table's name in a statement."""
        return ".".join(map(quoted_name, (self.catalog, namespace, name)))

    def _opened(self, settings: Mapping[str, str]) -> SparkSession:
        # The tables of a batch are written side by side.
        with self._one:
            return super()._opened(settings)

    def _begun(self, running: SparkSession, settings: Mapping[str, str]) -> SparkSession:
        made = super()._begun(running, settings)
        _load_catalog(made, self.catalog, self._properties)
        return made


def _load_catalog(session: SparkSession, name: str, properties: Mapping[str, str]) -> None:
    """Have Spark make the catalog from settings that are there for this moment alone: a statement tells its listeners,
    the UI and the event log, of all settings that its session has."""
    settings = {f"spark.sql.catalog.{name}": "org.apache.iceberg.spark.SparkCatalog"}
    settings |= {f"spark.sql.catalog.{name}.{one}": value for one, value in properties.items()}
    jvm: Any = session._jvm
    inner: Any = session._jsparkSession
    for one, value in settings.items():
        session.conf.set(one, value)
    try:
        # A catalog reads the settings of the session that is the active one of its thread.
        getattr(getattr(jvm, "org.apache.spark.sql.classic.SparkSession$"), "MODULE$").setActiveSession(inner)
        inner.sessionState().catalogManager().catalog(name)
    finally:
        for one in settings:
            session.conf.unset(one)


@lru_cache(_MOST_CATALOGS)
def _shared(name: str, properties: tuple[tuple[str, str], ...]) -> IcebergSpark:
    return IcebergSpark(name, dict(properties))


def iceberg_spark(place: LakePlace) -> IcebergSpark:
    """Spark for one warehouse. The stores of a process share it: each catalog in Spark keeps connections of its own."""
    return _shared(place.name, tuple(sorted(place.for_spark().items())))


EVERY_S = 600.0
"""Upkeep by the clock: three jobs of Spark."""
MOST_SNAPSHOTS = 500
"""A table's metadata lists its snapshots, and each commit writes it anew."""
SMALLEST_BYTES = 16 * 1024
"""Files of the first tier are smaller."""
WHOLE_BYTES, WHOLE_POSITIONS_BYTES = 384 * 1024 * 1024, 48 * 1024 * 1024
"""Iceberg takes a file of this size for whole: three quarters of its target."""
DELETED_SHARE = 0.3
"""So many of a table's rows may stand behind a delete, before the files that have them are written anew."""


class FileSizes(NamedTuple):
    """The files of a table's newest snapshot, in bytes. ``rows`` and ``deletes`` are counts."""

    data: Sequence[int]
    positions: Sequence[int]
    rows: int
    deletes: int


def joined_below(sizes: Sequence[int], few: int, whole: int = WHOLE_BYTES) -> int | None:
    """Up to which size files are to be joined: those of the largest tier that has ``few`` of them, and all smaller
    ones. None where no tier has so many.

    >>> joined_below([1000] * 4, 4), joined_below([1000] * 3 + [500_000], 4)
    (16384, None)
    """
    tiers = Counter(tier for size in sizes if (tier := _tier(size, few, whole)) is not None)
    full = [tier for tier, count in tiers.items() if count >= few]
    return min(SMALLEST_BYTES * few ** max(full), whole) if full else None


def _tier(size: int, few: int, whole: int) -> int | None:
    """None for a file that is whole."""
    if size >= whole:
        return None
    tier = 0
    while size >= SMALLEST_BYTES * few**tier:
        tier += 1
    return tier


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

    def due(self, catalog: str, snapshot_times: Sequence[int], files: Callable[[], FileSizes]) -> Iterator[str]:
        """The statements to carry out now. ``snapshot_times``: in ms since 1970, the oldest first. ``files``: asked
        for where so many commits have come that some may have to be joined."""
        now = self._clock.monotonic()
        by_clock = now - self._at >= EVERY_S
        system = f"{quoted_name(catalog)}.system"
        if self._unjoined and (by_clock or self._unjoined >= self._place.compact_files):
            yield from self._joins(system, files())
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

    def _joins(self, system: str, files: FileSizes) -> Iterator[str]:
        few = self._place.compact_files
        behind = files.rows and files.deletes >= DELETED_SHARE * files.rows
        data = joined_below(files.data, few)
        positions = joined_below(files.positions, few, WHOLE_POSITIONS_BYTES)
        if behind:
            yield self._call(system, "rewrite_data_files", _below(data or 0) | {"delete-file-threshold": 1})
            yield self._call(system, "rewrite_position_delete_files", {"rewrite-all": True})
            return
        if data is not None:
            yield self._call(system, "rewrite_data_files", _below(data))
        if positions is not None:
            yield self._call(system, "rewrite_position_delete_files", _below(positions))

    def _call(self, system: str, procedure: str, options: Mapping[str, int | bool]) -> str:
        said = ", ".join(f"'{name}', '{str(value).lower()}'" for name, value in options.items())
        return f"call {system}.{procedure}(table => {self._table}, options => map({said}))"


def _below(size: int) -> dict[str, int | bool]:
    """Options by which the files smaller than this are joined, and no others."""
    return {"min-file-size-bytes": size, "min-input-files": 2}


def keyed(keys: Sequence[Any]) -> BooleanExpression:
    """Rows under any of these keys."""
    one_of: Any = In
    made: BooleanExpression = one_of(CDC_KEY, list(keys))
    return made


def no_key() -> BooleanExpression:
    """Rows that another writer put there without a key."""
    is_null: Any = IsNull
    made: BooleanExpression = is_null(CDC_KEY)
    return made


def below(floor: str) -> BooleanExpression:
    """Rows below a position."""
    less: Any = LessThan
    made: BooleanExpression = less(CDC_POS, floor)
    return made


def summary_count(table: Table, name: str) -> int | None:
    """A count that the newest snapshot states. 0 in a table without one. None where it does not state it, as it need
    not: that says nothing."""
    current = table.current_snapshot()
    if current is None:
        return 0
    said = current.summary[name] if current.summary is not None else None
    return int(said) if said is not None else None


def file_sizes(table: Table) -> FileSizes:
    """The sizes of its files, by its manifests."""
    snapshot = table.current_snapshot()
    data: list[int] = []
    positions: list[int] = []
    for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
        for entry in manifest.fetch_manifest_entry(table.io):
            sizes = data if entry.data_file.content is DataFileContent.DATA else positions
            sizes.append(entry.data_file.file_size_in_bytes)
    rows, deletes = (summary_count(table, name) or 0 for name in ("total-records", "total-position-deletes"))
    return FileSizes(data=data, positions=positions, rows=rows, deletes=deletes)
