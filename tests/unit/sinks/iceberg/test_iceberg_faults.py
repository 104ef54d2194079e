"""What an error of an Iceberg warehouse is to the sink: whose words count, and whether time mends it."""

from __future__ import annotations

import pytest
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, NoSuchTableError
from sqlalchemy.exc import OperationalError

from cdc.process.errors import Exit, Retry, SinkError
from sinks.contract.port import StoreAway
from sinks.iceberg.iceberg_faults import COLUMN_REMOVED, LakeRemoved, LakeUnfit, conflict, explained, given_up
from sinks.iceberg.iceberg_table import SparkRefused

FULL = "[WRITING_JOB_ABORTED] Writing\nCaused by: Job aborted\nCaused by: java.io.IOException: No space left"
KEY = "OSError: AWS Error ACCESS_DENIED during HeadObject operation"


@pytest.mark.parametrize(
    ("error", "kind", "words", "code"),
    [
        (
            SparkRefused(FULL),
            StoreAway,
            "or read: java.io.IOException: No space left",
            Exit.UNAVAILABLE,
        ),
        (CommitFailedException("moved on"), StoreAway, "the Iceberg table lake.shop.t cannot be", Exit.UNAVAILABLE),
        (OperationalError("", {}, Exception("no route")), StoreAway, "cannot be reached: no route", Exit.UNAVAILABLE),
        (NoSuchTableError("t"), LakeRemoved, "there is no Iceberg table lake.shop.t", None),
        (SparkRefused("[UNRESOLVED_COLUMN.X] y"), LakeUnfit, COLUMN_REMOVED, Exit.CONFIG),
        (SparkRefused("[AMBIGUOUS_REFERENCE] Reference"), LakeUnfit, "are one column to Spark", Exit.CONFIG),
        (SparkRefused(COLUMN_REMOVED), LakeUnfit, COLUMN_REMOVED, Exit.CONFIG),
        (OSError(KEY), SinkError, "the object store of the Iceberg catalog x refuses the key", Exit.CONFIG),
        (ForbiddenError("no"), SinkError, "the Iceberg catalog x refuses the login", Exit.CONFIG),
        (
            SparkRefused("permission denied"),
            SinkError,
            "refuses what the sink has to do",
            Exit.CONFIG,
        ),
    ],
)
def test_an_error_says_whose_fault_it_is(
    error: Exception, kind: type[SinkError], words: str, code: Exit | None
) -> None:
    found = explained(error, "x", "lake.shop.t")
    assert type(found) is kind
    assert words in found.message
    assert "\n" not in found.message
    if code is not None:
        assert found.exit is code
        assert (found.retry in (Retry.NEVER, Retry.SECRET)) == (code is Exit.CONFIG)


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (CommitFailedException("x.exceptions.NotFoundException: Location does not exist: s3://b/x.parquet"), True),
        (CommitFailedException("Job\nCaused by: java.io.FileNotFoundException: File file:/x does not exist"), True),
        (CommitFailedException("[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error"), True),
        (FileNotFoundError(2, "Failed to open local file"), True),
        (CommitFailedException("Job\nCaused by: java.io.FileNotFoundException: /x (Permission denied)"), False),
        (PermissionError(13, "Failed to open local file"), False),
        (CommitFailedException("UUID does not match"), False),
    ],
)
def test_h387_a_file_that_no_try_finds_is_missing(error: Exception, missing: bool) -> None:
    found = given_up(error, "x", "lake.shop.t")
    assert type(found) is (LakeUnfit if missing else StoreAway)
    assert "lake.shop.t" in found.message
    assert type(explained(error, "x", "lake.shop.t")) is StoreAway, "a compaction may have removed it"


def test_a_conflict_is_known_by_its_causes() -> None:
    assert conflict("Job aborted\nCaused by: org.apache.iceberg.exceptions.ValidationException: Found some")
    assert not conflict(FULL)
