"""Rows that arrive before their table's shape can be read are kept as they came, and decoded once it can (H140)."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc.process.errors import DecodeError, SourceError
from cdc.record.schema import Identity, TableSchema
from cdc.record.tables_aside import CannotFollow, Cause
from connectors.postgres.assembly.assembler import Limits
from connectors.postgres.assembly.pending_records import LATER, Undecided
from connectors.postgres.protocol.messages import Relation
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import Read, Rows, Shapes, Stream, seqs
from tests.unit.connectors.postgres.assembly.test_aside import Noted

COLUMNS = (w.column("id", "int4", 0), w.column("doc", "text"))
MORE = (*COLUMNS, w.column("more", "int4"))
PLAIN, FREE, NETTED = w.OID, 20000, 30000


def shapes_of(name: str, oid: int, identity: Identity = Identity.DEFAULT) -> list[TableSchema]:
    """A table before and after its ALTER."""
    return [
        w.table(*columns, name=name, oid=oid, version=version, identity=identity, deferrable_key=oid == NETTED)
        for version, columns in ((1, COLUMNS), (2, MORE))
    ]


SHAPES = {
    PLAIN: shapes_of("orders", PLAIN),
    FREE: shapes_of("others", FREE),
    NETTED: shapes_of("shifted", NETTED, Identity.FULL),
}


class Gated(Shapes):
    """The shape that a message announces; LATER while its transaction is hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: set[int] = set()
        self.timeout_s: list[float] = []
        self.refused: set[str] = set()
        self.aside: set[str] = set()

    def schema(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema | Undecided | None:
        self.timeout_s.append(timeout_s)
        if relation.table in self.aside:
            return None
        if xid in self.hidden:
            return LATER
        if relation.table in self.refused:
            raise CannotFollow("another key", tables=[SHAPES[relation.relation_oid][0].table])
        return SHAPES[relation.relation_oid][len(relation.columns) > len(COLUMNS)]


def doc(number: int) -> bytes:
    return b"doc %d " % number * 200


def stream_of(hidden: int | None, noted: Noted | None = None, **limits: int | str) -> tuple[Stream, Gated]:
    shapes = Gated()
    if hidden is not None:
        shapes.hidden.add(hidden)
    head = Rows({(b"%d" % n,): [b"%d" % n, doc(n), b"7"] for n in range(9)})
    asides = noted or Noted(fail=True)
    stream = Stream(
        *(of[0] for of in SHAPES.values()),
        head=head,
        shapes=shapes,
        asides=asides,
        limits=Limits(**limits),  # type: ignore[arg-type]
    )
    for shape, *_ in SHAPES.values():
        stream.lane(shape)  # numbered now, in whatever order they are announced
    return stream, shapes


def row(number: int, wide: bool) -> list[bytes]:
    return [b"%d" % number, doc(number), *([b"7"] if wide else [])]


def change(kind: str, number: int, oid: int, wide: bool) -> bytes:
    values, other = row(number, wide), row(number + 1, wide)
    key = None if oid == NETTED else [values[0], *[None] * (len(values) - 1)]
    old = values if oid == NETTED else None
    made = {
        "insert": w.insert(*values, oid=oid),
        "update": w.update([values[0], w.u, *values[2:]], oid=oid)
        if old is None
        else w.update(other, old=old, oid=oid),
        "move": w.update(other, key=key, old=old, oid=oid),
        "delete": w.delete(key=key, old=old, oid=oid),
        "truncate": w.truncate(oid),
        "alter": w.relation(SHAPES[oid][1]),
    }
    return made[kind]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "update", "move", "delete", "truncate", "alter"]),
        st.integers(0, 7),
        st.sampled_from([PLAIN, PLAIN, NETTED, FREE]),
    ),
    max_size=8,
)


def messages_of(transactions: list[list[tuple[str, int, int]]]) -> list[list[bytes]]:
    altered: set[int] = set()
    made = []
    for steps in transactions:
        part = []
        for kind, number, oid in steps:
            altered |= {oid} if kind == "alter" else set()
            part.append(change(kind, number, oid, oid in altered))
        made.append(part)
    return made


def by_lane(stream: Stream) -> dict[int, list[Read]]:
    found: dict[int, list[Read]] = {}
    for record in stream.read():
        found.setdefault(record.lane, []).append(record)
    return found


