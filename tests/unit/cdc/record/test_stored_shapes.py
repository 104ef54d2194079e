"""Stored shapes and documents, member by member: what is read, what is refused, and with which sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest

from cdc.process.errors import DamagedError, FormatError
from cdc.record.documents import reading, record_of, require_format
from cdc.record.progress import Progress
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.state import (
    CommandState,
    PartitionsState,
    ReadingState,
    RequestState,
    SnapshotState,
    requests_of,
    what_of,
)

PLACE = "0" * 31 + "7"
"""A position as text."""
SHAPE: dict[str, Any] = {
    "format": 1, "table": "public.order items", "version": 3, "schema": "public", "name": "order items",
    "topic": "shop.public.order_items", "oid": 7, "encoding": "readable", "identity": "default", "columns": [],
}  # fmt: skip
READING: dict[str, Any] = {"format": 1, "id": "a", "table": "public.t", "serial": 5, "epoch": 1}


def shape(**members: Any) -> TableSchema:
    return TableSchema.from_json(orjson.dumps(SHAPE | members))


def column(kind: str, typmod: int = -1, *, name: str = "c", place: int | None = None) -> Column:
    return Column(name=name, attnum=1, type=kind, type_oid=1, kind=kind, typmod=typmod, key_position=place)


def progress(**members: Any) -> Progress:
    return Progress.from_json(orjson.dumps({"format": 1, "epoch": 1, "lsn": 8, **members}))


@pytest.mark.parametrize("encoding", ["readable", "debezium"])
@pytest.mark.parametrize("identity", ["default", "full", "index", "nothing"])
def test_each_encoding_and_identity_is_read_and_written(encoding: str, identity: str) -> None:
    found = shape(encoding=encoding, identity=identity)
    assert found.identity is Identity(identity)
    written = orjson.loads(found.to_json())
    assert (written["encoding"], written["identity"]) == (encoding, identity)


def test_a_shape_that_says_little_has_plain_columns() -> None:
    found = shape(columns=[{"name": "n", "attnum": 1, "type": "int4", "type_oid": 23, "kind": "int4"}])
    (only,) = found.columns
    assert found.deferrable_key is False
    assert (only.array, only.typmod, only.nullable, only.key_position, only.generated) == (False, -1, True, None, False)


def test_a_version_of_a_shape_has_a_key_of_its_own() -> None:
    assert orjson.loads(shape().topic_key()) == {"table": "public.order items", "version": 3}
    assert shape(version=4).topic_key() != shape().topic_key()


@pytest.mark.parametrize(
    ("kind", "typmod", "precision"),
    [
        ("varchar", 14, 10), ("bpchar", 14, 10), ("timestamp", 0, 0), ("timestamptz", 0, 0), ("time", 6, 6),
        ("numeric", (10 << 16 | 2) + 4, 10), ("varchar", -1, None), ("varbit", 1, 1),
    ],
)  # fmt: skip
def test_a_length_or_fraction_is_what_was_declared(kind: str, typmod: int, precision: int | None) -> None:
    assert column(kind, typmod).precision == precision


@pytest.mark.parametrize("kind", ["varchar", "timestamp", "interval", "bit"])
def test_a_scale_is_for_numbers_with_digits_alone(kind: str) -> None:
    assert column(kind, 6).scale is None
    assert column("numeric", (10 << 16 | 2) + 4).scale == 2


def test_a_key_counted_from_nought_stands_in_its_order() -> None:
    """Postgres's own columns are counted so: the first is 0, wherever it stands in the record."""
    found = replace(shape(), columns=(column("int4", name="b", place=1), column("int4", name="a", place=0)))
    assert [one.name for one in found.key] == ["a", "b"]


@pytest.mark.parametrize("alike", [[("int2", -1), ("int4", -1), ("int8", -1)], [("text", -1), ("varchar", 14)]])
def test_a_key_whose_values_stay_written_alike_stays(alike: list[tuple[str, int]]) -> None:
    forms = {replace(shape(), columns=(column(*one, place=0),)).key_form for one in alike}
    assert len(forms) == 1


def test_a_key_whose_values_are_written_otherwise_does_not_stay() -> None:
    kinds = [("int4", -1), ("text", -1), ("bpchar", 14), ("bpchar", 15), ("numeric", -1)]
    forms = {replace(shape(), columns=(column(*one, place=0),)).key_form for one in kinds}
    assert len(forms) == len(kinds)


@pytest.mark.parametrize("wrong", [7, "id", None, ["id"]])
def test_a_column_that_is_no_object_is_damage(wrong: object) -> None:
    with pytest.raises(DamagedError, match=r"the schema topic cannot be read: an object was expected$"):
        shape(columns=[wrong])


@pytest.mark.parametrize("found", [True, False, 0, -1, "1", None, 1.0])
def test_a_format_that_counts_nothing_is_damage(found: object) -> None:
    with pytest.raises(DamagedError, match=r"the schema topic has a format that is no number from 1 on$"):
        shape(format=found)


def test_one_format_is_read_and_no_other() -> None:
    require_format(3, "a note", 3)
    for other in (1, 2, 4):
        with pytest.raises(FormatError, match=rf"^a note has the format {other}, and this Headrace reads 3 alone$"):
            require_format(other, "a note", 3)


@pytest.mark.parametrize("wrong", [[], [["16400", 9]], "x", 7, None])
def test_a_list_or_a_value_is_no_mapping(wrong: object) -> None:
    assert PartitionsState.from_json(b'{"format":1,"table":"public.t","links":{"7":9}}').links == {"7": 9}
    with pytest.raises(DamagedError, match=r"its member links has another type than expected$"):
        PartitionsState.from_json(orjson.dumps({"format": 1, "table": "public.t", "links": wrong}))


