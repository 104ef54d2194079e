"""Where a Delta warehouse is, and what its log answers: who is there, the line of a table's commits, rows exchanged
in one commit, and a table's faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from cdc.process.errors import Exit, Retry, SinkError
from cdc.process.untrusted_text import quoted
from cdc.record.schema import TableSchema
from cdc.record.server_facts import StoreFacts
from sinks.contract.port import PlaceMissing, StoreAway
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store_connection import brief, require_folder
from sinks.contract.store_names import folder
from sinks.delta.delta_kind import EMBEDDED, RELATIVE
from sinks.delta.delta_rewrite import PACKED, KeyedFiles


class Removed(PlaceMissing):
    """A table that is not there any more."""


class Exchanged(Removed):
    """A table in whose place another state of it was put."""


class Unfit(SinkError):
    """A table that takes no rows of ours, however often. ``why``: a clause without values."""

    exit = Exit.CONFIG
    retry = Retry.NEVER

    def __init__(self, message: str, *, hint: str = "", why: str = "") -> None:
        super().__init__(message, hint=hint)
        self.why = why

    @classmethod
    def table(cls, path: str, why: str) -> Unfit:
        """Of the table at a path."""
        return cls(f"the Delta table {path} cannot be used: {why}", why=why)


COLUMNS = "a column was removed from the table, or has another type"
UNFIT = (
    ("failed validation", "a constraint of the table refuses its rows"),
    ("Schema error", COLUMNS),
    ("SchemaMismatch", "its columns are others than they were"),
    ("Failed to fetch metadata for file", "a file of the table is missing"),
    ("Kernel error: Json error", "the table's log cannot be read"),
    ("Expected contiguous commit files", "files of the table's log are missing"),
    ("Invalid Checkpoint", "files of the table's log are missing"),
    ("No table metadata or protocol found", "files of the table's log are missing"),
    ("DELTA_FILE_NOT_FOUND", "a file of the table is missing"),
    ("FILE_NOT_EXIST", "a file of the table is missing"),
    ("FileNotFoundError", "a file of the table is missing"),
    ("FileNotFoundException", "a file of the table is missing"),
    ("DELTA_VIOLATE_CONSTRAINT", "a constraint of the table refuses its rows"),
    ("DELTA_MERGE_UNRESOLVED_EXPRESSION", COLUMNS),
    ("UNRESOLVED_COLUMN", COLUMNS),
    ("DeltaProtocolError", "the table's protocol is none that is known here"),
)
"""Words of delta-rs and of Spark about a table that will not recover by itself. Each has one class for nearly all."""


def explained(path: str, error: Exception) -> SinkError:
    """The fault of the table at a path that any exception of delta-rs or of Spark stands for."""
    text = f"{type(error).__name__}: {error}"
    why = next((why for words, why in UNFIT if words in text), None)
    if why is not None:
        return Unfit.table(path, why)
    return StoreAway(
        f"the Delta table {path} cannot be written or read: {brief(str(error))}",
        hint="check the sink's path, its storage_options and storage_secrets, and the room that is left there",
    )


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


class CommitLine:
    """The commits in the log of a table in a folder of this machine, which may be exchanged for another one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, tuple[int, ...]] = (-1, ())

    def stands(self, version: int) -> bool:
        """Whether a version is the newest one, and the commit that it was when this was asked of it first: at once
        where it was written or opened here."""
        try:
            about = self._file(version).stat()
        except OSError:
            return False
        now = version, (about.st_ino, about.st_mtime_ns, about.st_size)
        if self._seen[0] != version:
            self._seen = now
        return now == self._seen and not self._file(version + 1).exists()

    def _file(self, version: int) -> Path:
        return Path(self._path, "_delta_log", f"{version:020}.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where the warehouse is, and the engine that writes it. ``options`` may hold secrets. ``partition_by``: see
    :func:`sinks.delta.delta_partitions.partition_of`."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    engine: str = EMBEDDED
    partition_by: str = ""

    @classmethod
    def of(cls, spec: SinkSpec) -> Storage:
        """From a spec's ``path`` and everything that begins with ``storage.``."""
        given = {**spec.options, **spec.secrets}
        options = {n.removeprefix("storage."): str(v) for n, v in given.items() if n.startswith("storage.")}
        engine = spec.optional("engine") or EMBEDDED
        by = spec.optional("partition_by") or ""
        return cls(root=spec.text("path").rstrip("/"), options=options, engine=engine, partition_by=by)

    @property
    def local(self) -> bool:
        """Whether the warehouse is a folder of this machine."""
        return "://" not in self.root


def table_path(schema: TableSchema) -> str:
    """A table's folder below the warehouse's root."""
    return f"{folder(schema.table.schema)}/{folder(schema.table.table)}"


def probe_delta(spec: SinkSpec) -> StoreFacts:
    """A folder that can be written, or an object store that answers.

    Raises ConfigError for a folder that cannot be written, SinkError when the object store does not answer.
    """
    path = spec.text("path")
    if "://" not in path:
        require_folder(Path(path))
        whole = Path(path).absolute()
        notes = {} if Path(path).is_absolute() else {RELATIVE: path}
        return StoreFacts(product="the folder", version=str(whole), notes=notes)
    try:
        deltalake.DeltaTable.is_deltatable(path, dict(Storage.of(spec).options))
    except (DeltaError, OSError, ValueError) as error:
        raise SinkError(
            f"the object store at {path} does not answer: {quoted(str(error))}",
            hint="check path, storage_options and storage_secrets",
        ) from None
    return StoreFacts(product="the object store", version=path)
