"""All rows of a Delta table put in the place of another one's, in one commit, while somebody else writes that one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import deltalake
import pyarrow as pa
from deltalake.transaction import AddAction

from sinks.delta.delta_rewrite import PACKED, KeyedFiles


class WholeExchange:
    """One exchange. ``target``: the table, as it is opened when this is asked. ``rows``: all that it is to have, from
    the first on each time. ``schema`` and ``by``: its columns and partitions from then on."""

    def __init__(
        self,
        target: Callable[[], KeyedFiles],
        rows: Callable[[], Iterator[pa.RecordBatch]],
        schema: pa.Schema,
        by: Sequence[str],
    ) -> None:
        self._target = target
        self._rows = rows
        self._schema = schema
        self._by = list(by)
        self._added: list[AddAction] | None = None

    def write(self, wanted: int) -> None:
        """Write the rows in files of about that many bytes, of which the log learns by :meth:`commit`: that is over in
        a moment, however many there are, where a sink that runs commits all the time. Nothing happens for a table that
        gets other columns or partitions, which a sink holds, or has what writers keep beside its rows."""
        target = self._target()
        same = target.schema.equals(self._schema) and target.table.metadata().partition_columns == self._by
        if same and target.exchangeable():
            self._added = target.write(self._rows(), wanted)

    def commit(self) -> None:
        """CommitFailedError where somebody else has written since the table was opened."""
        if self._added is not None:
            self._target().exchange(self._added)
            return
        reader = pa.RecordBatchReader.from_batches(self._schema, self._rows())
        anew: Any = {"schema_mode": "overwrite", "partition_by": self._by, **PACKED}
        deltalake.write_deltalake(self._target().table, reader, mode="overwrite", **anew)
