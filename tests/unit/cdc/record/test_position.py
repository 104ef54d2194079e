"""The order of all changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.position import CHUNK_SEQ, MAX_EPOCH, SNAPSHOT_SEQ, Lsn, Position

positions = st.builds(
    Position,
    epoch=st.integers(1, 127),
    commit_lsn=st.integers(0, 2**64 - 1),
    tx_seq=st.integers(0, CHUNK_SEQ),
)
aligned_lsns = st.integers(1, 2**55 // 8).map(lambda n: n * 8)


@given(positions, positions)
def test_text_orders_as_the_position_does(one: Position, other: Position) -> None:
    assert (one < other) == (one.text() < other.text())


@given(positions)
def test_text_reads_back(position: Position) -> None:
    assert Position.parse(position.text()) == position
    assert len(position.text()) == 32


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "g" * 32])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Position.parse(text)


@given(aligned_lsns, aligned_lsns, st.integers(1, 1000))
def test_h10_h11_a_snapshot_row_is_below_the_commit_at_its_lsn(lsn: int, later: int, seq: int) -> None:
    row = Position(1, lsn, SNAPSHOT_SEQ)
    assert row < Position(1, lsn, seq) < Position(1, lsn, CHUNK_SEQ)
    assert (Position(1, lsn, CHUNK_SEQ) < Position(1, later, seq)) == (lsn < later)


@given(
    st.integers(1, 127),
    st.integers(1, 127),
    aligned_lsns,
    aligned_lsns,
    st.sampled_from([SNAPSHOT_SEQ, 5, CHUNK_SEQ]),
    st.sampled_from([SNAPSHOT_SEQ, 5, CHUNK_SEQ]),
)
def test_h83_a_document_version_orders_as_the_position_and_fits(
    e1: int, e2: int, l1: int, l2: int, s1: int, s2: int
) -> None:
    one, other = Position(e1, l1, s1), Position(e2, l2, s2)
    assert (one < other) == (one.document_version() < other.document_version())
    assert 0 < one.document_version() < 2**63


@given(st.integers(0, 2**64 - 1))
def test_an_lsn_prints_as_postgres_does_and_reads_back(value: int) -> None:
    text = str(Lsn(value))
    assert Lsn.parse(text) == value
    assert text == f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"
    assert f"{Lsn(value)}" == text


@pytest.mark.parametrize("text", ["", "0", "0/", "/0", "0/123456789", "x/y", "0/1 "])
def test_what_is_no_lsn_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Lsn.parse(text)


@given(aligned_lsns, st.integers(5, 1000), st.integers(0, 1000), st.integers(1, 1000))
def test_h91_debeziums_event_is_just_above_the_commit_before_it(
    before: int, size: int, distance: int, seq: int
) -> None:
    """``size``: a commit record alone takes 34 bytes; ``distance``: the next may begin where it ends."""
    end = before + size * 8
    ascending = [
        Position(1, before, SNAPSHOT_SEQ),
        Position(1, before, seq),
        Position(1, before, CHUNK_SEQ),
        Position(1, end - 8, CHUNK_SEQ),
        Position(1, end - 1, 0),
        Position(1, end + distance * 8, seq),
    ]
    assert sorted(ascending) == ascending
    versions = [position.document_version() for position in ascending]
    assert sorted(versions) == versions
    assert sorted(set(versions[:-1])) == versions[:-1]
    assert [position.streamed for position in ascending] == [False, True, False, False, True, True]


def test_h83_a_document_version_in_figures() -> None:
    first, event, chunk = (Position(1, 0x1000, seq) for seq in (SNAPSHOT_SEQ, 5, CHUNK_SEQ))
    assert [one.document_version() - (1 << 56) for one in (first, event, chunk)] == [0x1000, 0x1001, 0x1007]
    assert Position(0, 0x1001, 1).document_version() == 0x1009
    assert Position(0, 0xFFF, 1).document_version() == 0x1001
    assert Position(MAX_EPOCH, 2**56 - 8, CHUNK_SEQ).document_version() < 2**63
    assert Position(MAX_EPOCH + 1, 0, SNAPSHOT_SEQ).document_version() == 2**63


def test_a_chunk_lies_above_every_streamed_change() -> None:
    assert Position(1, 8, CHUNK_SEQ).text() == "00000001" + "0000000000000008" + "ffffffff"
    assert Position(1, 8, CHUNK_SEQ) > Position(1, 8, CHUNK_SEQ - 1)
