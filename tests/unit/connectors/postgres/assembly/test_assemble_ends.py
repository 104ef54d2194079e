"""What ends with a transaction, and what a table that was set aside leaves behind."""

from __future__ import annotations

import pytest

from cdc.process.errors import DecodeError
from cdc.record.schema import Identity, TableSchema
from cdc.record.topic_names import TableName, partition_of
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.assembly.assembler import Assembler, AssemblerPorts
from connectors.postgres.encoding.encoder import TableEncoder, compile_table
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import PIPELINE, Rows, Shapes, Stream, seqs
from tests.unit.connectors.postgres.assembly.test_aside import (
    FREE,
    LACKING,
    OTHER,
    SHAPE,
    STUCK,
    Choosy,
    Noted,
    many,
    stream_of,
)


def test_a_change_behind_a_commit_is_outside_of_a_transaction() -> None:
    stream = Stream(w.table())
    stream.transaction(800, w.insert(b"1", b"a"))
    with pytest.raises(DecodeError, match="outside a transaction"):
        stream.feed([w.frame(w.insert(b"2", b"a"))])


def test_a_begin_that_is_no_xlogdata_is_refused() -> None:
    with pytest.raises(DecodeError, match="no XLogData"):
        Stream(w.table()).feed([b"k" + w.frame(w.begin(800))[1:]])


def test_a_transaction_that_is_in_the_log_counts_nothing() -> None:
    stream = Stream(w.table(), after_lsn=808)
    assert stream.transaction(800, w.insert(b"1", b"a"), w.truncate(w.OID)) == []
    assert not stream.assembler.counts()
    assert stream.commits[0].rows == 0
    assert seqs(stream.transaction(900, w.insert(b"1", b"a"))) == [(1, "c")]
    assert stream.assembler.counts() == {("public.orders", "c"): 1}


def test_the_compiler_that_is_given_makes_the_encoders() -> None:
    made: list[TableSchema] = []

    def compiled(schema: TableSchema) -> TableEncoder:
        made.append(schema)
        return compile_table(schema, name="shop", database="app", masks=NO_MASKS)

    shape = w.table()
    ports = AssemblerPorts(
        schemas=Shapes(shape), lanes=lambda topic: (0, 1), partition=partition_of, reselect=Rows(),
        overflow=lambda records: None, encoder=compiled,
        masks=NO_MASKS,
    )  # fmt: skip
    messages = (w.begin(800), w.relation(shape), w.relation(shape), w.insert(b"1", b"a"), w.commit(800))
    found = Assembler(PIPELINE, ports).feed([w.frame(message) for message in messages], 1)
    assert (len(found.records), made) == (1, [shape])


def test_records_and_tables_that_wait_are_counted_together() -> None:
    stream, _, head = stream_of(Noted())
    head.locked |= {STUCK, FREE}
    stream.transaction(800, LACKING, LACKING, w.update([b"2", w.u, b"6"], oid=FREE))
    assert stream.assembler.waiting() == {SHAPE.table: 2, OTHER.table: 1}
    assert stream.assembler.waiting_lanes == {stream.lane(SHAPE), stream.lane(OTHER)}


def test_h119_a_table_announced_later_is_written_again() -> None:
    """What a table leaves behind is dropped until its transaction has ended, and no longer."""
    noted = Noted()
    stream, _, head = stream_of(noted)
    head.forbidden.add(STUCK)
    begin, *rest = stream.framed(800, LACKING, *many(2))
    stream.feed([begin, *rest[:-1]])
    assert len(noted.noted) == 1
    stream.feed(rest[-1:])
    head.forbidden.clear()
    found = stream.transaction(900, w.relation(SHAPE), LACKING, *many(1))
    assert seqs(found) == [(1, "u"), (2, "c")]


def test_h120_what_was_never_announced_is_not_asked_for() -> None:
    stream, shapes, _ = stream_of(Noted())
    stream.assembler.announce_again(str(SHAPE.table), STUCK)
    assert shapes.asked == []


def test_h120_a_refusal_is_over_with_the_next_announcement() -> None:
    noted = Noted(fail=True)
    stream, shapes, _ = stream_of(noted)
    stream.transaction(800)
    shapes.refused.add(STUCK)
    stream.assembler.announce_again(str(SHAPE.table), STUCK)
    shapes.refused.clear()
    del shapes.by_oid[STUCK]
    assert stream.transaction(900, w.relation(SHAPE), *many(1)) == [], "left out, and no reason to set it aside"


def test_h119_what_was_netted_of_a_table_is_dropped_with_it() -> None:
    noted = Noted()
    shape = w.table(identity=Identity.FULL, deferrable_key=True)
    shapes = Choosy(shape)
    stream = Stream(shape, shapes=shapes, asides=noted)
    stream.transaction(800)
    begin, *rest = stream.framed(900, w.insert(b"1", b"a"), w.relation(shape), w.insert(b"2", b"a"))
    stream.feed([begin, rest[0]])
    shapes.refused.add(shape.oid)
    assert stream.feed(rest[1:]) == []
    assert [table for table, *_ in noted.noted] == [str(TableName("public", "orders"))]
