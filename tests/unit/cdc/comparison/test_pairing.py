"""Which record stands beside which, and what is out of order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.comparison.commit_window import CommitWindow, comparable
from cdc.comparison.compared_record import ComparedRecord
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
