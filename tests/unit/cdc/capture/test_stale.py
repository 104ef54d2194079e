"""Which records came too late, and whether the log can say what has to stand instead."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.capture.late_record_rules import FOREIGN, KeyHistory, PartitionTail
from cdc.record.position import CHUNK_SEQ, SNAPSHOT_SEQ, Position


def at(lsn: int, seq: int = 1) -> Position:
    return Position(2, lsn * 8, seq)


def tail(
    *records: tuple[bytes, Position], newest: Position | None = None, suspect_chunks: bool = False
) -> PartitionTail:
    found = PartitionTail(at(10, 0), newest, suspect_chunks)
    for offset, (key, position) in enumerate(records):
        found.take(offset, key, position.text().encode())
    return found


def test_h75_a_tail_in_order_has_nothing_late() -> None:
    found = tail(
        (b"a", at(10)), (b"a", at(10, 2)), (b"b", at(12)), (b"c", at(1, SNAPSHOT_SEQ)), (b"d", at(9, CHUNK_SEQ))
    )
    assert (found.stale, found.newest) == ({}, at(12))


def test_h76_a_record_below_the_progress_before_it_came_too_late() -> None:
    found = tail((b"a", at(9)), (b"b", at(12)), (b"c", at(11)), (b"b", at(12)), (b"d", at(13)))
    assert found.stale == {b"a": at(9), b"c": at(11), b"b": at(12)}
    assert found.offsets == {0, 2, 3}
    assert found.newest == at(13)


def test_h76_a_record_that_progress_names_is_too_late_behind_it() -> None:
    assert tail((b"a", at(14)), newest=at(15)).stale == {b"a": at(14)}


def test_h6_h76_an_epoch_that_has_ended_writes_no_more() -> None:
    old = tail(
        (b"a", Position(1, 1 << 40, 1)), (b"b", Position(1, 1 << 40, CHUNK_SEQ)), (b"c", Position(1, 8, SNAPSHOT_SEQ))
    )
    assert set(old.stale) == {b"a", b"b", b"c"}


def test_h76_rows_of_later_snapshots_beside_a_writer_are_doubted() -> None:
    assert tail((b"a", at(9, CHUNK_SEQ)), suspect_chunks=True).stale == {b"a": at(9, CHUNK_SEQ)}


def test_h76_a_key_whose_newer_record_is_gone_is_not_proven() -> None:
    alone = KeyHistory(at(9))
    alone.take(7, at(9), late=True)
    assert (alone.wrong, alone.proven) == (False, False)
    beside = KeyHistory(at(9))
    beside.take(3, at(9), late=False)
    beside.take(7, at(9), late=True)
    assert (beside.wrong, beside.proven) == (False, True)


@pytest.mark.parametrize(
    ("place", "proven"), [(at(9), True), (at(10), True), (at(8), False)], ids=["as new", "newer", "older"]
)
def test_h76_only_a_record_as_new_as_the_late_one_proves_it(place: Position, proven: bool) -> None:
    history = KeyHistory(at(9))
    history.take(3, place, late=False)
    history.take(7, at(9), late=True)
    assert history.proven is proven


def test_h76_of_equal_records_the_later_one_is_the_best() -> None:
    """A value that was written twice is taken from where it stands last: compaction may remove the first."""
    history = KeyHistory(at(9))
    assert not history.wrong, "nothing stands there"
    taken = [history.take(offset, position, late=False) for offset, position in ((3, at(8)), (5, at(9)), (6, at(9)))]
    assert taken == [True, True, True]
    assert (history.best_offset, history.wrong) == (6, False)
    assert history.take(7, at(8), late=True) is False
    assert (history.best, history.best_offset, history.last, history.wrong) == (at(9), 6, at(8), True)


def test_h157_without_a_known_end_every_lsn_of_the_epoch_is_ours() -> None:
    highest = Position(2, (1 << 64) - 1, 1)
    assert tail((b"a", highest), (b"b", Position(3, 8, 1))).newest == highest


def test_h157_what_the_source_has_not_come_to_is_foreign() -> None:
    found = PartitionTail(at(10, 0), written_lsn=at(20).commit_lsn)
    places = [at(19), at(21), at(20), at(21, CHUNK_SEQ), Position(3, 8, 1), at(20, CHUNK_SEQ), at(22, SNAPSHOT_SEQ)]
    for offset, position in enumerate(places):
        found.take(offset, b"%d" % offset, position.text().encode())
    assert found.newest == at(20)
    assert found.foreign == {1, 3, 4, 6}
    assert set(found.stale) == {b"1", b"3", b"4", b"6"}


def test_h157_records_of_others_prove_nothing_of_each_other() -> None:
    history = KeyHistory(FOREIGN)
    history.take(3, FOREIGN, late=False)
    history.take(7, FOREIGN, late=True)
    assert not history.proven


KEYS = st.sampled_from([b"a", b"b", b"c"])


@given(st.lists(KEYS, min_size=1, max_size=12), st.data())
def test_h75_h76_after_mending_each_keys_last_record_is_newest(keys: list[bytes], data: st.DataObject) -> None:
    """A predecessor wrote a beginning of the stream; what it still had arrives anywhere among its successor's."""
    stream = [(key, at(10 + n)) for n, key in enumerate(keys)]
    begun = data.draw(st.integers(0, len(stream)))
    late = stream[begun : data.draw(st.integers(begun, len(stream)))]
    log = list(stream[:begun])
    own, zombie = iter(stream[begun:]), iter(late)
    for source in data.draw(st.permutations([own] * (len(stream) - begun) + [zombie] * len(late))):
        log.append(next(source))
    found = tail(*log)
    histories = {key: KeyHistory(position) for key, position in found.stale.items()}
    best: dict[bytes, Position] = {}
    for offset, (key, position) in enumerate(log):
        if key in histories and histories[key].take(offset, position, late=offset in found.offsets):
            best[key] = position
    assert all(history.proven for history in histories.values())
    mended = log + [(key, best[key]) for key, history in histories.items() if history.wrong]
    assert dict(mended) == dict(stream)
    assert found.newest == stream[-1][1]
    places = count()
    assert tail(*mended).newest == found.newest, next(places)