@pytest.mark.parametrize("wrong", [{}, {"public.t": 1}, "public.t", 7, None])
def test_a_mapping_or_a_value_is_no_list(wrong: object) -> None:
    sound = {"format": 1, "epoch": 1, "state": "running", "consistent_point": 8, "last_cut_lsn": 8}
    assert SnapshotState.from_json(orjson.dumps({**sound, "tables": ["public.t"]})).tables == ["public.t"]
    with pytest.raises(DamagedError, match=r"its member tables has another type than expected$"):
        SnapshotState.from_json(orjson.dumps({**sound, "tables": wrong}))


def test_progress_that_runs_ahead_reads_back() -> None:
    found = Progress(epoch=1, lsn=8, offsets={"t": {0: 5}, "empty": {}}, ahead={"t": {0: PLACE, 11: PLACE}})
    assert Progress.from_json(found.to_json()) == found


@pytest.mark.parametrize("wrong", [{"x": 1}, {"-1": 1}, {"0": "1"}, {"0": True}, {"0": None}, {"0": 1, "1": 1.5}])
def test_offsets_by_anything_but_numbers_are_damage(wrong: dict[str, object]) -> None:
    with pytest.raises(DamagedError, match=r"its member offsets has another type than expected$"):
        progress(offsets={"t": wrong})


@pytest.mark.parametrize("partition", ["x", "-1", "", "1.0", "\N{ARABIC-INDIC DIGIT THREE}", "\N{SUPERSCRIPT TWO}"])
def test_a_partition_that_is_no_plain_number_is_damage(partition: str) -> None:
    assert progress(ahead={"t": {"3": PLACE}}).ahead == {"t": {3: PLACE}}
    with pytest.raises(DamagedError, match=r"its member ahead has another type than expected$"):
        progress(ahead={"t": {partition: PLACE}})


def test_a_share_may_be_written_without_a_fraction() -> None:
    found = ReadingState.from_json(orjson.dumps({**READING, "share": 1}))
    assert isinstance(found.share, float)
    assert found.share == 1


@pytest.mark.parametrize("wrong", ["0.5", "x", True, None, []])
def test_a_share_that_is_no_number_is_damage(wrong: object) -> None:
    with pytest.raises(DamagedError, match=r"its member share has another type than expected$"):
        ReadingState.from_json(orjson.dumps({**READING, "share": wrong}))


@dataclass(frozen=True)
class _Either:
    """A record with a member of one of two types."""

    found: int | str


def test_null_stands_only_where_a_member_may_be_absent() -> None:
    assert [record_of(_Either, {"found": one}, "a note").found for one in (7, "x")] == [7, "x"]
    with pytest.raises(DamagedError, match=r"^a note cannot be read: its member found has another type than expected$"):
        record_of(_Either, {"found": None}, "a note")


def test_a_document_that_is_refused_is_not_quoted() -> None:
    """A damaged document may hold a value of a row, and errors go to logs."""
    with pytest.raises(DamagedError) as refused:
        shape(identity="4111-1111")
    assert refused.value.message == "a table's shape in the schema topic cannot be read"
    with pytest.raises(DamagedError) as refused, reading("a note"):
        int("4111-1111")
    assert refused.value.message == "a note cannot be read: invalid literal for int() with base 10"
    with pytest.raises(DamagedError) as refused, reading("a note"):
        raise ValueError('the row "4111-1111" of "Ann" is odd')
    assert refused.value.message == "a note cannot be read: the row"


def test_what_a_damaged_document_says_is_cut_short() -> None:
    with pytest.raises(DamagedError) as refused, reading("a note"):
        raise ValueError("w" * 10_000)
    assert refused.value.message == "a note cannot be read: " + "w" * 200


@pytest.mark.parametrize("key", [b"", b"\xff", b"{", b"7", b"[]", b"{}", b'{"what":7}'])
def test_a_key_of_others_names_no_kind_of_document(key: bytes) -> None:
    assert what_of(key) == ""


def test_a_command_counts_for_the_request_it_was_given_for() -> None:
    """Asked anew under the same id, a request is not held back by what was said of the one before."""
    asked = RequestState(id="a", table="public.t", after_lsn=1, reason="why", serial=5)
    for serial, state in ((5, "paused"), (4, "asked"), (6, "asked")):
        command = CommandState(id="a", serial=serial, state="paused")
        documents = {asked.key(): asked.to_json(), command.key(): command.to_json()}
        assert [one.state for one in requests_of(documents)] == [state]


def test_a_request_that_cannot_be_read_hides_no_other() -> None:
    asked = RequestState(id="a", table="public.t", after_lsn=1, reason="why")
    documents = {
        b'{"what":"request","id":"b"}': b"{",
        b'{"what":"request","id":"c"}': orjson.dumps({**orjson.loads(asked.to_json()), "format": 1_000}),
        asked.key(): asked.to_json(),
    }
    assert requests_of(documents) == [asked]


@pytest.mark.parametrize(
    ("state", "over"),
    [("waiting", False), ("running", False), ("paused", False), ("done", True), ("failed", True), ("cancelled", True)],
)
def test_a_reading_is_over_once_nothing_more_is_read(state: str, over: bool) -> None:
    assert ReadingState.from_json(orjson.dumps({**READING, "state": state})).over is over