@given(
    transactions=st.lists(STEPS, min_size=1, max_size=4),
    hidden=st.integers(0, 3),
    shown=st.integers(0, 40),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    memory=st.sampled_from([1, 5000, 1 << 20]),
)
@example(transactions=[[], [("insert", 0, NETTED), ("alter", 0, NETTED)]], hidden=1, shown=1, cuts=[], memory=1)
@example(
    # What came before the announcement is netted with what comes after it.
    transactions=[[], [("insert", 0, NETTED), ("alter", 0, NETTED), ("delete", 0, NETTED)]],
    hidden=1,
    shown=9,
    cuts=[],
    memory=1,
)
def test_h140_the_records_are_what_they_would_have_been(
    transactions: list[list[tuple[str, int, int]]], hidden: int, shown: int, cuts: list[int], memory: int
) -> None:
    """In whatever portions they come, wherever the shape can be read at last."""
    calm, _ = stream_of(None)
    stuck, shapes = stream_of(600 + hidden, waiting_memory_bytes=memory)
    framed = []
    for number, messages in enumerate(messages_of(transactions)):
        calm.transaction(800 + 100 * number, *messages, xid=600 + number)
        framed += stuck.framed(800 + 100 * number, *messages, xid=600 + number)
    borders = sorted({0, len(framed), *(cut % len(framed) for cut in cuts)})
    for start, end in itertools.pairwise(borders):
        if start >= shown:
            shapes.hidden.clear()
        stuck.feed(framed[start:end])
        stuck.resume()
    shapes.hidden.clear()
    stuck.resume()
    assert stuck.assembler.oldest_waiting is None
    assert by_lane(stuck) == by_lane(calm)
    later = [change("insert", 3, PLAIN, True), change("insert", 3, FREE, True)]
    altered = [w.relation(SHAPES[oid][1]) for oid in (PLAIN, FREE)]
    assert stuck.transaction(5000, *altered, *later) == calm.transaction(5000, *altered, *later)
    assert stuck.assembler.counts() == calm.assembler.counts()


def test_h140_the_table_waits_alone_and_holds_progress_back() -> None:
    stream, shapes = stream_of(601)
    stream.transaction(800, change("insert", 1, PLAIN, False), xid=600)
    mixed = [w.relation(SHAPES[PLAIN][1]), change("move", 1, PLAIN, True), change("insert", 1, FREE, False)]
    assert seqs(stream.transaction(900, *mixed, xid=601)) == [(4, "c")], "of the other table, with its own number"
    assert seqs(stream.transaction(1000, change("insert", 5, PLAIN, True), change("insert", 2, FREE, False))) == [
        (2, "c")
    ]
    table = SHAPES[PLAIN][0].table
    assert (stream.assembler.oldest_waiting, stream.assembler.oldest_of(table)) == (900, 900)
    assert stream.assembler.oldest_of(SHAPES[FREE][0].table) is None
    assert stream.assembler.waiting().keys() == {table}
    assert stream.resume() == []
    shapes.hidden.clear()
    assert seqs(stream.resume()) == [(1, "d"), (2, "tombstone"), (3, "c"), (1, "c")]
    assert stream.assembler.oldest_waiting is None
    assert not stream.assembler.waiting()


def test_h140_many_rows_are_decoded_in_turns_newer_ones_behind() -> None:
    """Other tables flow between two turns, and a change of this one keeps its place."""
    calm, _ = stream_of(None)
    stuck, shapes = stream_of(601)
    many = [w.insert(b"%d" % n, b"short", b"7") for n in range(2_500)]
    for stream in (calm, stuck):
        stream.transaction(800, xid=600)
        stream.transaction(900, w.relation(SHAPES[PLAIN][1]), *many, xid=601)
    shapes.hidden.clear()
    first = stuck.resume()
    assert 0 < len(first) < len(many)
    newer = [change("update", 1, PLAIN, True), change("insert", 1, FREE, False)]
    calm.transaction(1000, *newer, xid=602)
    assert [record.lane for record in stuck.transaction(1000, *newer, xid=602)] == [stuck.lane(SHAPES[FREE][0])]
    assert [stuck.assembler.oldest_waiting] == [900]
    stuck.resume()
    assert stuck.assembler.oldest_waiting is None
    assert by_lane(stuck) == by_lane(calm)


def test_h140_the_stream_waits_for_one_table_hardly_for_the_next() -> None:
    stream, shapes = stream_of(600)
    stream.transaction(800, xid=600)
    stream.resume()
    assert shapes.timeout_s == [2.0, 0.02, 0.02, 0.0, 0.0, 0.0]


