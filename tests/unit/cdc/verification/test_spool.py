"""Rows on disk, parted by key."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.verification.result import Kind
from cdc.verification.spool import MAX_PARTS, PART_ROWS, Spool, differences, digest, part_count, row_count
from tests.examples import examples


@pytest.mark.parametrize("parts", [1, 7])
def test_every_row_is_in_the_part_of_its_key_in_every_spool(tmp_path: Path, parts: int) -> None:
    keys = [f"key:{n}" for n in range(200_000)]
    with Spool(tmp_path, "a", parts) as one, Spool(tmp_path, "b", parts) as other:
        one.add(keys, [b"x"] * len(keys))
        for start in range(0, len(keys), 999):
            some = keys[start : start + 999]
            other.add(some, [b"x"] * len(some), ["0"] * len(some))
        one.finish()
        other.finish()
        for part in range(parts):
            assert set(one.part(part)["key"].to_pylist()) == set(other.part(part)["key"].to_pylist())
        assert row_count(one) == row_count(other) == len(keys)
        assert list(differences(one, other)) == []
    assert list(tmp_path.iterdir()) == []


def test_a_key_shown_twice_counts_once(tmp_path: Path) -> None:
    with Spool(tmp_path, "a", 1) as spool:
        spool.add(["1", "1", "2", "3"], [b"x", b"x", b"x", None], ["0"] * 4)
        spool.finish()
        assert row_count(spool) == 2


@pytest.mark.parametrize("parts", [1, 3])
def test_w1_a_key_of_two_rows_of_the_source_is_named_once(tmp_path: Path, parts: int) -> None:
    with Spool(tmp_path, "a", parts) as source, Spool(tmp_path, "b", parts) as store:
        source.add(["1", "1", "2", "3", "3", "3", "4"], [b"x", b"y", b"x", b"x", b"x", b"x", b"x"])
        store.add(["1", "2", "3"], [b"x", b"x", b"x"], ["0"] * 3)
        source.finish()
        store.finish()
        found = sorted((one.key, one.kind) for one in differences(source, store))
    assert found == [("1", Kind.SHARED), ("3", Kind.SHARED), ("4", Kind.MISSING)]


def test_parts_grow_with_the_table() -> None:
    assert [part_count(n) for n in (0, 1, PART_ROWS, PART_ROWS + 1, 10**12)] == [1, 1, 1, 2, MAX_PARTS]


@settings(max_examples=examples(50))
@given(st.binary(), st.binary())
def test_digests_tell_rows_apart(one: bytes, other: bytes) -> None:
    assert (digest(one) == digest(other)) == (one == other)
