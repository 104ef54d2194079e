"""The faults of a Delta table that its captured table has to hear of."""

from __future__ import annotations

from cdc.errors import Exit, Retry, SinkError
from sinks.port import PlaceMissing, StoreAway
from sinks.store_retry import brief


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
