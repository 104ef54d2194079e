"""The first bytes of a cluster's WAL: whether a transaction wrote before a slot was made."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.operate.new_epoch import is_untouched
from tests.examples import examples

BEGIN, SYSTEM = 0x8000000, 7713498631746935819
HEADER = struct.pack("=HHIQI4xQII", 0xD118, 2, 1, BEGIN, 0, SYSTEM, 16 * 1024**2, 8192)
STANDBY = 8


def wal(*records: tuple[int, int, int], begin: int = BEGIN) -> bytes:
    """Records of these lengths, transactions and managers, each padded."""
    found, before = HEADER, 0
    for length, transaction, manager in records:
        body = struct.pack("=IIQBB2xI", length, transaction, before, 0, manager, 0) + bytes(length - 24)
        before = begin + len(found)
        found += body + bytes(-len(body) % 8)
    return found


def test_x12_a_checkpoint_and_running_transactions_are_no_writes() -> None:
    assert is_untouched(wal((114, 0, 0), (50, 0, STANDBY)), BEGIN, str(SYSTEM))


@pytest.mark.parametrize(
    ("data", "begin", "system"),
    [
        (wal((114, 0, 0), (60, 781, 10)), BEGIN, SYSTEM),
        (wal((114, 781, 0)), BEGIN, SYSTEM),
        (wal((114, 0, STANDBY)), BEGIN, SYSTEM),
        (wal((114, 0, 0), (50, 0, STANDBY), begin=BEGIN + 8), BEGIN, SYSTEM),
        (wal((114, 0, 0)), 2 * BEGIN, SYSTEM),
        (wal((114, 0, 0)), BEGIN, SYSTEM + 1),
        (wal((114, 0, 0), (114, 0, 0), (50, 0, STANDBY)), BEGIN, SYSTEM),
        (wal((114, 0, 0))[: len(HEADER) + 8], BEGIN, SYSTEM),
        (HEADER, BEGIN, SYSTEM),
        (b"", BEGIN, SYSTEM),
    ],
)
def test_x12_other_wal_proves_nothing(data: bytes, begin: int, system: int) -> None:
    assert not is_untouched(data, begin, str(system))


@settings(max_examples=examples(200))
@given(st.binary(max_size=300))
def test_x12_no_bytes_are_too_odd(data: bytes) -> None:
    """A record of a transaction is one wherever it stands, and bytes without a header are none."""
    assert not is_untouched(data, BEGIN, str(SYSTEM))
    assert not is_untouched(wal((114, 0, 0), (50, 781, STANDBY)) + data, BEGIN, str(SYSTEM))
