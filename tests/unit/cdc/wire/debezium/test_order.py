"""Each connector's order as positions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.position import SNAPSHOT_SEQ, Position
from cdc.wire.debezium.order import Unordered, position_of, snapshot_marker


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


def test_changes_of_one_place_share_a_number_that_never_changes() -> None:
    """Stores hold it: the manual's table of the order."""
    assert position_of(binlog(1, 4), 1).tx_seq == 0xFFFF_FFFE
    assert position_of(sqlserver(1, 2, 4), 1).tx_seq == 0x0004_FFFE


@pytest.mark.parametrize("scns", ["2122190:1:0a00-2122188:2:0b00", "2122190,2122188", "2122190"])
def test_of_a_racs_scns_one_per_thread_the_first_counts(scns: str) -> None:
    source = {"connector": "oracle", "commit_scn": scns, "scn": "2122184"}
    assert position_of(source, 1) == Position(1, 2122190 << 3, 1)


def test_a_snapshot_row_of_oracle_stands_at_its_scn() -> None:
    source = {"connector": "oracle", "scn": "2122184", "commit_scn": None, "snapshot": "true"}
    assert position_of(source, 1) == Position(1, 2122184 << 3, SNAPSHOT_SEQ)


def test_a_sql_server_row_without_a_commit_stands_at_its_change() -> None:
    source = sqlserver(1, 2, 3) | {"commit_lsn": None, "snapshot": "true"}
    assert position_of(source, 1) == Position(1, (1 << 29 | 2) << 3, SNAPSHOT_SEQ)


@pytest.mark.parametrize(
    ("said", "marker"),
    [
        ({}, "false"), ({"snapshot": None}, "false"), ({"snapshot": False}, "false"), ({"snapshot": "false"}, "false"),
        ({"snapshot": True}, "true"), ({"snapshot": "true"}, "true"), ({"snapshot": "last"}, "last"),
    ],
)  # fmt: skip
def test_the_snapshot_marker_is_one_word(said: dict[str, Any], marker: str) -> None:
    assert snapshot_marker(said) == marker


def postgres(last_commit: int) -> dict[str, Any]:
    return {"connector": "postgresql", "sequence": f'["{last_commit}","{last_commit}"]'}


@pytest.mark.parametrize(
    "source",
    [
        postgres(1), postgres(2**56),
        binlog(2**21 - 1, 2**32 - 1), sqlserver(2**24 - 1, 2**29 - 1, 2**16 - 1),
        {"connector": "oracle", "scn": "0"}, {"connector": "oracle", "scn": str(2**53 - 1)},
    ],
)  # fmt: skip
def test_the_lowest_and_the_highest_place_have_a_position(source: dict[str, Any]) -> None:
    assert 0 <= position_of(source, 1).commit_lsn < 2**56


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({}, "no order is known for the connector None"),
        ({"connector": "db2"}, "no order is known for the connector db2"),
        ({"connector": "mongodb"}, "no order is known for the connector mongodb"),
        ({"connector": "postgresql"}, "its source block names no position of postgresql"),
        ({"connector": "postgresql", "sequence": "[]"}, "its source block names no position of postgresql"),
        (postgres(0), "its postgresql position is beyond what a position can hold"),
        (postgres(2**56 + 1), "its postgresql position is beyond what a position can hold"),
        ({"connector": "mysql", "file": "", "pos": 4}, "its source block names no position of mysql"),
        (binlog(2**21, 4), "its binlog position is beyond what a position can hold"),
        (binlog(1, 2**32), "its binlog position is beyond what a position can hold"),
        ({"connector": "oracle", "scn": None}, "its source block names no position of oracle"),
        ({"connector": "oracle", "scn": str(2**53)}, "its oracle position is beyond what a position can hold"),
        ({"connector": "sqlserver", "commit_lsn": "1:2"}, "its source block names no position of sqlserver"),
        (sqlserver(2**24, 0, 0), "its log sequence number is beyond what a position can hold"),
        (sqlserver(0, 2**29, 0), "its log sequence number is beyond what a position can hold"),
        (sqlserver(0, 0, 2**16), "its log sequence number is beyond what a position can hold"),
    ],
)
def test_what_names_no_place_is_refused(source: dict[str, Any], words: str) -> None:
    with pytest.raises(Unordered) as refused:
        position_of(source, 1)
    assert str(refused.value) == words
