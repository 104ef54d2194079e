"""The faults of an Iceberg catalog and its tables, in the words of those who report them: pyiceberg, the database that
is the catalog, and Spark."""

from __future__ import annotations

from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    OAuthError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
from sqlalchemy.exc import DBAPIError

from cdc.process.errors import Exit, Retry, SinkError
from sinks.contract.port import PlaceMissing, StoreAway
from sinks.contract.store_connection import brief, login_refused


class LakeRemoved(PlaceMissing):
    """A table that is not there any more."""


class LakeExchanged(LakeRemoved):
    """A table in whose place another state of it was put."""


class LakeUnfit(SinkError):
    """A table that takes no rows of ours, however often. ``why``: a clause without values."""

    exit = Exit.CONFIG
    retry = Retry.NEVER

    def __init__(self, message: str, *, hint: str = "", why: str = "") -> None:
        super().__init__(message, hint=hint)
        self.why = why


PASSING = (*(CommitFailedException, OSError, DBAPIError, ServiceUnavailableError, ServerError, TooManyRequestsError),)
"""May pass by themselves. Of a file that is gone: whoever opens the table anew sees another one."""

COLUMN_REMOVED = "a column was removed from the table, or has another type"
FILE_MISSING = "a file of the table is missing"
_UNFIT = (
    *((words, COLUMN_REMOVED) for words in ("UNRESOLVED_COLUMN", "INCOMPATIBLE_DATA_FOR_TABLE", COLUMN_REMOVED)),
    *((words, COLUMN_REMOVED) for words in ("Mismatch in fields", "Cannot write incompatible")),
    ("AMBIGUOUS_REFERENCE", "two of its columns are one column to Spark"),
    ("NullPointerException", FILE_MISSING),
)
_CONFLICTS = (
    *("CommitFailedException", "ValidationException", "CommitStateUnknownException", "NotFoundException"),
    *("UUID does not match", "FileNotFoundException", "FAILED_READ_FILE"),
)
"""Words of Spark about what somebody else did to the table meanwhile: it is tried again."""
_ABSENT = ("does not exist", "No such file")
_LOGIN = ("password authentication failed", "no password supplied", "no password was provided", "no pg_hba.conf entry")
_KEY = (
    *("ACCESS_DENIED", "access denied", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "SignatureDoesNotMatch"),
    *("InvalidAccessKeyId", "Status Code: 403"),
)
"""Of an object store: pyarrow's words, and those of Amazon's client."""
_RIGHTS = ("permission denied", "must be owner")


_CAUSE = "Caused by: "


def conflict(text: str) -> bool:
    """Whether Spark says that somebody else was at the table meanwhile."""
    return any(words in text for words in _CONFLICTS)


def given_up(error: Exception, catalog: str, table: str) -> SinkError:
    """:func:`explained` after the last try. A file that is still not there was not joined with others by somebody else:
    the snapshot names it, and no try finds it."""
    if isinstance(error, FileNotFoundError) or any(map(_names_absent, str(error).splitlines())):
        return LakeUnfit(f"the Iceberg table {table} cannot be used: {FILE_MISSING}", why=FILE_MISSING)
    return explained(error, catalog, table)


def _names_absent(line: str) -> bool:
    # Java has the same class for a file that it may not open.
    found = "NotFoundException" in line and any(words in line for words in _ABSENT)
    return found or "FAILED_READ_FILE.FILE_NOT_EXIST" in line


def explained(error: Exception, catalog: str, table: str) -> SinkError:
    """The sink's own error for an error of any of them. ``table``: its full name, or empty for the catalog alone."""
    text = f"{type(error).__name__}: {error}"
    store = f"the Iceberg catalog {catalog}"
    refused = _refusal(error, store, text)
    if refused is not None:
        return refused
    if isinstance(error, NoSuchTableError) or "TABLE_OR_VIEW_NOT_FOUND" in text:
        return LakeRemoved(f"there is no Iceberg table {table}", hint="the sink makes it anew and fills it")
    why = next((why for words, why in _UNFIT if words in text), None)
    if why is not None:
        return LakeUnfit(f"the Iceberg table {table} cannot be used: {why}", why=why)
    if isinstance(error, DBAPIError):
        hint = "check the sink's catalog, and that the server runs and can be reached from here"
        return StoreAway(f"{store} cannot be reached: {brief(str(error.orig))}", hint=hint)
    what = f"the Iceberg table {table}" if table else store
    return StoreAway(
        f"{what} cannot be written or read: {brief(_essence(text))}",
        hint="check the sink's path, catalog_options and catalog_secrets, and the room that is left there",
    )


def _refusal(error: Exception, store: str, text: str) -> SinkError | None:
    """Somebody answers and does not let the sink in, which no time mends."""
    if isinstance(error, UnauthorizedError | ForbiddenError | OAuthError) or any(words in text for words in _LOGIN):
        retry = Retry.NEVER if isinstance(error, ForbiddenError) else Retry.SECRET
        return login_refused(store, str(error.orig) if isinstance(error, DBAPIError) else _essence(text), retry=retry)
    if any(words in text for words in _KEY):
        what, hint = f"the object store of {store} refuses the key", "check the key in catalog_options, and its rights"
    elif any(words in text for words in _RIGHTS):
        what, hint = f"{store} refuses what the sink has to do", "give the sink's user the rights of sinks/README.md"
    else:
        return None
    return SinkError(f"{what}: {brief(_essence(text))}", hint=hint, retry=Retry.NEVER, exit=Exit.CONFIG)


def _essence(text: str) -> str:
    """The last cause that is named, or the first line."""
    *_, essence = (text.partition("\n")[0], *(one for one in text.splitlines() if one.startswith(_CAUSE)))
    return essence.removeprefix(_CAUSE)
