"""Rules of the record, ``cdc/wire``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_SPARK = "tests/unit/spark"

MUTANTS = (
    Mutant(
        "make the digits of any scale", "cdc/wire/plain.py",
        "_MOST_DIGITS = 131_072", "_MOST_DIGITS = 1 << 99", "tests/unit/cdc/wire/test_plain.py -k h94",
    ),
    Mutant(
        "take a flat delete for a row", "cdc/wire/debezium/reading.py",
        'if str(payload.get("__deleted")).lower() == "true" or op == "d":', 'if op == "d":',
        "tests/unit/cdc/wire/debezium/test_read.py",
    ),
    Mutant(
        "let a slice of a batch take one record more", "cdc/wire/records.py",
        "fitting = bisect_right(sums, left)", "fitting = min(len(sums), bisect_right(sums, left) + 1)",
        f"{_SPARK}/test_batch.py",
    ),
    Mutant(
        "take a sweep mark's own place for its floor", "cdc/wire/records.py",
        "return Floor(floor, partitions)", "return Floor(pos, partitions)", "tests/unit/cdc/wire/test_floors.py",
    ),
    Mutant(
        "compare a double in single precision", "cdc/wire/types.py",
        "canonical=Canonical.DOUBLE", "canonical=Canonical.SINGLE", "tests/unit/cdc/wire/test_types.py",
    ),
    Mutant(
        "let a warehouse hold a date as text", "cdc/wire/types.py",
        'warehouse="date32[day]"', 'warehouse="string"', "tests/unit/cdc/wire/test_types.py",
    ),
    Mutant(
        "keep the buffer that JSON was written into", "cdc/record/documents.py",
        "bytes(memoryview(orjson.dumps(value, option=option)))", "orjson.dumps(value, option=option)",
        "tests/unit/cdc/record/test_json_bytes.py",
    ),
)  # fmt: skip
