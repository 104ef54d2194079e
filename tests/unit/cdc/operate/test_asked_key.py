"""Keys as people write them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.operate.forget import asked_key
from cdc.process.errors import UsageError
from cdc.record.schema import Mask, TableSchema
from cdc.wire.plain import store_key
from tests.unit.connectors.postgres import written as w

NUMBER = w.table(w.column("id", "int4", 0), name="t")
TEXT = w.table(w.column("email", "text", 0), name="t")
PAIR = w.table(w.column("id", "int4", 0), w.column("region", "text", 1), name="t")
UUID = w.table(w.column("id", "uuid", 0), name="t")


@pytest.mark.parametrize(
    ("shape", "typed", "text"),
    [
        (NUMBER, "42", "42"),
        (NUMBER, " 042", "42"),
        (NUMBER, '{"id": 42}', "42"),
        (TEXT, "Jane Doe", "Jane Doe"),
        (TEXT, "a:b", "a%3Ab"),
        (TEXT, "a%3Ab", "a%3Ab"),
        (TEXT, "50%", "50%25"),
        (TEXT, '{"email":"a:b"}', "a%3Ab"),
        (TEXT, '{"other":1}', '{"other"%3A1}'),
        (TEXT, "{not json", "{not json"),
        (TEXT, "", ""),
        (PAIR, "7:eu", "7:eu"),
        (PAIR, "7:a%3Ab", "7:a%3Ab"),
        (PAIR, '{"region":"eu","id":7}', "7:eu"),
        (UUID, "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ],
)
def test_a_key_is_read_as_the_stores_have_it(shape: TableSchema, typed: str, text: str) -> None:
    assert asked_key(typed, shape) == text


def of(kind: str) -> TableSchema:
    return w.table(w.column("v", kind, 0), name="t")


@pytest.mark.parametrize(
    ("kind", "typed", "text"),
    [
        ("date", "2016-11-04", "2016-11-04Z"),
        ("date", "-infinity", "-infinity"),
        ("timestamp", "2016-11-04 11:51:30.12", "2016-11-04T11%3A51%3A30.12Z"),
        ("timestamptz", "2016-11-04T11:51:30.120000Z", "2016-11-04T11%3A51%3A30.120000Z"),
        ("time", "11:51:30", "11%3A51%3A30Z"),
        ("bool", "true", "true"),
        ("bytea", "AQL/", "AQL/"),
        ("numeric", "-1.10", "-1.10"),
    ],
)
def test_h305_a_key_as_psql_shows_it_is_understood(kind: str, typed: str, text: str) -> None:
    assert asked_key(typed, of(kind)) == text


@pytest.mark.parametrize(
    ("kind", "typed"),
    [
        ("date", "4.11.2016"),
        ("timestamptz", "2016-11-04 11:51:30+01"),
        ("timestamptz", "2016-11-04 11:51:30"),
        ("bool", "t"),
        ("bytea", "\\x0102"),
        ("numeric", "1,10"),
        ("timetz", "11:51"),
        ("date", '{"v": "4.11.2016"}'),
    ],
)
def test_h305_a_text_that_no_store_has_is_refused(kind: str, typed: str) -> None:
    """It would be a key that nobody knows: gone, while the row is there."""
    with pytest.raises(UsageError, match="v takes"):
        asked_key(typed, of(kind))


@pytest.mark.parametrize(
    ("shape", "typed", "words"),
    [
        (NUMBER, "seventeen", "id takes"),
        (NUMBER, '{"id": "x"}', "the columns id"),
        (PAIR, "7", "2 columns"),
        (PAIR, "7:eu:x", "2 columns"),
        (PAIR, "7:50%", "2 columns"),
        (TEXT, "a\0b", "email takes"),
        (UUID, "7", "id takes"),
        (w.table(w.column("id", "int4"), name="t"), "1", "no key"),
    ],
)
def test_a_key_that_is_none_is_refused(shape: TableSchema, typed: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refusal:
        asked_key(typed, shape)
    assert refusal.value.hint


def test_a_long_key_is_its_hash_however_it_is_typed() -> None:
    long = "x" * 600
    assert asked_key(long, TEXT) == asked_key(f'{{"email": "{long}"}}', TEXT) == store_key([long])


def test_h335_a_masked_key_is_taken_as_the_stores_have_it_alone() -> None:
    """Nothing stands under its value, and the value of a masked column is shown nowhere."""
    mask = Mask(rule="hmac:1", type="text", type_oid=25, kind="text")
    shape = replace(PAIR, columns=(PAIR.columns[0], replace(PAIR.columns[1], mask=mask)))
    hidden = "0123456789abcdef" * 4
    assert asked_key(f"7:{hidden}", shape) == f"7:{hidden}"
    assert asked_key(f'{{"id": 7, "region": "{hidden}"}}', shape) == f"7:{hidden}"
    for typed in ("7:eu", '{"id": 7, "region": "eu"}', f"7:{hidden.upper()}", f"7:{hidden}0"):
        with pytest.raises(UsageError, match="is masked") as refusal:
            asked_key(typed, shape)
        assert typed.removeprefix("7:") not in refusal.value.message
