"""Bytes of pgoutput to messages: each kind by hand, then everything that could go wrong."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import DecodeError
from cdc.record.schema import Identity
from connectors.postgres.protocol.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    TypeName,
    Update,
)
from connectors.postgres.protocol.pgoutput import Reader, decode, read_tuple, write_tuple
from tests.unit.connectors.postgres import written as w

SOME = [
    w.begin(0x16B3D48),
    w.commit(0x16B3D48),
    w.relation(w.table()),
    w.relation(w.table(identity=Identity.FULL)),
    w.insert(b"1", "é".encode()),
    w.update([b"1", None]),
    w.update([b"2", w.u], key=[b"1", None]),
    w.update([b"2", b"b"], old=[b"1", b"a" * 300]),
    w.delete(key=[b"1", None]),
    w.delete(old=[b"1", b""]),
    w.truncate(1, 2, 3, options=3),
    w.origin("elsewhere", 7),
    w.type_name(20000, "public", "mood"),
    w.logical("prefix", b"\0\xff"),
]


def test_begin_and_commit() -> None:
    assert decode(w.begin(24, 7, 1_763_000_000_123_456)) == Begin(
        final_lsn=24, committed_us=1_763_000_000_123_456, xid=7
    )
    assert decode(w.commit(24, 32, 1_763_000_000_123_456)) == Commit(
        commit_lsn=24, end_lsn=32, committed_us=1_763_000_000_123_456
    )


def test_a_time_before_2000_is_negative() -> None:
    assert decode(b"B" + struct.pack(">QqI", 1, -1, 1)) == Begin(final_lsn=1, committed_us=946_684_799_999_999, xid=1)


def test_relation_names_columns_and_identity() -> None:
    shape = w.table(w.column("Id", "numeric", 0, typmod=655366), w.column("ünï😀", "text"), identity=Identity.INDEX)
    assert decode(w.relation(shape)) == Relation(
        relation_oid=w.OID,
        schema="public",
        table="orders",
        identity=Identity.INDEX,
        columns=(
            RelationColumn(name="Id", type_oid=25, typmod=655366, in_key=True),
            RelationColumn(name="ünï😀", type_oid=25, typmod=-1, in_key=False),
        ),
    )


def test_a_table_of_pg_catalog_comes_without_a_schema() -> None:
    message = decode(b"R" + struct.pack(">I", 1) + b"\0pg_type\0n\0\0")
    assert isinstance(message, Relation)
    assert (message.schema, message.identity, message.columns) == ("pg_catalog", Identity.NOTHING, ())


def test_rows_tell_null_from_empty_from_unchanged() -> None:
    assert decode(w.insert(None, b"", w.u)) == Insert(relation_oid=w.OID, new=(None, b"", UNCHANGED))


def test_update_with_nothing_with_the_key_and_with_the_old_row() -> None:
    new = (b"2", b"b")
    assert decode(w.update(new)) == Update(relation_oid=w.OID, key=None, old=None, new=new)
    assert decode(w.update(new, key=[b"1", None])) == Update(relation_oid=w.OID, key=(b"1", None), old=None, new=new)
    assert decode(w.update(new, old=[b"1", b"a"])) == Update(relation_oid=w.OID, key=None, old=(b"1", b"a"), new=new)


def test_delete_by_key_and_by_row() -> None:
    assert decode(w.delete(key=[b"1", None])) == Delete(relation_oid=w.OID, key=(b"1", None), old=None)
    assert decode(w.delete(old=[b"1", b"a"])) == Delete(relation_oid=w.OID, key=None, old=(b"1", b"a"))


def test_h44_truncate_names_every_table_and_its_options() -> None:
    assert decode(w.truncate(5, 6, options=1)) == Truncate(relation_oids=(5, 6), cascade=True, restart_identity=False)
    assert decode(w.truncate(options=2)) == Truncate(relation_oids=(), cascade=False, restart_identity=True)


def test_origin_type_and_logical_message() -> None:
    assert decode(w.origin("elsewhere", 7)) == Origin(lsn=7, name="elsewhere")
    assert decode(w.type_name(9, "", "mood")) == TypeName(type_oid=9, schema="pg_catalog", name="mood")
    assert decode(w.logical("p", b"\0\xff", transactional=False, lsn=3)) == LogicalMessage(
        transactional=False, lsn=3, prefix="p", content=b"\0\xff"
    )


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (b"", "an empty message from pgoutput"),
        (b"Zab", "a message of unknown kind 'Z' from pgoutput, 3 bytes long"),
        (w.begin(1)[:-1], "Begin at byte 1: expected final LSN, commit time and transaction id of 20 bytes,"),
        (w.begin(1) + b"x", "Begin at byte 21: expected the end, found 1 more bytes"),
        (b"C\1" + w.commit(1)[2:], "Commit at byte 1: expected 0 for flags, found 1"),
        (b"R\0\0\0\1public", "Relation at byte 5: expected the end of schema, found no NUL in 6 bytes"),
        (b"R\0\0\0\1p\0t\0x\0\0", "Relation at byte 9: expected d, f, i or n as replica identity, found 'x'"),
        (b"R\0\0\0\1\xff\0t\0d\0\0", r"Relation at byte 5: expected schema in UTF-8, found '\xff'"),
        (b"I\0\0\0\1O\0\0", "Insert at byte 5: expected N before a row, found 'O'"),
        (b"U\0\0\0\1Z\0\0", "Update at byte 5: expected K or O or N before a row, found 'Z'"),
        (b"I\0\0\0\1N\0\1b\0\0\0\1x", "Insert at byte 8: expected n, t or u as kind of value, found 'b'"),
        (b"I\0\0\0\1N\0\2n", "Insert at byte 9: expected n, t or u as kind of value, found the end"),
        (b"I\0\0\0\1N\0\1t\xff\xff\xff\xffabc", "Insert at byte 8: expected a value's length and as many bytes, found"),
        (b"T\xff\xff\xff\xff\0", "Truncate at byte 6: expected 4294967295 relation oids, found 0 bytes"),
        (b"T\0\0\0\0\4", "Truncate at byte 5: expected 0 to 3 for options, found 4"),
        (b"M\2" + w.logical("p", b"")[2:], "Message at byte 1: expected 0 or 1 for flags, found 2"),
    ],
)  # fmt: skip
def test_an_error_names_message_byte_expected_and_found(payload: bytes, sentence: str) -> None:
    with pytest.raises(DecodeError) as raised:
        decode(payload)
    assert raised.value.message.startswith(sentence)
    assert raised.value.hint


def test_errors_hold_no_row() -> None:
    with pytest.raises(DecodeError) as raised:
        decode(w.insert(b"1", b"secret") + b"secret")
    assert "secret" not in raised.value.message + raised.value.hint


@pytest.mark.parametrize("payload", SOME, ids=lambda p: p[:1].decode())
def test_no_message_is_read_from_truncated_bytes(payload: bytes) -> None:
    decode(payload)
    for length in range(len(payload)):
        with pytest.raises(DecodeError):
            decode(payload[:length])


VALUES = st.none() | st.just(UNCHANGED) | st.binary(max_size=300)


@given(st.lists(VALUES, max_size=20).map(tuple))
def test_any_row_comes_back_as_it_was_written(values: tuple[bytes, ...]) -> None:
    raw = write_tuple(values)
    reader = Reader("Row", raw, 0)
    assert read_tuple(reader) == values
    assert reader.at == len(raw)


@given(st.sampled_from(SOME), st.data())
def test_changed_bytes_give_a_message_or_a_decode_error(payload: bytes, data: st.DataObject) -> None:
    changed = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=4))
        if not changed:
            break
    _decodes_or_refuses(bytes(changed))


@given(st.sampled_from("BCORYIUDTM"), st.binary(max_size=60))
def test_any_bytes_give_a_message_or_a_decode_error(kind: str, rest: bytes) -> None:
    _decodes_or_refuses(kind.encode() + rest)


def _decodes_or_refuses(payload: bytes) -> None:
    try:
        message = decode(payload)
    except DecodeError:
        return
    assert message is not None
