"""A table that cannot be followed is set aside alone, and only once that is noted (H119, H120)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.schema import TableSchema
from cdc.record.tables_aside import CannotFollow, Cause
from cdc.record.topic_names import TableName
from connectors.postgres.assembly.assembler import Limits
from connectors.postgres.assembly.pending_records import Selected, Undecided, WantedRow
from connectors.postgres.protocol.messages import Relation
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import Read, Rows, Shapes, Stream, seqs

STUCK, FREE = w.OID, 20000
SHAPE = w.table(w.column("id", "int4", 0), w.column("doc", "text"), w.column("n", "int4"))
OTHER = w.table(*SHAPE.columns, name="others", oid=FREE)
LACKING = w.update([b"1", w.u, b"5"])


class Noted:
    """Keeps what is noted, and what was kept of tables at that moment. ``fail``: it cannot be noted."""

    def __init__(self, *, fail: bool = False) -> None:
        self.noted: list[tuple[str, Cause, int]] = []
        self.oldest: list[int | None] = []
        self.look: Callable[[], int | None] = lambda: None
        self._fail = fail

    def set_aside(self, table: TableName, why: CannotFollow, since_lsn: int, xid: int) -> None:
        if self._fail:
            raise why
        self.oldest.append(self.look())
        self.noted.append((str(table), why.cause, since_lsn))


class Choosy(Shapes):
    """Tables whose shape cannot be carried, by oid."""

    def __init__(self, *schemas: TableSchema) -> None:
        super().__init__(*schemas)
        self.refused: set[int] = set()

    def schema(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema | Undecided | None:
        if relation.relation_oid in self.refused:
            raise CannotFollow("another key", tables=[TableName(relation.schema, relation.table)])
        return super().schema(relation, xid, timeout_s)


class Forbidden(Rows):
    """Rows of tables that the role may not read raise."""

    def __init__(self) -> None:
        super().__init__({(b"%d" % n,): [b"%d" % n, b"doc %d" % n, b"7"] for n in range(9)})
        self.forbidden: set[int] = set()

    def rows(self, wanted: Sequence[WantedRow], xids: Collection[int], *, brief: bool = False) -> Sequence[Selected]:
        for one in wanted:
            if one.schema.oid in self.forbidden:
                raise CannotFollow("not readable", cause=Cause.NOT_READABLE, tables=[one.schema.table])
        return super().rows(wanted, xids, brief=brief)


def stream_of(noted: Noted, waiting_bytes: int = 1 << 30) -> tuple[Stream, Choosy, Forbidden]:
    shapes, head = Choosy(SHAPE, OTHER), Forbidden()
    stream = Stream(SHAPE, OTHER, head=head, shapes=shapes, limits=Limits(waiting_bytes=waiting_bytes), asides=noted)
    noted.look = lambda: stream.assembler.oldest_waiting
    return stream, shapes, head


def of(stream: Stream, records: list[Read], schema: TableSchema) -> list[Read]:
    return [record for record in records if record.lane == stream.lane(schema)]


def many(count: int, size_bytes: int = 400) -> list[bytes]:
    return [w.insert(b"%d" % n, b"x" * size_bytes, b"1") for n in range(10, 10 + count)]


def test_h119_past_the_limit_a_table_is_set_aside_the_rest_flows() -> None:
    noted = Noted()
    stream, _, head = stream_of(noted, waiting_bytes=8000)
    head.locked.add(STUCK)
    stream.transaction(800, LACKING)
    found = stream.transaction(900, *many(20), w.insert(b"3", b"a", b"1", oid=FREE))
    assert noted.noted == [(str(SHAPE.table), Cause.LOCKED, 800)]
    assert noted.oldest == [800], "what was kept held progress back until this was noted"
    assert stream.assembler.oldest_waiting is None
    assert [(r.seq, r.op) for r in found] == [(21, "c")], "of the other table, under the number that it always had"
    head.locked.clear()
    assert stream.resume() == []
    later = stream.transaction(1000, *many(2), w.insert(b"4", b"a", b"1", oid=FREE))
    assert [(r.seq, r.lane) for r in later] == [(3, stream.lane(OTHER))]


def test_h119_a_table_that_was_set_aside_is_followed_again() -> None:
    noted = Noted()
    stream, shapes, _ = stream_of(noted)
    shapes.refused.add(STUCK)
    assert stream.transaction(800, *many(2)) == []
    assert noted.noted == [(str(SHAPE.table), Cause.CHANGED, 800)]
    stream.assembler.announce_again(str(SHAPE.table), STUCK)
    assert len(noted.noted) == 1, "the next announcement may be another"
    stream.transaction(850, *many(1))
    assert noted.noted[1:] == [(str(SHAPE.table), Cause.CHANGED, 850)], "it still cannot be carried"
    shapes.refused.clear()
    stream.assembler.announce_again(str(SHAPE.table), STUCK)
    assert seqs(stream.transaction(900, *many(2))) == [(1, "c"), (2, "c")]


def test_h120_a_key_given_back_is_followed_before_any_change() -> None:
    noted = Noted()
    stream, shapes, _ = stream_of(noted)
    shapes.refused.add(STUCK)
    stream.transaction(800, *many(1))
    stream.assembler.announce_again(str(SHAPE.table), STUCK)
    shapes.refused.clear()
    assert seqs(stream.transaction(900, w.relation(SHAPE), *many(1))) == [(1, "c")]
    assert len(noted.noted) == 1


def test_h120_a_former_bearer_of_the_name_is_not_announced() -> None:
    noted = Noted()
    stream, shapes, _ = stream_of(noted)
    stream.transaction(800, *many(1))
    asked = len(shapes.asked)
    stream.assembler.announce_again(str(SHAPE.table), FREE)
    stream.assembler.announce_again(str(OTHER.table), STUCK)
    assert len(shapes.asked) == asked


def test_h119_a_table_that_is_never_set_aside_stops_capture() -> None:
    stream, shapes, _ = stream_of(Noted(fail=True))
    shapes.refused.add(STUCK)
    with pytest.raises(CannotFollow, match="another key"):
        stream.transaction(800, *many(1))
    waiting, _, head = stream_of(Noted(fail=True), waiting_bytes=2000)
    head.locked.add(STUCK)
    waiting.transaction(800, LACKING)
    with pytest.raises(CannotFollow, match="could not be read"):
        waiting.transaction(900, *many(9))
    assert waiting.assembler.oldest_waiting == 800


def test_h120_a_right_that_is_revoked_sets_that_table_aside() -> None:
    noted = Noted()
    stream, _, head = stream_of(noted)
    head.forbidden.add(STUCK)
    found = stream.transaction(800, LACKING, w.update([b"2", w.u, b"6"], oid=FREE), *many(1))
    assert noted.noted == [(str(SHAPE.table), Cause.NOT_READABLE, 800)]
    assert [r.after["doc"] for r in found] == ["doc 2"]
    assert stream.transaction(900, LACKING) == []


def test_h120_a_right_revoked_while_a_table_waits_sets_it_aside() -> None:
    noted = Noted()
    stream, _, head = stream_of(noted)
    head.locked.add(STUCK)
    stream.transaction(800, LACKING)
    head.forbidden.add(STUCK)
    assert stream.resume() == []
    assert noted.noted == [(str(SHAPE.table), Cause.NOT_READABLE, 800)]
    assert stream.assembler.oldest_waiting is None


def test_h119_of_several_transactions_the_first_is_the_gap() -> None:
    noted = Noted()
    stream, _, head = stream_of(noted)
    head.forbidden.add(STUCK)
    assert stream.feed([*stream.framed(800, LACKING), *stream.framed(900, LACKING)]) == []
    assert noted.noted == [(str(SHAPE.table), Cause.NOT_READABLE, 800)]


def test_h119_followed_again_at_once_nothing_is_dropped() -> None:
    stream, _, head = stream_of(Noted())
    head.locked.add(STUCK)
    stream.transaction(800, LACKING)
    head.forbidden.add(STUCK)
    assert stream.resume() == []
    # The cause goes before the stream brings anything more.
    head.forbidden.clear()
    head.locked.clear()
    stream.assembler.announce_again(str(SHAPE.table), STUCK)
    assert seqs(stream.transaction(900, *many(2))) == [(1, "c"), (2, "c")]


@given(
    messages=st.lists(
        st.sampled_from(
            [LACKING, *many(3), w.update([b"2", w.u, b"6"], oid=FREE), w.insert(b"5", b"", b"1", oid=FREE)]
        ),
        min_size=1,
        max_size=12,
    ),
    splits=st.lists(st.integers(0, 40), max_size=4),
    limit=st.integers(1, 4000),
)
def test_h119_setting_aside_changes_no_other_tables_records(
    messages: list[bytes], splits: list[int], limit: int
) -> None:
    noted = Noted()
    calm, _, _ = stream_of(Noted())
    stuck, _, head = stream_of(noted, waiting_bytes=limit)
    head.locked.add(STUCK)
    calm.transaction(800, *messages)
    frames = stuck.framed(800, *messages)
    borders = sorted({0, len(frames), *(split % len(frames) for split in splits)})
    for start, end in itertools.pairwise(borders):
        stuck.feed(frames[start:end])
        kept = stuck.assembler.oldest_waiting
        assert kept is None or not noted.noted
    assert of(stuck, stuck.read(), OTHER) == of(calm, calm.read(), OTHER)
    assert all(oldest == 800 for oldest in noted.oldest)
    aside, before = bool(noted.noted), of(stuck, stuck.read(), SHAPE)
    stuck.transaction(900, LACKING, *many(1))
    assert not aside or of(stuck, stuck.read(), SHAPE) == before
