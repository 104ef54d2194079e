"""Which record stands beside which, and what is out of order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.comparison.commit_window import CommitWindow, comparable
from cdc.comparison.compared_record import ComparedRecord, TableHistory
from cdc.comparison.lossless import parse, show
from cdc.comparison.pairing import Told, out_of_order, paired
from cdc.comparison.verdict import judge
from cdc.position import Position


def record(
    key: int, op: str | None, lsn: int = 0, *, place: tuple[int, int] = (0, 0), value: str = "v", xid: int = 7
) -> ComparedRecord:
    body = None
    if op is not None:
        source = (
            f'{{"name":"one","snapshot":"false","sequence":"[\\"{lsn - 1}\\",\\"{lsn}\\"]","txId":{xid},"lsn":{lsn}}}'
        )
        body = parse(f'{{"after":{{"id":{key},"v":"{value}"}},"source":{source},"op":"{op}","ts_ms":{lsn}}}')
    return ComparedRecord(table="public.t", key=parse(f'{{"id":{key}}}'), value=body, headers=(), place=place)


def shown(pairs: list[tuple[ComparedRecord | None, ComparedRecord | None]]) -> list[tuple[str, str]]:
    def name(record: ComparedRecord | None) -> str:
        return "-" if record is None else f"{record.op or 'tombstone'} {show(record.key)}"

    return [(name(one), name(two)) for one, two in pairs]


def test_rows_of_one_lsn_pair_by_key_tombstones_with_deletes() -> None:
    theirs = [record(2, "c", 5), record(1, "c", 5), record(1, "d", 6), record(1, None)]
    ours = [record(1, "c", 5), record(2, "c", 5), record(1, "d", 6), record(1, None)]
    assert all(one == two for one, two in shown(list(paired(Told(theirs), Told(ours)))))


def test_other_keys_pair_by_their_place_in_the_log_or_stay_alone() -> None:
    pairs = shown(list(paired(Told([record(0, "d", 6), record(3, "c", 9)]), Told([record(1, "d", 6)]))))
    assert pairs == [('d {"id":0}', 'd {"id":1}'), ('c {"id":3}', "-")]
    assert shown(list(paired(Told([]), Told([record(1, "u", 6)])))) == [("-", 'u {"id":1}')]


def test_another_partition_or_order_of_one_key_is_a_difference() -> None:
    theirs = [record(1, "u", 6, place=(0, 1)), record(1, "u", 5, place=(0, 2))]
    ours = [record(1, "u", 5, place=(0, 1)), record(1, "u", 6, place=(0, 2))]
    found = list(out_of_order("readable", list(paired(Told(theirs), Told(ours))), {}))
    assert [d.path for d in found] == [("order",)]
    elsewhere = [record(1, "u", 5, place=(1, 1))]
    found = list(out_of_order("readable", list(paired(Told(elsewhere), Told(ours[:1]))), {}))
    assert [d.path for d in found] == [("partition",)]


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from("cu"), st.integers(1, 4)), max_size=12), st.randoms())
def test_every_record_is_paired_once_and_equal_ones_are_equal(made: list[tuple[int, str, int]], random: object) -> None:
    records = [record(key, op, lsn, place=(0, at)) for at, (key, op, lsn) in enumerate(made)]
    pairs = list(paired(Told(records), Told(records)))
    assert [one for one, _ in pairs] == records
    assert all(one == two for one, two in pairs)
    verdict = judge("public.t", "readable", records, records, {})
    assert (verdict.equal, verdict.unexplained) == (len(records), 0)


def test_a_lost_and_a_wrong_record_are_counted_and_told() -> None:
    theirs = [record(1, "u", 5), record(2, "u", 6)]
    ours = [record(1, "u", 5, value="other")]
    verdict = judge("public.t", "readable", theirs, ours, {})
    assert (verdict.theirs, verdict.ours, verdict.equal, verdict.unexplained) == (2, 1, 0, 2)
    assert verdict.words[0] == 'public.t u {"id":1} value.after.v: Debezium "v" | ours "other"'


def at(found: ComparedRecord, commit_lsn: int) -> ComparedRecord:
    pos = Position(1, commit_lsn, 1).text()
    return ComparedRecord(
        table=found.table, key=found.key, value=found.value, headers=(("pos", pos),), place=found.place
    )


def test_the_window_is_cut_by_commits_and_by_their_transactions() -> None:
    ours = [at(record(1, "u", 90, xid=1), 100), at(record(2, "u", 95, xid=2), 120), at(record(3, "u", 99, xid=3), 140)]
    theirs = [record(1, "u", 90, xid=1), record(2, "u", 95, xid=2), record(3, "u", 99, xid=3)]
    lost = record(4, "u", 118, xid=4)
    one, two = CommitWindow(110, 130, rows=False).cut([*theirs, lost], ours)
    assert [show(r.key) for r in one] == ['{"id":2}', '{"id":4}']
    assert [show(r.key) for r in two] == ['{"id":2}']


def test_what_two_captures_never_share_is_taken_out() -> None:
    one, two = comparable(record(1, "u", 5), "one"), comparable(record(1, "u", 5), "another")
    assert one != two
    assert judge("public.t", "readable", [one], [one], {}).equal == 1
    assert judge("public.t", "readable", [one], [two], {}).unexplained == 1


def test_a_tombstone_is_known_by_the_delete_before_it() -> None:
    """Of the same key, in the same partition: the last one."""
    deletes = [record(1, "d", 5), record(1, "d", 9), record(2, "d", 7)]
    first, again, other = (Told([one]).records[0][1] for one in deletes)
    told = [deletes[0], record(1, None), record(1, "c", 8), deletes[1], record(1, None), deletes[2], record(1, None)]
    changes = [change for _, change in Told(told).records]
    assert (changes[0], changes[3], changes[5]) == (first, again, other)
    assert [change[:-1] for change in (changes[1], changes[4], changes[6])] == [first, again, ()]
    elsewhere = [record(1, "d", 5, place=(0, 1)), record(1, None, place=(1, 2)), record(1, None, place=(0, 3))]
    assert [change[:-1] for _, change in Told(elsewhere).records][1:] == [(), first]


def test_a_tombstone_that_one_side_lost_stands_alone() -> None:
    first, second = [record(1, "d", 5), record(1, None)], [record(1, "c", 8), record(1, "d", 9), record(1, None)]
    pairs = list(paired(Told([*first, *second]), Told([first[0], *second])))
    assert [one is not None and two is None for one, two in pairs] == [False, True, False, False, False]


def test_changes_of_two_transactions_are_no_pair() -> None:
    pairs = list(paired(Told([record(1, "u", 5, xid=7)]), Told([record(1, "u", 5, xid=8)])))
    assert shown(pairs) == [('u {"id":1}', "-"), ("-", 'u {"id":1}')]


def test_without_their_keys_changes_pair_by_where_they_stand() -> None:
    """Whatever is in them; of a snapshot's row, which stands nowhere, by what is in it."""
    theirs = [record(3, "c", 9), record(0, "d", 6, value="a"), record(5, None)]
    pairs = shown(list(paired(Told(theirs), Told([record(1, "d", 6, value="b")]))))
    assert pairs == [('c {"id":3}', "-"), ('d {"id":0}', 'd {"id":1}'), ('tombstone {"id":5}', "-")]
    empty = [
        ComparedRecord(table="t", key=parse(key), value=parse('{"source":{},"op":"r"}'), headers=())
        for key in ('{"id":1}', '{"id":2}')
    ]
    assert list(paired(Told(empty[:1]), Told(empty[1:]))) == [(empty[0], empty[1])]


