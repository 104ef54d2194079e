"""What is compiled says the same as the long way, or nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import DecodeError
from cdc.record.position import Position
from cdc.record.schema import Identity, TableSchema
from cdc.settings.mask_rules import NO_MASKS
from cdc.wire.envelope import Stamp
from connectors.postgres.encoding.compiled import MOST_COLUMNS, FromFrame, Made, Templates, unescape
from connectors.postgres.encoding.encoder import TableEncoder, compile_table, record_headers
from connectors.postgres.protocol.messages import Delete, Insert, Update
from connectors.postgres.protocol.pgoutput import decode
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.encoding.made import rows, tables

LSN, SEQ = 0x16B3D48, 17
STAMP = Stamp(epoch=1, commit_lsn=LSN, committed_us=1_763_000_000_123_456, now_ns=1, xid=555, before_lsn=LSN - 8)


def compiled(schema: TableSchema) -> TableEncoder:
    return compile_table(schema, name="shop", database="app", masks=NO_MASKS)


def run(encoder: TableEncoder, function: FromFrame, templates: Templates, op: bytes, payload: bytes) -> Made | None:
    tail = encoder.envelope.tail(STAMP, op)
    return function(w.frame(payload, LSN), LSN, SEQ, templates.plain + tail, templates.loose + tail)


def written(encoder: TableEncoder, op: bytes, before: bytes, after: bytes) -> bytes:
    """A value put together the long way."""
    return b'{"before":%b,"after":%b%b' % (before, after, encoder.envelope.tail(STAMP, op) % (LSN, LSN, SEQ))


class Reference:
    """What the long way makes of a row message; None where it would not be one record of the usual kind."""

    def __init__(self, encoder: TableEncoder) -> None:
        self.encoder = encoder

    def made(self, op: bytes, payload: bytes) -> Made | None:
        match decode(payload):
            case Insert(new=new):
                return self._new(op, b"null", new)
            case Update(key=None, old=None, new=new):
                return self._new(op, b"null", new)
            case Update(old=tuple() as old, new=new):
                made = self._new(op, self.encoder.row(self._whole(old)), new)
                return made if self.encoder.key(self._whole(old)) == made[0] else None
            case Delete(old=tuple() as old):
                row = self._whole(old)
                return self.encoder.key(row), written(self.encoder, op, self.encoder.row(row), b"null")
            case Delete(key=tuple() as key):
                row = self._whole(key)
                return self.encoder.key(row), written(self.encoder, op, self.encoder.key_row(row), b"null")
        raise AssertionError(payload)

    def _new(self, op: bytes, before: bytes, new: Any) -> Made:
        row = self._whole(new)
        return self.encoder.key(row), written(self.encoder, op, before, self.encoder.row(row))

    @staticmethod
    def _whole(values: Any) -> list[bytes | None]:
        assert w.u not in values
        return list(values)


def every_way(encoder: TableEncoder, new: list[Any], old: list[Any]) -> list[tuple[FromFrame, Templates, bytes, bytes]]:
    """(function, templates, op, payload) for each kind of message."""
    found = encoder.rows
    keyed = [value if i in encoder.key_columns else None for i, value in enumerate(old)]
    return [
        (found.new, found.new_templates, b"c", w.insert(*new)),
        (found.new, found.new_templates, b"u", w.update(new)),
        (found.pair, found.pair_templates, b"u", w.update(new, old=old)),
        (found.old, found.old_templates, b"d", w.delete(old=old)),
        (found.keyed, found.keyed_templates, b"d", w.delete(key=keyed)),
    ]


def with_key_of(encoder: TableEncoder, row: list[Any], other: list[Any]) -> list[Any]:
    return [value if i in encoder.key_columns else other[i] for i, value in enumerate(row)]


@given(tables(), st.data())
def test_a_compiled_function_agrees_with_the_long_way(schema: TableSchema, data: st.DataObject) -> None:
    encoder = compiled(schema)
    new = data.draw(rows(schema))
    old = with_key_of(encoder, new, data.draw(rows(schema)))
    for function, templates, op, payload in every_way(encoder, new, old):
        made = run(encoder, function, templates, op, payload)
        assert made is None or made == Reference(encoder).made(op, payload)
        if made is not None:
            json.loads(made[0]), json.loads(made[1])


PLAIN = [b"7", b"42", b"some text", b"12345.67", b"2026-11-20 10:11:12.5+00", b"t", b"\xc3\xa9"]
SEVEN = [
    w.column("id", "int8", 0), w.column("n", "int4"), w.column("t", "text"), w.column("amount", "numeric"),
    w.column("at", "timestamptz"), w.column("b", "bool"), w.column("note", "text"),
]  # fmt: skip


@pytest.mark.parametrize("nulls", [(), (1,), (1, 2, 3, 4, 5, 6)])
@pytest.mark.parametrize("special", [b"\xc3\xa9", b'say "hi"\n', "😀".encode(), b""])
def test_usual_rows_never_take_the_long_way(nulls: tuple[int, ...], special: bytes) -> None:
    encoder = compiled(w.table(*SEVEN))
    new = [None if i in nulls else value for i, value in enumerate([*PLAIN[:-1], special])]
    for function, templates, op, payload in every_way(encoder, new, with_key_of(encoder, new, list(PLAIN))):
        made = run(encoder, function, templates, op, payload)
        assert made == Reference(encoder).made(op, payload)
    line = b"\t".join(b"\\N" if v is None else v.replace(b"\n", b"\\n") for v in new) + b"\n"
    assert encoder.rows.line(line, *encoder.rows.row_templates) == (encoder.key(new), encoder.row(new))


def test_a_value_has_debeziums_members_in_debeziums_order() -> None:
    encoder = compiled(w.table(*SEVEN))
    made = run(encoder, encoder.rows.new, encoder.rows.new_templates, b"c", w.insert(*PLAIN))
    assert made is not None
    assert made[0] == b'{"id":7}'
    assert made[1].decode() == (
        '{"before":null,"after":{"id":7,"n":42,"t":"some text","amount":"12345.67","at":"2026-11-20T10:11:12.500000Z",'
        '"b":true,"note":"é"},"source":{"version":"0.1.0","connector":"postgresql","name":"shop","ts_ms":1763000000123,'
        '"snapshot":"false","db":"app","sequence":"[\\"23805248\\",\\"23805256\\"]","ts_us":1763000000123456,'
        '"ts_ns":1763000000123456000,"schema":"public","table":"orders","txId":555,"lsn":23805256,"xmin":null,'
        '"origin":null,"origin_lsn":null,"epoch":1,"commit_lsn":23805256,"tx_seq":17},"transaction":null,"op":"c",'
        '"ts_ms":0,"ts_us":0,"ts_ns":1}'
    )


def test_a_changed_key_takes_the_long_way() -> None:
    encoder = compiled(w.table(*SEVEN, identity=Identity.FULL))
    payload = w.update([b"8", *PLAIN[1:]], old=PLAIN)
    assert run(encoder, encoder.rows.pair, encoder.rows.pair_templates, b"u", payload) is None


@pytest.mark.parametrize("row", [[w.u, *PLAIN[1:]], [*PLAIN[:-1], w.u], PLAIN[:-1]])
def test_rows_of_another_kind_take_the_long_way(row: list[Any]) -> None:
    encoder = compiled(w.table(*SEVEN))
    assert run(encoder, encoder.rows.new, encoder.rows.new_templates, b"c", w.insert(*row)) is None


@pytest.mark.parametrize("size_bytes", [65_535, 65_536, 16_777_217])
def test_text_of_any_size_does_not(size_bytes: int) -> None:
    encoder = compiled(w.table(*SEVEN))
    row = [*PLAIN[:-1], b"x" * size_bytes]
    made = run(encoder, encoder.rows.new, encoder.rows.new_templates, b"c", w.insert(*row))
    assert made == Reference(encoder).made(b"c", w.insert(*row))


def test_h39_a_table_of_1600_columns() -> None:
    columns = [w.column("id", "int4", 0), *(w.column(f"c{i}", "int4") for i in range(1599))]
    encoder = compiled(w.table(*columns))
    assert len(columns) > MOST_COLUMNS
    row = [b"%d" % i for i in range(1600)]
    assert run(encoder, encoder.rows.new, encoder.rows.new_templates, b"c", w.insert(*row)) is None
    assert len(json.loads(encoder.row(row))) == 1600
    assert encoder.snapshot_line(b"\t".join(row)) == (encoder.key(row), encoder.row(row))


@given(tables(), st.data())
def test_changed_bytes_never_make_another_row(schema: TableSchema, data: st.DataObject) -> None:
    encoder = compiled(schema)
    new = data.draw(rows(schema))
    ways = every_way(encoder, new, with_key_of(encoder, new, data.draw(rows(schema))))
    function, templates, op, payload = data.draw(st.sampled_from(ways))
    changed = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(5, len(changed) - 1))
        changed[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if len(changed) < 7:
            return
    made = run(encoder, function, templates, op, bytes(changed))
    if made is not None:
        assert made == Reference(encoder).made(op, bytes(changed))


@given(tables(), st.data())
def test_truncated_bytes_never_make_a_row(schema: TableSchema, data: st.DataObject) -> None:
    encoder = compiled(schema)
    new = data.draw(rows(schema))
    for function, templates, op, payload in every_way(encoder, new, new):
        length = data.draw(st.integers(0, len(payload) - 1))
        assert run(encoder, function, templates, op, payload[:length]) is None


@pytest.mark.parametrize(
    ("columns", "row", "line"),
    [([w.column("n", "int4"), w.column("t", "text")], [b"1", b"x"], b"1\tx"), ([], [], b"")],
    ids=["no key", "no columns"],
)
def test_a_table_that_is_left_out_may_have_no_key_and_no_columns(
    columns: list[Any], row: list[Any], line: bytes
) -> None:
    encoder = compiled(replace(w.table(), columns=tuple(columns)))
    for function, templates, op, payload in every_way(encoder, row, row):
        made = run(encoder, function, templates, op, payload)
        assert made in (None, Reference(encoder).made(op, payload))
    assert run(encoder, encoder.rows.new, encoder.rows.new_templates, b"c", w.insert(*row)) is not None
    assert encoder.snapshot_line(line) == (b"{}", encoder.row(row))


def test_text_that_is_not_utf8_takes_the_long_way_and_is_refused() -> None:
    encoder = compiled(w.table(*SEVEN))
    row = [*PLAIN[:-1], b"\xc3"]
    assert run(encoder, encoder.rows.new, encoder.rows.new_templates, b"c", w.insert(*row)) is None
    with pytest.raises(DecodeError, match=r"public\.orders: a value of column note that is no text"):
        encoder.row(row)


def test_a_refusal_names_table_and_column_and_not_the_value() -> None:
    encoder = compiled(w.table())
    with pytest.raises(DecodeError) as raised:
        encoder.row([b"secret", b"x"])
    assert raised.value.message == "public.orders: a value of column id that is no int4"
    with pytest.raises(DecodeError, match="a row of 1 columns where 2 were announced"):
        encoder.row([b"1"])


def test_an_old_row_by_key_invents_nothing() -> None:
    encoder = compiled(w.table(*SEVEN))
    assert json.loads(encoder.key_row([b"7", *PLAIN[1:]])) == dict.fromkeys(
        ("id", "n", "t", "amount", "at", "b", "note")
    ) | {"id": 7}


def test_a_key_stands_in_key_order() -> None:
    encoder = compiled(w.table(w.column("b", "text", 1), w.column("a", "int4", 0)))
    assert encoder.key([b"x", b"1"]) == b'{"a":1,"b":"x"}'


# COPY


def copied(row: list[bytes | None]) -> bytes:
    """A line as Postgres writes it."""
    escapes = {b"\\": rb"\\", b"\b": rb"\b", b"\f": rb"\f", b"\n": rb"\n", b"\r": rb"\r", b"\t": rb"\t", b"\v": rb"\v"}
    fields = []
    for value in row:
        if value is None:
            fields.append(rb"\N")
        else:
            fields.append(b"".join(escapes.get(bytes([byte]), bytes([byte])) for byte in value))
    return b"\t".join(fields)


@given(tables(), st.data(), st.booleans())
def test_a_line_of_copy_is_the_row_it_was_made_from(schema: TableSchema, data: st.DataObject, newline: bool) -> None:
    encoder = compiled(schema)
    row = data.draw(rows(schema))
    line = copied(row) + (b"\n" if newline else b"")
    expected = encoder.key(row), encoder.row(row)
    assert encoder.snapshot_line(line) == expected


@given(tables(), st.data())
def test_a_snapshot_row_equals_the_streams(schema: TableSchema, data: st.DataObject) -> None:
    encoder = compiled(schema)
    row = data.draw(rows(schema))
    streamed = Reference(encoder).made(b"c", w.insert(*row))
    assert streamed is not None
    key, value = snapshot_record(encoder, copied(row))
    assert key == streamed[0]
    assert json.loads(value)["after"] == json.loads(streamed[1])["after"]


@given(st.binary(max_size=30))
def test_unescaping_undoes_copys_escapes(text: bytes) -> None:
    assert unescape(copied([text])) == text


@given(tables(), st.binary(max_size=60))
def test_any_line_gives_a_row_or_a_decode_error(schema: TableSchema, line: bytes) -> None:
    encoder = compiled(schema)
    try:
        key, row = encoder.snapshot_line(line)
    except DecodeError:
        return
    json.loads(key), json.loads(row)


def snapshot(encoder: TableEncoder) -> Any:
    return encoder.snapshot_envelope(
        marker="true", lsn=8, tx_id=None, epoch=2, commit_lsn=8, source_ts_us=5, now_ns=1_000_000
    )


def snapshot_record(encoder: TableEncoder, line: bytes) -> tuple[bytes, bytes]:
    """Key and value of a row of a snapshot."""
    envelope, (key, row) = snapshot(encoder), encoder.snapshot_line(line)
    return key, envelope.prefix + row + envelope.suffix


def test_a_snapshot_record_says_where_it_stands() -> None:
    encoder = compile_table(w.table(), name="100%", database="%d", masks=NO_MASKS)
    _, value = snapshot_record(encoder, b"1\tx")
    found = json.loads(value)
    assert (found["op"], found["before"], found["after"]) == ("r", None, {"id": 1, "note": "x"})
    source = found["source"]
    assert (source["name"], source["db"], source["snapshot"]) == ("100%", "%d", "true")
    assert (source["sequence"], source["lsn"], source["txId"]) == ('[null,"8"]', 8, None)
    assert (source["epoch"], source["commit_lsn"], source["tx_seq"]) == (2, 8, 0)
    assert record_headers(Position(2, 8, 0), "r", 3) == [
        ("pos", b"00000002000000000000000800000000"), ("op", b"r"), ("ver", b"3")
    ]  # fmt: skip
