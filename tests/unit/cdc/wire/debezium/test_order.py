"""Each connector's order as positions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.position import SNAPSHOT_SEQ, Position
from cdc.wire.debezium.order import Unordered, position_of


def binlog(file: int, offset: int, row: int = 0, snapshot: str = "false") -> dict[str, Any]:
    name = f"mysql-bin.{file:06d}"
    return {"connector": "mysql", "file": name, "pos": offset, "row": row, "snapshot": snapshot}


def sqlserver(file: int, block: int, slot: int, serial: int = 1) -> dict[str, Any]:
    lsn = f"{file:08x}:{block:08x}:{slot:04x}"
    return {"connector": "sqlserver", "commit_lsn": lsn, "change_lsn": lsn, "event_serial_no": serial}


_binlog = st.tuples(st.integers(1, 2**21 - 1), st.integers(4, 2**32 - 1), st.integers(0, 100_000))
_sqlserver = st.tuples(
    st.integers(0, 2**24 - 1), st.integers(0, 2**29 - 1), st.integers(0, 2**16 - 1), st.integers(0, 60_000)
)


@given(_binlog, _binlog)
def test_the_binlogs_order_is_kept(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    assert (position_of(binlog(*one), 1) < position_of(binlog(*other), 1)) == (one[:2] < other[:2])


@given(st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1))
def test_the_scns_order_is_kept(one: int, other: int) -> None:
    def oracle(scn: int) -> dict[str, Any]:
        return {"connector": "oracle", "commit_scn": str(scn), "scn": "1"}

    assert (position_of(oracle(one), 1) < position_of(oracle(other), 1)) == (one < other)


@given(_sqlserver, _sqlserver)
def test_the_change_tables_order_is_kept(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> None:
    assert (position_of(sqlserver(*one), 1) < position_of(sqlserver(*other), 1)) == (one[:3] < other[:3])


@given(_binlog, _sqlserver)
def test_every_position_fits_a_search_document(b: tuple[int, int, int], s: tuple[int, int, int, int]) -> None:
    for source in (binlog(*b), sqlserver(*s)):
        position = position_of(source, 127)
        assert 0 < position.document_version() < 2**63
        assert Position.parse(position.text()) == position
        assert position.streamed


@given(_binlog, st.sampled_from(["first", "true", "last", "first_in_data_collection", "incremental"]))
def test_a_snapshot_row_lies_below_the_change_at_its_place(place: tuple[int, int, int], marker: str) -> None:
    file, offset, row = place
    snapshot = position_of(binlog(file, offset, row, marker), 1)
    change = position_of(binlog(file, offset, row), 1)
    assert snapshot.tx_seq == SNAPSHOT_SEQ
    assert snapshot < change
    assert snapshot.document_version() < change.document_version()


@given(_binlog, st.integers(0, 60_000))
def test_no_change_lies_below_what_earlier_versions_wrote(place: tuple[int, int, int], serial: int) -> None:
    """They had the row of the event, or its serial number, as tx_seq."""
    file, offset, row = place
    assert position_of(binlog(file, offset), 1) > Position(1, (file << 32 | offset) << 3, row + 1)
    assert position_of(sqlserver(1, 2, 3), 1) > Position(1, (1 << 29 | 2) << 3, 3 << 16 | serial + 1)
    assert position_of(sqlserver(1, 2, 4), 1) > position_of(sqlserver(1, 2, 3), 1)


def test_of_a_racs_scns_one_per_thread_the_first_counts() -> None:
    source = {"connector": "oracle", "commit_scn": "2122190:1:0a00-2122188:2:0b00", "scn": "2122184"}
    assert position_of(source, 1) == Position(1, 2122190 << 3, 1)


def test_a_snapshot_row_of_oracle_stands_at_its_scn() -> None:
    source = {"connector": "oracle", "scn": "2122184", "commit_scn": None, "snapshot": "true"}
    assert position_of(source, 1) == Position(1, 2122184 << 3, SNAPSHOT_SEQ)


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"connector": "db2"},
        {"connector": "postgresql"},
        {"connector": "postgresql", "sequence": "[]"},
        {"connector": "mysql", "file": "", "pos": 4},
        {"connector": "mysql", "file": "mysql-bin.9999999", "pos": 4},
        {"connector": "mongodb"},
        {"connector": "oracle", "scn": None},
        {"connector": "oracle", "scn": str(2**60)},
        {"connector": "sqlserver", "commit_lsn": "1:2"},
        {"connector": "sqlserver", "commit_lsn": "ffffffff:00000000:0000"},
    ],
)
def test_what_names_no_place_is_refused(source: dict[str, Any]) -> None:
    with pytest.raises(Unordered):
        position_of(source, 1)
