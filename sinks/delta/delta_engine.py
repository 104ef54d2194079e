"""The writer of a Delta warehouse: the embedded engine, or Spark. A warehouse stays with the one that began it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import orjson

from cdc.clock import Clock
from cdc.errors import ConfigError
from cdc.json_bytes import dumped
from cdc.schema import TableSchema
from cdc.stored import reading
from sinks.delta.delta_kind import EMBEDDED, ENGINE, SPARK
from sinks.delta.delta_notes import DeltaNotes
from sinks.delta.delta_storage import Storage
from sinks.delta.delta_table import Delta
from sinks.port import CannotCarry
from sinks.warehouse.warehouse_columns import WarehouseColumn, one_to_spark

if TYPE_CHECKING:
    from sinks.warehouse.warehouse_spark import WarehouseSpark


class DeltaEngine:
    """The engine of one warehouse, by its settings and by its notes."""

    def __init__(self, storage: Storage, notes: DeltaNotes, clock: Clock) -> None:
        self._storage = storage
        self._notes = notes
        self._clock = clock
        self._agreed = False

    def table(self, path: str) -> Delta:
        """A table of the warehouse, as this engine writes it."""
        if self._storage.engine != SPARK:
            return Delta(self._storage, path, self._clock)
        from sinks.delta.spark_delta import SparkDelta  # noqa: PLC0415 - Spark's client, of use here alone

        return SparkDelta(self._storage, path, self._clock, self._spark)

    @cached_property
    def _spark(self) -> WarehouseSpark:
        from sinks.delta.spark_delta import delta_spark  # noqa: PLC0415 - as above

        return delta_spark()

    def require(self) -> None:
        """ConfigError where another engine began the warehouse. An empty one is this engine's from here on."""
        if not self._agreed:
            unnoted = self.unnoted(self._notes.read())
            if unnoted:
                self._notes.write_all(unnoted)
            self._agreed = True

    def unnoted(self, notes: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """The note of the engine that these notes lack: nothing where they name it. ConfigError as
        :meth:`require`.

        A watermark may be committed before a table has a row. Without the engine beside it the warehouse would be the
        embedded engine's.
        """
        # A floor is noted before its table has a place.
        used = any(not name.startswith("floor:") for name in notes)
        began = engine_in(notes[ENGINE]) if ENGINE in notes else EMBEDDED if used else self._storage.engine
        if began != self._storage.engine:
            raise ConfigError(
                f'the warehouse {self._storage.root} is written by engine = "{began}", and the settings name '
                f'"{self._storage.engine}"',
                hint=f'cdc rebuild makes it anew by the other engine; or set engine = "{began}" again',
            )
        return {ENGINE: dumped(began)} if ENGINE not in notes and began == SPARK else {}

    def require_columns(
        self, schema: TableSchema, existing: Callable[[], Collection[str]], wanted: Sequence[WarehouseColumn]
    ) -> None:
        """CannotCarry for a table of which Spark would write one column into another: it reads names that differ in
        case alone as one."""
        twins = one_to_spark(existing(), wanted) if self._storage.engine == SPARK else ""
        if twins:
            raise CannotCarry.because(schema.table, twins)

    def make_ready(self, table: Delta, schema: TableSchema) -> None:
        """Let Spark make deletion vectors in a table of its own. CannotCarry for another one that asks for them."""
        if self._storage.engine == SPARK:
            table.set_vectors(wanted=True)
        elif table.vectored and table.writes_vectors:
            why = 'its Delta table has deletion vectors, which a warehouse of engine = "spark" alone has'
            raise CannotCarry.because(schema.table, why)


def engine_in(note: bytes) -> str:
    """The engine that a note names."""
    with reading("the engine that the warehouse has noted"):
        return str(orjson.loads(note))