def test_a_record_elsewhere_is_told_with_both_places() -> None:
    known = {"public.t": TableHistory(primary_key=("id",))}
    theirs, ours = record(1, "u", 6, place=(1, 4)), record(1, "u", 6, place=(2, 9))
    (found,) = out_of_order("readable", [(theirs, ours), (theirs, None), (None, ours)], known)
    assert (found.path, found.theirs, found.ours) == (("partition",), theirs, ours)
    assert (show(found.expected), show(found.got), found.facts) == ("1", "2", known["public.t"])
    before, after = record(1, "u", 5, place=(0, 3)), record(1, "u", 6, place=(0, 8))
    first, last = record(1, "u", 6, place=(0, 11)), record(1, "u", 5, place=(0, 12))
    (found,) = out_of_order("readable", [(before, last), (after, first)], known)
    assert (found.path, found.theirs, found.ours) == (("order",), before, last)
    assert (show(found.expected), show(found.got), found.facts) == ("3", "12", known["public.t"])


def test_the_same_order_and_another_key_are_no_difference() -> None:
    one, two = record(1, "u", 6, place=(0, 4)), record(2, "u", 6, place=(3, 9))
    assert list(out_of_order("readable", [(one, two)], {})) == []
    again = record(1, "u", 7, place=(0, 4))
    assert list(out_of_order("readable", [(one, one), (one, again)], {})) == []
