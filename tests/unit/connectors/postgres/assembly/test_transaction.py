"""The open transaction: what its events share, and when that changes."""

from __future__ import annotations

import pytest

from connectors.postgres.assembly.transaction import Transaction, widened
from connectors.postgres.protocol.messages import Begin, Origin

BEGIN = Begin(final_lsn=0x1000, committed_us=7, xid=100)


def opened(begin: Begin = BEGIN) -> Transaction:
    transaction = Transaction(epoch=2, near_xid=99)
    transaction.open(begin)
    return transaction


def test_a_stamp_says_what_the_events_share() -> None:
    transaction = opened()
    transaction.captured_at(5)
    stamp = transaction.stamp()
    assert (stamp.epoch, stamp.commit_lsn, stamp.committed_us, stamp.now_ns, stamp.xid) == (2, 0x1000, 7, 5, 100)
    assert (stamp.before_lsn, stamp.origin, stamp.origin_lsn) == (None, None, None)
    assert transaction.stamp() is stamp
    assert transaction.pos % 3 == b"00000002" + b"0000000000001000" + b"00000003"


def test_whatever_a_stamp_says_makes_a_new_one() -> None:
    transaction = opened()
    assert transaction.stamp().now_ns == 0
    serials, stamps = [transaction.serial], [transaction.stamp()]
    transaction.captured_at(9)
    serials.append(transaction.serial)
    stamps.append(transaction.stamp())
    transaction.came_from(Origin(lsn=3, name="elsewhere"))
    serials.append(transaction.serial)
    stamps.append(transaction.stamp())
    transaction.close(0x1100)
    transaction.open(Begin(final_lsn=0x2000, committed_us=8, xid=101))
    serials.append(transaction.serial)
    stamps.append(transaction.stamp())
    assert serials == sorted(set(serials))
    assert [stamp.now_ns for stamp in stamps] == [0, 9, 9, 9]
    assert [stamp.origin for stamp in stamps] == [None, None, "elsewhere", None]
    assert [stamp.before_lsn for stamp in stamps] == [None, None, None, 0x1100]
    assert stamps[-1].commit_lsn == 0x2000


def test_the_lsn_is_that_of_the_commit_and_then_where_it_ended() -> None:
    transaction = Transaction(epoch=2, near_xid=99)
    assert transaction.lsn == 0
    transaction.open(BEGIN)
    assert transaction.lsn == 0x1000
    transaction.close(0x1100)
    assert transaction.lsn == 0x1100
    transaction.close(None)
    assert transaction.lsn == 0, "the stream broke off"


def test_h140_an_earlier_transaction_is_visited_and_left_again() -> None:
    """Its records are of its own time, id and position. Templates that were made for one are not good for the other."""
    transaction = opened()
    transaction.captured_at(5)
    transaction.take(3)
    here = transaction.stamp()
    earlier = here._replace(commit_lsn=0x800, xid=88, committed_us=3)
    serials = [transaction.serial]
    with transaction.elsewhere():
        transaction.visit(earlier)
        serials.append(transaction.serial)
        assert (transaction.stamp(), transaction.xid) == (earlier, 88)
        assert transaction.pos % 1 == b"00000002" + b"0000000000000800" + b"00000001"
        transaction.seq = 77
        transaction.visit(here._replace(commit_lsn=0x900))
        serials.append(transaction.serial)
    serials.append(transaction.serial)
    assert serials == sorted(set(serials))
    assert (transaction.stamp(), transaction.xid, transaction.seq) == (here, 100, 3)
    assert transaction.pos % 4 == b"00000002" + b"0000000000001000" + b"00000004"


def test_numbers_are_given_away_in_order_and_begin_anew() -> None:
    transaction = opened()
    assert (transaction.seq, transaction.rows) == (0, 0)
    assert [transaction.take(1), transaction.take(3), transaction.take(1)] == [1, 2, 5]
    assert transaction.seq == 5
    transaction.rows, transaction.skipped = 4, True
    transaction.close(0x1100)
    assert (transaction.begin, transaction.skipped) == (None, False)
    transaction.open(BEGIN)
    assert (transaction.seq, transaction.rows) == (0, 0)


@pytest.mark.parametrize(
    ("xid", "near", "whole"),
    [
        (3, 2**32 - 5, 2**32 + 3),
        (2**32 - 5, 2**32 + 3, 2**32 - 5),
        (2**32 - 1, 0, 2**32 - 1),
        (7, 0, 7),
        (0, 3 * 2**32 - 1, 3 * 2**32),
        (2**32 - 1, 3 * 2**32, 3 * 2**32 - 1),
        (5, 3 * 2**32 + 4, 3 * 2**32 + 5),
        (2**31, 3 * 2**32 + 1, 3 * 2**32 + 2**31),
        (1, 3 * 2**32 + 2**31, 3 * 2**32 + 1),
    ],
)
def test_a_transaction_id_is_the_nearest_one(xid: int, near: int, whole: int) -> None:
    assert widened(xid, near) == whole
