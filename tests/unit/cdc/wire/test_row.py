"""The row of a record, cut out of its value or read with all of it."""

from __future__ import annotations

import pytest

from cdc.wire.envelope import row_of, row_reader

TAIL = b',"source":{"version":"1","name":"shop"},"transaction":null,"op":"u"}'
ROW = b'{"id":1,"f":1.0E10,"t":"\xc3\xa9 } \\"after\\":{"}'
"""As Postgres wrote the number: read and written again it would be another text."""


@pytest.mark.parametrize("before", [b"null", b'{"id":0}', b'{"id":0,"t":"},{"}'])
def test_a_row_is_cut_out_byte_for_byte(before: bytes) -> None:
    value = b'{"before":' + before + b',"after":' + ROW + TAIL
    assert row_reader(["id", "f", "t"])(value) == ROW
    assert row_of(value) != ROW, "read whole it is the same row in another text"


@pytest.mark.parametrize(
    "row",
    [
        b'{"p":{"x":1},"source":{"version":2},"f":1.5}',
        b'{"p":{"x":1},"after":{"x":2}}',
        b'{"p":{"x":1},"after":{"x":2},"source":{"version":2}}',
    ],
)
def test_a_row_with_columns_named_as_the_marks_is_whole(row: bytes) -> None:
    columns = [name for name in ("p", "after", "source", "f") if f'"{name}":'.encode() in row]
    for before in (b"null", row):
        assert row_reader(columns)(b'{"before":' + before + b',"after":' + row + TAIL) == row


@pytest.mark.parametrize("before", [b"null", b'{"id":0}'])
def test_a_value_with_other_members_behind_the_row_is_read(before: bytes) -> None:
    assert row_reader(["id"])(b'{"before":' + before + b',"after":{"id":1}}') == b'{"id":1}'
    assert row_reader(["id"])(b'{"before":' + before + b',"after":{"id":1},"op":"u"}') == b'{"id":1}'


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (b'{"before":{"id":1},"after":null' + TAIL, "the value holds no row"),
        (b'{"before":null,"after":null' + TAIL, "the value holds no row"),
        (b'{"before":null,"after":5' + TAIL, "the value holds no row"),
        (b"[]", "the value holds no row"),
        (b"null", "the value holds no row"),
        (b"", "the value is not JSON"),
        (b'{"before":null,"after":{"id":1}' + TAIL[:-1], "the value is not JSON"),
        (b'{"before":{"id":1},"after":{"id":1}' + TAIL[:-1], "the value is not JSON"),
        (b'{"before":{"id":1', "the value is not JSON"),
    ],
)
def test_h67_a_value_without_a_row_is_a_value_error(value: bytes, sentence: str) -> None:
    for read in (row_of, row_reader(["id"])):
        with pytest.raises(ValueError, match=f"^{sentence}$"):
            read(value)
