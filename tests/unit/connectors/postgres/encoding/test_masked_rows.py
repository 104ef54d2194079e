"""Masked rows: a stream of a table with masks is the stream of a table that has the masked values in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import ConfigError, DecodeError
from cdc.record.schema import Identity, TableSchema
from cdc.record.tables_aside import CannotFollow
from cdc.settings.mask_rules import NO_MASKS, MaskKey, MaskRule, Masks
from connectors.postgres.assembly.pending_records import LATER, Undecided
from connectors.postgres.encoding.encoder import compile_table, unescape
from connectors.postgres.encoding.masked_rows import MaskedRows, MaskedValues, masked_shape
from connectors.postgres.protocol.messages import Omitted, Relation, Update
from connectors.postgres.protocol.oversized_fields import Abridged, abridged
from connectors.postgres.protocol.pgoutput import decode
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import Rows, Shapes, Stream
from tests.unit.connectors.postgres.assembly.test_aside import Noted

KEY = MaskKey("0123456789abcdef0123456789abcdef")
RULES = {"mail": MaskRule.parse("hmac"), "ssn": MaskRule.parse("drop"), "note": MaskRule.parse("truncate:3")}
MASKS = Masks({"public.orders": RULES}, KEY)
NAMES = ["id", "mail", "ssn", "note"]
COLUMNS = (w.column("id", "int4", 0), w.column("mail", "text"), w.column("ssn", "int8"), w.column("note", "text"))
PLAIN = w.table(*(replace(column, attnum=at + 1) for at, column in enumerate(COLUMNS)))
SHAPE = masked_shape(PLAIN, MASKS)
SENTINEL = b"plainest"
VALUES = (
    st.none()
    | st.just(w.u)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).map(str.encode)
)
FULL_ROWS = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).map(str.encode)


def mac(text: bytes) -> str:
    return KEY.masked(text).decode()


def masked_by_hand(values: Sequence[w.Value]) -> list[w.Value]:
    identifier, mail, _, note = values
    hidden = KEY.masked(mail) if isinstance(mail, bytes) else mail
    short = note.decode()[:3].encode() if isinstance(note, bytes) else note
    return [identifier, hidden, short]


class Announced(Shapes):
    """The plain table is announced, and its masked shape is what the source is said to have."""


def stream(shape: TableSchema = PLAIN, masks: Masks = MASKS, **more: object) -> Stream:
    masked = masked_shape(shape, masks)
    return Stream(shape, shapes=Announced(masked), masks=masks, **more)  # type: ignore[arg-type]


@given(st.lists(VALUES, min_size=4, max_size=4), st.lists(FULL_ROWS, min_size=4, max_size=4))
def test_a_masked_message_is_one_of_masked_values(new: list[w.Value], old: list[w.Value]) -> None:
    rows = MaskedRows(NAMES, SHAPE.noted_masks, MASKS, "public.orders")
    for before, marker in ((None, b""), (old, b"O"), (old, b"K")):
        start = b"U" + w.OID.to_bytes(4)
        plain = start + (marker + w.row(before) if before is not None else b"") + b"N" + w.row(new)
        hidden = start + (marker + w.row(masked_by_hand(before)) if before is not None else b"")
        hidden += b"N" + w.row(masked_by_hand(new))
        assert rows.frame(w.frame(plain, 7)) == w.frame(hidden, 7)


@given(st.lists(FULL_ROWS, min_size=3, max_size=3))
def test_a_line_of_copy_is_masked_as_the_stream_is(values: list[bytes | None]) -> None:
    encoder = compile_table(SHAPE, name="shop", database="app", masks=MASKS)
    line = b"\t".join(copied(value) for value in [b"1", *values[:2]]) + b"\n"
    _, row = encoder.snapshot_line(line)
    read = stream().transaction(0x100, w.insert(b"1", values[0], b"9", values[1]))
    assert json.loads(row) == read[0].after


def copied(value: bytes | None) -> bytes:
    if value is None:
        return rb"\N"
    escapes = {b"\\": rb"\\", b"\b": rb"\b", b"\f": rb"\f", b"\n": rb"\n", b"\r": rb"\r", b"\t": rb"\t", b"\v": rb"\v"}
    return b"".join(escapes.get(bytes((byte,)), bytes((byte,))) for byte in value)


@given(FULL_ROWS)
def test_a_masked_field_of_copy_is_read_back(value: bytes | None) -> None:
    values = MaskedValues(SHAPE, MASKS)
    _, mail, note = values.line(b"\t".join([b"1", copied(value), copied(value)]), unescape).split(b"\t")
    expected = masked_by_hand([b"1", value, None, value])
    assert [unescape(mail), unescape(note)] == expected[1:]


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_broken_message_is_refused_and_not_quoted(cut: int) -> None:
    rows = MaskedRows(NAMES, SHAPE.noted_masks, MASKS, "public.orders")
    frame = w.frame(w.insert(b"1", SENTINEL, SENTINEL, SENTINEL), 7)
    with pytest.raises(DecodeError) as refused:
        rows.frame(frame[:-cut])
    assert SENTINEL.decode() not in refused.value.message
    with pytest.raises(DecodeError):
        rows.frame(frame + b"?")


def test_null_stays_null_and_a_dropped_column_is_none() -> None:
    (read,) = stream().transaction(0x100, w.insert(b"1", None, None, None))
    assert read.after == {"id": 1, "mail": None, "note": None}


def test_every_kind_of_change_is_masked() -> None:
    full = replace(PLAIN, identity=Identity.FULL)
    seen = stream(full)
    one, other = [b"1", b"a@b", b"9", b"abcdef"], [b"1", b"c@d", b"8", b"ABCDEF"]
    update, delete, tombstone = seen.transaction(0x100, w.update(other, old=one), w.delete(old=other))
    before = {"id": 1, "mail": mac(b"a@b"), "note": "abc"}
    after = {"id": 1, "mail": mac(b"c@d"), "note": "ABC"}
    assert (update.before, update.after) == (before, after)
    assert (delete.before, delete.after, tombstone.value) == (after, None, None)


def test_a_masked_key_moves_as_a_key() -> None:
    plain = w.table(w.column("mail", "text", 0), w.column("n", "int4"))
    masks = Masks({"public.orders": {"mail": RULES["mail"]}}, KEY)
    seen = stream(plain, masks)
    delete, tombstone, create = seen.transaction(0x100, w.update([b"b", b"1"], key=[b"a", None]))
    assert [delete.key, tombstone.key, create.key] == [{"mail": mac(b"a")}] * 2 + [{"mail": mac(b"b")}]
    assert json.loads(delete.headers["__debezium.newkey"]) == create.key
    assert json.loads(create.headers["__debezium.oldkey"]) == delete.key


def test_a_value_that_is_looked_up_is_masked() -> None:
    head = Rows({(b"1",): [b"1", b"a@b", b"abcdef"]})
    (read,) = stream(head=head).transaction(0x100, w.update([b"1", w.u, b"9", w.u]))
    assert read.after == {"id": 1, "mail": mac(b"a@b"), "note": "abc"}


def test_a_masked_key_is_never_looked_up() -> None:
    shape = w.table(w.column("mail", "text", 0), w.column("note", "text"), identity=Identity.FULL)
    masks = Masks({"public.orders": {"mail": RULES["mail"]}}, KEY)
    with pytest.raises(CannotFollow, match="its key is masked"):
        stream(shape, masks).transaction(0x100, w.update([b"a", w.u], old=[b"a", None]))


def test_a_value_left_out_for_its_size_stays_so() -> None:
    payload = w.update([b"1", b"m" * 100_000, b"s" * 100_000, b"abcdef"])
    frame = abridged(w.frame(payload, 7), 1000)
    masked = MaskedRows(NAMES, SHAPE.noted_masks, MASKS, "public.orders").frame(frame)
    assert isinstance(masked, Abridged)
    message = decode(masked[25:], abridged=True)
    assert isinstance(message, Update)
    assert [type(value) for value in message.new] == [bytes, Omitted, bytes]


def test_an_encoder_needs_the_masks_that_are_set() -> None:
    with pytest.raises(ConfigError, match="mail, note, ssn"):
        compile_table(PLAIN, name="shop", database="app", masks=MASKS)
    with pytest.raises(ConfigError, match="need a key"):
        compile_table(SHAPE, name="shop", database="app", masks=NO_MASKS)


class Hidden(Shapes):
    """Nothing can be read while ``hidden``."""

    hidden = True

    def schema(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema | Undecided | None:
        return LATER if self.hidden else super().schema(relation, xid, timeout_s)


def test_h286_an_announcement_that_must_not_be_kept_is_refused() -> None:
    """It joins those that wait, whose rows were without masks until then."""
    noted, gated = Noted(), Hidden(PLAIN)

    def kept(relation: Relation) -> None:
        raise CannotFollow("it has masks now", tables=[PLAIN.table])

    made = Stream(PLAIN, shapes=gated, masks=NO_MASKS, asides=noted, kept=kept)
    made.transaction(0x100, w.insert(b"1", b"m", b"9", b"n"))
    made.transaction(0x200, w.relation(PLAIN), w.insert(b"2", b"m", b"9", b"n"))
    assert [table for table, _, _ in noted.noted] == ["public.orders"]
    gated.hidden = False
    assert made.resume() == []