def test_h140_past_the_bound_the_largest_is_set_aside() -> None:
    noted = Noted()
    stream, shapes = stream_of(601, noted, waiting_bytes=20_000)
    stream.transaction(800, xid=600)
    many = [change("insert", n % 8, PLAIN, True) for n in range(20)]
    altered = [w.relation(SHAPES[oid][1]) for oid in (PLAIN, FREE)]
    stream.transaction(900, *altered, change("insert", 1, FREE, True), *many, xid=601)
    assert noted.noted == [(str(SHAPES[PLAIN][0].table), Cause.LOCKED, 900)]
    assert stream.assembler.waiting() == Counter({SHAPES[FREE][0].table: 3})
    shapes.hidden.clear()
    assert [record.lane for record in stream.resume()] == [stream.lane(SHAPES[FREE][0])]
    assert stream.transaction(1000, change("insert", 1, PLAIN, True)) == [], "it is followed again when it is read"
    stream.assembler.announce_again(str(SHAPES[PLAIN][0].table), PLAIN)
    assert seqs(stream.transaction(1100, change("insert", 1, PLAIN, True))) == [(1, "c")]


def test_h140_followed_again_it_may_have_to_wait() -> None:
    noted = Noted()
    stream, shapes = stream_of(None, noted)
    shapes.refused.add("orders")
    stream.transaction(800, change("insert", 1, PLAIN, False), xid=600)
    assert noted.noted == [(str(SHAPES[PLAIN][0].table), Cause.CHANGED, 800)]
    shapes.refused.clear()
    shapes.hidden.add(600)
    stream.assembler.announce_again(str(SHAPES[PLAIN][0].table), PLAIN)
    assert [stream.assembler.oldest_waiting] == [808], "where the stream is"
    assert stream.transaction(900, change("insert", 1, PLAIN, False), xid=601) == []
    shapes.hidden.clear()
    assert seqs(stream.resume()) == [(1, "c")]


def test_h140_a_table_that_cannot_be_followed_once_read_is_aside() -> None:
    noted = Noted()
    stream, shapes = stream_of(601, noted)
    stream.transaction(800, xid=600)
    altered = [w.relation(SHAPES[PLAIN][1]), change("insert", 1, PLAIN, True)]
    stream.transaction(900, *altered, xid=601)
    shapes.refused.add("orders")
    shapes.hidden.clear()
    assert stream.resume() == []
    assert noted.noted == [(str(SHAPES[PLAIN][0].table), Cause.CHANGED, 900)]
    assert stream.assembler.oldest_waiting is None


def test_h140_tables_that_swap_names_unread_go_aside_together() -> None:
    noted = Noted()
    stream, shapes = stream_of(601, noted)
    stream.transaction(800, xid=600)
    altered = [w.relation(SHAPES[oid][1]) for oid in (PLAIN, FREE)]
    swapped = w.relation(w.table(*MORE, name="others", oid=PLAIN))
    frames = stream.framed(900, *altered, swapped, xid=601)
    stream.feed(frames[:-2])
    shapes.aside.add("others")
    stream.feed(frames[-2:])
    assert sorted(table for table, _, _ in noted.noted) == ["public.orders", "public.others"]
    assert stream.assembler.oldest_waiting is None


def test_h140_a_table_remade_under_its_name_waits_behind_the_old() -> None:
    stream, shapes = stream_of(601)
    stream.transaction(800, xid=600)
    anew = w.relation(w.table(*MORE, name="orders", oid=NETTED))
    altered = [w.relation(SHAPES[PLAIN][1]), change("insert", 1, PLAIN, True), anew]
    stream.transaction(900, *altered, w.delete(old=row(1, True), oid=NETTED), xid=601)
    assert len(stream.assembler.waiting()) == 1
    shapes.hidden.clear()
    assert [record.op for record in stream.resume()] == ["c", "d", "d"]


def test_h140_kept_bytes_without_meaning_are_named_by_lsn() -> None:
    stream, shapes = stream_of(601)
    stream.transaction(800, xid=600)
    stream.transaction(900, w.relation(SHAPES[PLAIN][1]), w.insert(b"no number", b"a", b"1"), xid=601)
    shapes.hidden.clear()
    with pytest.raises(DecodeError, match=r"a value of column id that is no int4 \(record at 0/383\)"):
        stream.resume()


def test_h140_a_folder_that_takes_nothing_is_named(tmp_path: Path) -> None:
    stream, _ = stream_of(601, waiting_memory_bytes=1, spill_folder=str(tmp_path / "none"))
    stream.transaction(800, xid=600)
    with pytest.raises(SourceError, match=r"records of public\.orders, which waits, cannot be kept in .*none"):
        stream.transaction(900, w.relation(SHAPES[PLAIN][1]), change("insert", 1, PLAIN, True), xid=601)
