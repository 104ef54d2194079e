"""Which files of an Iceberg table are joined when: what is written is bounded by what has come, not by the table."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cdc.process.clock import ManualClock
from sinks.contract.kinds import spec_for
from sinks.iceberg.iceberg_catalog import LakePlace
from sinks.iceberg.iceberg_spark import (
    EVERY_S,
    MOST_SNAPSHOTS,
    SMALLEST_BYTES,
    WHOLE_BYTES,
    FileSizes,
    Upkeep,
    joined_below,
)

FEW = 16
SPEC = spec_for("iceberg", prefix="shop", options={"catalog": "postgresql://db/x", "path": "/lake"}, secrets={})


def upkeep(clock: ManualClock) -> Upkeep:
    return Upkeep(LakePlace.of(SPEC), "public_orders", clock)


def sizes(*data: int, positions: Sequence[int] = (), rows: int = 100, deletes: int = 0) -> FileSizes:
    return FileSizes(data=data, positions=positions, rows=rows, deletes=deletes)


def test_h359_a_large_file_is_left_alone_by_small_ones() -> None:
    large = 300 * 1024 * 1024
    assert joined_below([large, *[10_000] * FEW], FEW) == SMALLEST_BYTES
    assert joined_below([large, *[10_000] * (FEW - 1)], FEW) is None
    assert joined_below([2 * SMALLEST_BYTES] * FEW, FEW) == FEW * SMALLEST_BYTES
    assert joined_below([WHOLE_BYTES] * 100, FEW) is None


@given(st.integers(4, 32), st.integers(1_500, 400_000), st.integers(1, 3_000))
def test_h359_what_joins_write_grows_with_the_tiers(few: int, batch: int, batches: int) -> None:
    files: list[int] = []
    came = joined = 0
    for _ in range(batches):
        files.append(batch)
        came += batch
        below = joined_below(files, few)
        if below is not None:
            small = [size for size in files if size < below]
            files = [size for size in files if size >= below] + [sum(small)]
            joined += sum(small)
    tiers = 1
    while SMALLEST_BYTES * few**tiers < came:
        tiers += 1
    # Within the first tier a file is joined again until it has outgrown it.
    assert joined <= came * (tiers + 1 + SMALLEST_BYTES / ((few - 1) * batch))
    assert len(files) < few * (tiers + 1)


def test_each_statement_is_due_by_count_or_by_the_clock() -> None:
    clock = ManualClock(10**18)
    kept, small = upkeep(clock), sizes(*[1000] * FEW, positions=[100] * FEW)
    for _ in range(FEW - 1):
        kept.written()
    assert list(kept.due("lake", [], lambda: small)) == []
    kept.written()
    data, positions = kept.due("lake", [], lambda: small)
    assert data.startswith("call `lake`.system.rewrite_data_files(table => '`shop`.`public_orders`'")
    assert f"'min-file-size-bytes', '{SMALLEST_BYTES}', 'min-input-files', '2'" in data
    assert "rewrite_position_delete_files" in positions
    kept.written()
    clock.advance(EVERY_S)
    assert list(kept.due("lake", [], lambda: sizes(10))) == [], "one file is joined with none"


def test_many_deletes_have_their_files_written_anew() -> None:
    clock = ManualClock(10**18)
    kept = upkeep(clock)
    for _ in range(FEW):
        kept.written()
    data, positions = kept.due("lake", [], lambda: sizes(10**8, positions=[10], rows=100, deletes=30))
    assert "'delete-file-threshold', '1'" in data
    assert "'rewrite-all', 'true'" in positions


def test_snapshots_go_by_age_and_by_count() -> None:
    clock = ManualClock(10**18)
    now_ms, kept = 10**12, upkeep(clock)
    many = [now_ms - count for count in range(2 * MOST_SNAPSHOTS, -1, -1)]
    [expired] = kept.due("lake", many, sizes)
    assert "expire_snapshots" in expired
    assert "retain_last => 1" in expired
    clock.advance(EVERY_S)
    assert list(kept.due("lake", [now_ms], sizes)) == []
    clock.advance(7200.0)
    assert len(list(kept.due("lake", [now_ms], sizes))) == 1
