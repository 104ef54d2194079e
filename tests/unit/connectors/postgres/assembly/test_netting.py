"""Tables with a deferrable key: what a transaction leaves, whatever way it went there."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import SourceError
from cdc.record.schema import Identity, TableSchema
from connectors.postgres.assembly.assembler import Limits
from connectors.postgres.assembly.net_changes import Netting, SettledKey
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import Read, Rows, Stream, store

LOOSE = Limits()
TIGHT = Limits(netted_bytes=1)
SHAPE = w.table(identity=Identity.FULL, deferrable_key=True)


def pair(key: int, note: str) -> list[bytes]:
    return [b"%d" % key, note.encode()]


def stored(*rows: tuple[int, str]) -> dict[str, Any]:
    return {json.dumps({"id": key}): {"id": key, "note": note} for key, note in rows}


def moved(from_: tuple[int, str], to: tuple[int, str]) -> bytes:
    return w.update(pair(*to), old=pair(*from_))


SHIFT = [moved((1, "a"), (2, "a")), moved((2, "b"), (3, "b")), moved((3, "c"), (4, "c"))]


@pytest.mark.parametrize("limits", [LOOSE, TIGHT])
def test_h41_key_shift_keeps_every_row(limits: Limits) -> None:
    records = Stream(SHAPE, limits=limits).transaction(800, *SHIFT)
    before = stored((1, "a"), (2, "b"), (3, "c"))
    assert store(records, before) == stored((2, "a"), (3, "b"), (4, "c"))
    assert sorted((r.key["id"], r.op) for r in records) == [(1, "d"), (1, "d"), (2, "u"), (3, "u"), (4, "c")]


def test_h41_in_statement_order_two_of_three_would_be_lost() -> None:
    """The same changes on a table that is not netted: why this is here."""
    records = Stream(w.table(identity=Identity.FULL)).transaction(800, *SHIFT)
    assert store(records, stored((1, "a"), (2, "b"), (3, "c"))) == stored((4, "c"))


@pytest.mark.parametrize("limits", [LOOSE, TIGHT])
def test_h41_swap_keeps_both_rows(limits: Limits) -> None:
    records = Stream(SHAPE, limits=limits).transaction(800, moved((1, "a"), (2, "a")), moved((2, "b"), (1, "b")))
    assert store(records, stored((1, "a"), (2, "b"))) == stored((1, "b"), (2, "a"))


@pytest.mark.parametrize("limits", [LOOSE, TIGHT])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(((1, "x"), (2, "x")), ((2, "x"), (3, "x")), id="two rows shifted by one"),
        pytest.param(((1, "x"),), ((3, "x"),), id="one row moved twice"),
    ],
)
def test_h78_one_stream_is_right_for_both_tables_it_may_mean(
    before: tuple[tuple[int, str], ...], after: tuple[tuple[int, str], ...], limits: Limits
) -> None:
    stream = Stream(SHAPE, limits=limits)
    records = stream.transaction(800, moved((1, "x"), (2, "x")), moved((2, "x"), (3, "x")))
    assert store(records, stored(*before)) == stored(*after)
    assert stream.head.asked == []


def test_what_comes_and_goes_leaves_nothing_to_write() -> None:
    stream = Stream(SHAPE)
    assert stream.transaction(800, w.insert(*pair(1, "a")), w.delete(old=pair(1, "a"))) == []
    assert stream.transaction(900, moved((1, "a"), (2, "a")), moved((2, "a"), (1, "a"))) == []


def test_settled_records_follow_the_numbers_of_all_changes() -> None:
    other = w.table(name="others", oid=20000)
    records = Stream(SHAPE, other).transaction(
        800, w.insert(*pair(1, "a")), w.insert(b"1", b"o", oid=20000), moved((5, "b"), (6, "b"))
    )
    assert [(r.key["id"], r.op, r.seq) for r in records[:1]] == [(1, "c", 2)]
    assert sorted(r.seq for r in records[1:]) == [6, 7, 8, 9]


def test_a_netted_update_has_both_rows() -> None:
    (record,) = Stream(SHAPE).transaction(800, moved((1, "a"), (1, "b")))
    assert (record.op, record.before, record.after) == ("u", {"id": 1, "note": "a"}, {"id": 1, "note": "b"})


def test_h44_what_a_truncate_emptied_is_not_netted_back() -> None:
    stream = Stream(SHAPE)
    records = stream.transaction(800, w.insert(*pair(1, "a")), w.truncate(w.OID), w.insert(*pair(2, "b")))
    assert [(r.op, r.key) for r in records] == [("t", {"__truncate": "public.orders"}), ("c", {"id": 2})]
    assert store(records, stored((7, "z"))) == stored((2, "b"))


def test_h38_unchanged_values_are_netted_from_their_old_rows() -> None:
    records = Stream(SHAPE).transaction(
        800, w.update([b"2", w.u], old=pair(1, "a")), w.update([b"1", w.u], old=pair(2, "b"))
    )
    assert store(records, stored((1, "a"), (2, "b"))) == stored((2, "a"), (1, "b"))


def test_a_table_that_changed_its_shape_meanwhile_is_looked_up() -> None:
    wider = w.table(*SHAPE.columns, w.column("n", "int4"), identity=Identity.FULL, deferrable_key=True, version=2)
    stream = Stream(SHAPE, head=Rows({(b"1",): (b"1", b"b", b"5"), (b"2",): (b"2", b"a", b"5")}))
    stream.transaction(700)
    frames = stream.framed(
        800, moved((2, "b"), (1, "b")), w.insert(*pair(3, "c")), w.relation(wider),
        w.update([b"2", b"a", b"5"], old=[b"1", b"a", b"5"]), w.delete(old=[b"3", b"c", None]),
    )  # fmt: skip
    stream.shapes.by_oid[w.OID] = wider
    records = stream.feed(frames)
    assert store(records, stored((1, "a"), (2, "b"))) == {
        '{"id": 1}': {"id": 1, "note": "b", "n": 5}, '{"id": 2}': {"id": 2, "note": "a", "n": 5}
    }  # fmt: skip
    assert {r.headers["ver"] for r in records} == {"2"}
    # Each was read as a whole, and may be newer than the transaction; a tombstone says nothing (V25).
    assert {r.value["source"]["seen_lsn"] for r in records if r.value is not None} == {0x7000}
    assert {key for wanted, _ in stream.head.asked for one in wanted for key in one.key} == {b"1", b"2", b"3"}


# Against a model


@st.composite
def permutations(draw: st.DrawFn) -> tuple[dict[int, str], list[list[bytes]], dict[int, str]]:
    """Rows before, transactions that move keys as they like, and rows after each key is unique again."""
    letters = st.sampled_from("ab")
    keys = st.integers(0, 4)
    rows: list[tuple[int, str]] = [(key, draw(letters)) for key in draw(st.sets(keys))]
    before = dict(rows)
    found = []
    for _ in range(draw(st.integers(1, 3))):
        messages = []
        for _ in range(draw(st.integers(0, 8))):
            at = draw(st.integers(0, len(rows)))
            if at == len(rows):
                rows.append((draw(keys), draw(letters)))
                messages.append(w.insert(*pair(*rows[-1])))
            elif draw(st.integers(0, 3)):
                old, rows[at] = rows[at], (draw(keys), draw(letters))
                messages.append(moved(old, rows[at]))
            else:
                messages.append(w.delete(old=pair(*rows.pop(at))))
        while len({key for key, _ in rows}) < len(rows):
            doubled = [at for at, row in enumerate(rows) if [key for key, _ in rows].count(row[0]) > 1]
            messages.append(w.delete(old=pair(*rows.pop(draw(st.sampled_from(doubled))))))
        found.append(messages)
    return before, found, dict(rows)


@given(permutations())
def test_h41_every_transaction_that_moves_keys_ends_right(
    drawn: tuple[dict[int, str], list[list[bytes]], dict[int, str]],
) -> None:
    before, transactions, after = drawn
    streams = [Stream(SHAPE, limits=limits) for limits in (LOOSE, TIGHT, Limits(netted_bytes=700))]
    for stream in streams:
        for number, messages in enumerate(transactions):
            stream.transaction(800 + 100 * number, *messages)
        assert store(stream.read(), stored(*before.items())) == stored(*after.items())
        assert stream.head.asked == []
    assert streams[0].records == streams[1].records == streams[2].records


# The spill


def settled(netting: Netting) -> list[SettledKey]:
    return list(netting.settle())


def test_a_spill_keeps_rows_and_the_last_lsn(tmp_path: Path) -> None:
    with Netting(1, str(tmp_path)) as netting:
        netting.came(7, b"k", b"row", 5)
        netting.went(7, b"k", b"old", 6)
        netting.came(7, b"k", b"row", 8)
        netting.went(7, b"k", b"row", 9)
        assert settled(netting) == [SettledKey(table=7, key=b"k", lsn=9, before=b"old", after=b"row")]
        assert list(tmp_path.iterdir()) == [], "the file has no name, so nobody need remove it"


def test_more_than_one_row_of_a_key_is_unclear() -> None:
    with Netting(1 << 20) as netting:
        netting.came(7, b"k", b"one", 1)
        netting.came(7, b"k", b"two", 2)
        assert [one.unclear for one in settled(netting)] == [True]


def test_memory_is_given_back_as_rows_cancel() -> None:
    with Netting(4000) as netting:
        for n in range(10_000):
            netting.came(7, b"k", b"%d" % n * 100, n)
            netting.went(7, b"k", b"%d" % n * 100, n)
        assert settled(netting) == []


def test_tables_and_keys_are_kept_apart() -> None:
    with Netting(1) as netting:
        for table in (1, 2):
            for key in (b"a", b"b"):
                netting.came(table, key, b"%d" % table + key, 1)
        netting.forget(1)
        netting.came(1, b"a", b"new", 2)
        found = {(one.table, one.key): one.after for one in settled(netting)}
    assert found == {(1, b"a"): b"new", (2, b"a"): b"2a", (2, b"b"): b"2b"}


def test_a_spill_without_room_says_where_and_what_to_do(tmp_path: Path) -> None:
    netting = Netting(1, str(tmp_path / "none"))
    with pytest.raises(SourceError) as raised:
        netting.came(7, b"k", b"row", 5)
    assert raised.value.message.endswith(os.strerror(errno.ENOENT))
    assert "spill_path" in raised.value.hint


def ids(records: list[Read]) -> list[Any]:
    return [record.key for record in records]


def test_h75_the_order_of_settled_keys_is_fixed_by_the_keys() -> None:
    messages = [w.insert(*pair(n, "x")) for n in range(50)]
    one = Stream(SHAPE).transaction(800, *messages)
    other = Stream(SHAPE, limits=Limits(netted_bytes=4000)).transaction(800, *messages[::-1])
    assert ids(one) == ids(other)


def shape_of(columns: int) -> TableSchema:
    return w.table(*(w.column(f"c{n}", "int4", n) for n in range(columns)), identity=Identity.FULL, deferrable_key=True)


@given(st.permutations(range(6)))
def test_h41_composite_keys_permuted(order: list[int]) -> None:
    shape = shape_of(2)
    changes = [w.update([b"%d" % to, b"7"], old=[b"%d" % from_, b"7"]) for from_, to in enumerate(order) if from_ != to]
    rows = {json.dumps({"c0": n, "c1": 7}): {"c0": n, "c1": 7} for n in range(6)}
    assert store(Stream(shape).transaction(800, *changes), rows) == rows


def spills(*rows: tuple[bytes, bytes, int], limit: int) -> bool:
    """Whether these rows (key, row, +1 or -1) do not fit: the folder of the spill is not there."""
    with Netting(limit, folder="/proc/none") as netting:
        try:
            for key, row, by in rows:
                (netting.came if by > 0 else netting.went)(1, key, row, 8)
        except SourceError:
            return True
    return False


def test_what_is_held_in_memory_is_counted() -> None:
    key, row, other = b"k" * 50, b"r" * 10_000, b"s" * 20_000
    one = next(limit for limit in range(10_000, 12_000) if not spills((key, row, 1), limit=limit))
    assert spills((key, row, 1), limit=one - 1)
    assert one > len(key) + len(row)
    # The same row again is counted, not held again; one that cancels gives its room back.
    assert not spills((key, row, 1), (key, row, 1), limit=one)
    assert not spills((key, row, 1), (key, row, -1), (key, row, 1), limit=one)
    assert spills((key, row, 1), (key, other, 1), limit=one + len(other) - 1)
    assert not spills((key, row, 1), (key, other, 1), limit=one + len(other))
    assert spills((key, row, 1), (key + b"2", row, 1), limit=2 * one)


def test_closed_it_holds_nothing() -> None:
    netting = Netting(20_000, folder="/proc/none")
    states = [netting.empty]
    for _ in range(5):
        netting.came(1, b"k", b"r" * 15_000, 8)
        states.append(netting.empty)
        netting.close()
        states.append(netting.empty)
        assert list(netting.settle()) == []
    assert states == [True, *[False, True] * 5]


def test_a_spill_is_not_empty(tmp_path: Path) -> None:
    with Netting(1, folder=str(tmp_path)) as netting:
        netting.came(1, b"k", b"r", 8)
        assert not netting.empty


def test_h44_a_table_may_be_emptied_twice() -> None:
    with Netting(1 << 20) as netting:
        for _ in range(3):
            netting.came(1, b"k", b"r", 8)
            netting.came(2, b"k", b"r", 8)
            netting.forget(1)
        assert [settled.table for settled in netting.settle()] == [2]


@pytest.mark.parametrize("rows", [[(b"a", 1), (b"b", 1)], [(b"a", -1), (b"b", -1)], [(b"a", 1), (b"a", 1)]])
def test_two_rows_of_a_key_on_one_side_are_unclear(rows: list[tuple[bytes, int]]) -> None:
    with Netting(1 << 20) as netting:
        for row, by in rows:
            (netting.came if by > 0 else netting.went)(1, b"k", row, 8)
        (settled,) = netting.settle()
    assert settled.unclear


def test_a_disk_that_is_full_shows_when_it_is_written_to(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Netting(1, folder=str(tmp_path)) as netting:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
        try:
            with pytest.raises(SourceError, match="cannot be spilled"):
                netting.came(1, b"k", b"r" * 100, 8)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)


def test_a_key_whose_rows_cancelled_leaves_nothing_in_a_spill(tmp_path: Path) -> None:
    with Netting(1000, folder=str(tmp_path)) as netting:
        netting.came(1, b"k", b"r", 8)
        netting.went(1, b"k", b"r", 16)
        netting.came(1, b"other", b"s" * 2000, 24)
        assert [(settled.key, settled.lsn) for settled in netting.settle()] == [(b"other", 24)]


@pytest.mark.parametrize("limit_bytes", [1 << 20, 1], ids=["in memory", "spilled"])
def test_h140_what_was_collected_of_one_table_is_handed_over(limit_bytes: int) -> None:
    """Another settles it with what comes later. A row from before the table was emptied is not there any more."""
    with Netting(limit_bytes) as one, Netting(1 << 20) as other:
        one.came(1, b"k", b"emptied", 4)
        one.forget(1)
        one.came(1, b"k", b"row", 5)
        one.came(1, b"l", b"row", 6)
        one.came(2, b"k", b"another's", 7)
        one.hand_over(1, other)
        other.went(1, b"k", b"row", 8)
        assert list(other.settle()) == [SettledKey(table=1, key=b"l", lsn=6, before=None, after=b"row")]
        assert [(found.table, found.key) for found in one.settle()] == [(2, b"k")]


@pytest.mark.parametrize("limit_bytes", [1, 800, 1 << 20], ids=["each row spilled", "some spilled", "in memory"])
def test_h190_rows_that_come_after_a_hand_over_lose_none(limit_bytes: int) -> None:
    """The spilled rows were read for it, and what came next was written where that reading had ended."""
    with Netting(limit_bytes) as one, Netting(limit_bytes) as other:
        for key in (b"k", b"l", b"m", b"n"):
            one.came(2, key, b"a row of this table", 5)
        one.hand_over(1, other)
        for key in (b"o", b"p"):
            one.came(2, key, b"later", 9)
        one.hand_over(1, other)
        one.went(2, b"k", b"a row of this table", 10)
        found = {settled.key: settled.after for settled in one.settle()}
        assert found == dict.fromkeys([b"l", b"m", b"n"], b"a row of this table") | dict.fromkeys(
            [b"o", b"p"], b"later"
        )
        assert other.empty


@given(
    steps=st.lists(st.tuples(st.integers(1, 2), st.sampled_from("abcdef"), st.binary(max_size=40)), max_size=30),
    turns=st.sets(st.integers(0, 29)),
    limit_bytes=st.sampled_from([1, 800, 3000]),
)
def test_h190_when_a_table_is_handed_over_changes_no_row(
    steps: list[tuple[int, str, bytes]], turns: set[int], limit_bytes: int
) -> None:
    """With any memory, and a hand-over between any two rows: together both have what one alone would have."""
    with Netting(1 << 20) as whole, Netting(limit_bytes) as one, Netting(limit_bytes) as other:
        for number, (table, key, row) in enumerate(steps):
            if number in turns:
                one.hand_over(1, other)
            whole.came(table, key.encode(), row, number)
            one.came(table, key.encode(), row, number)
        one.hand_over(1, other)
        wanted = {(found.table, found.key): found.unclear or found.after for found in whole.settle()}
        both = [*one.settle(), *other.settle()]
        assert {(found.table, found.key): found.unclear or found.after for found in both} == wanted
        assert {found.table for found in one.settle()} <= {2}