def test_h101_no_position_or_a_future_epoch_is_foreign() -> None:
    """It is written over with what we wrote; its position never counts as one that the log holds."""
    found = PartitionTail(at(10, 0))
    strange = [b"", b"junk", b"z" * 32, Position(3, 8, 1).text().encode(), b"0000000200000000000000:800000001"]
    for offset, pos in enumerate([at(11).text().encode(), *strange, at(12).text().encode()]):
        found.take(offset, b"k%d" % offset, pos)
    assert found.newest == at(12)
    assert found.foreign == found.offsets == {1, 2, 3, 4, 5}
    assert set(found.stale.values()) == {Position(0, 0, 0)}
    history = KeyHistory(found.stale[b"k1"])
    history.take(0, at(11), late=False)
    history.take(1, found.position(strange[0]), late=True)
    assert (history.wrong, history.proven, history.best_offset) == (True, True, 0)


def test_h76_snapshot_rows_are_in_no_order_with_the_stream() -> None:
    assert tail().newest is None
    for seq in (SNAPSHOT_SEQ, CHUNK_SEQ):
        found = PartitionTail(at(10, 0))
        for offset, position in enumerate([at(12, seq), at(11)]):
            found.take(offset, b"k%d" % offset, position.text().encode())
        assert (found.stale, found.newest) == ({}, at(11)), seq
    found = tail((b"a", at(12, SNAPSHOT_SEQ)), (b"b", at(12, CHUNK_SEQ)), suspect_chunks=True)
    assert found.stale == {b"b": at(12, CHUNK_SEQ)}, "rows of the first snapshot have one writer"


def test_h76_of_several_late_records_of_a_key_the_highest_counts() -> None:
    assert tail((b"a", at(7)), (b"a", at(9)), (b"a", at(8))).stale == {b"a": at(9)}
