"""Geometry, vectors, hstore and arrays, read back by hand."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.schema import Encoding
from connectors.postgres.encoding import structured_values as shapes
from connectors.postgres.encoding.wire_values import codec
from tests.unit.connectors.postgres.written import column

finite = st.floats(allow_nan=False, allow_infinity=False)
places = st.tuples(finite, finite)


def encoded(kind: str, text: str, *, array: bool = False, encoding: Encoding = "readable", typmod: int = -1) -> Any:
    return json.loads(codec(column("x", kind, array=array, typmod=typmod), encoding).encode(text.encode()))


def pair(place: tuple[float, float]) -> str:
    return f"({place[0]!r},{place[1]!r})"


def doubles(wkb: str, skip: int) -> list[tuple[float, float]]:
    raw = base64.b64decode(wkb)
    found = struct.unpack_from(f"<{(len(raw) - skip) // 8}d", raw, skip)
    return list(zip(found[::2], found[1::2], strict=True))


@given(places)
def test_a_point_has_its_numbers_and_its_binary(place: tuple[float, float]) -> None:
    found = encoded("point", pair(place))
    assert (found["x"], found["y"], found["srid"]) == (*place, None)
    assert base64.b64decode(found["wkb"]) == struct.pack("<BIdd", 1, 1, *place)
    assert list(found) == ["x", "y", "wkb", "srid"]


@given(places, places)
def test_a_box_is_a_ring_of_five(one: tuple[float, float], two: tuple[float, float]) -> None:
    found = encoded("box", pair(one) + "," + pair(two))
    (x1, y1), (x2, y2) = one, two
    assert doubles(found["wkb"], 13) == [(x1, y1), (x1, y2), (x2, y2), (x2, y1), (x1, y1)]
    assert struct.unpack_from("<BIII", base64.b64decode(found["wkb"])) == (1, 3, 1, 5)
    assert found["extensions"] == {"type": "box"}


@given(st.lists(places, min_size=1, max_size=6), st.booleans())
def test_a_path_is_a_line_that_says_whether_it_is_closed(line: list[tuple[float, float]], closed: bool) -> None:
    inner = ",".join(map(pair, line))
    found = encoded("path", f"({inner})" if closed else f"[{inner}]")
    assert doubles(found["wkb"], 9) == line
    assert struct.unpack_from("<BII", base64.b64decode(found["wkb"])) == (1, 2, len(line))
    assert found["extensions"] == {"type": "path", "closed": "true" if closed else "false"}


@given(st.lists(places, min_size=1, max_size=6))
def test_a_polygon_closes_its_ring(ring: list[tuple[float, float]]) -> None:
    found = encoded("polygon", f"({','.join(map(pair, ring))})")
    assert doubles(found["wkb"], 13) == [*ring, ring[0]]


@given(places, places)
def test_a_segment_is_a_line_of_two(one: tuple[float, float], two: tuple[float, float]) -> None:
    found = encoded("lseg", f"[{pair(one)},{pair(two)}]")
    assert (doubles(found["wkb"], 9), found["extensions"]) == ([one, two], {"type": "lseg"})


@given(places, finite)
def test_a_circle_and_a_line(center: tuple[float, float], radius: float) -> None:
    found = encoded("circle", f"<{pair(center)},{radius!r}>")
    assert (found["center"]["x"], found["center"]["y"], found["radius"]) == (*center, radius)
    assert encoded("line", f"{{{center[0]!r},{center[1]!r},{radius!r}}}") == {
        "a": center[0], "b": center[1], "c": radius
    }  # fmt: skip


def test_shapes_with_infinite_places() -> None:
    found = encoded("point", "(Infinity,NaN)")
    assert (found["x"], found["y"]) == ("Infinity", "NaN")


@pytest.mark.parametrize("kind", ["vector", "halfvec"])
@given(values=st.lists(finite, max_size=10))
def test_vectors_are_arrays(kind: str, values: list[float]) -> None:
    assert encoded(kind, "[" + ",".join(map(repr, values)) + "]") == values


@given(st.dictionaries(st.integers(1, 500), finite, max_size=6), st.integers(500, 16_000))
def test_a_sparsevec_is_its_pairs(values: dict[int, float], dimensions: int) -> None:
    text = "{" + ",".join(f"{i}:{v!r}" for i, v in sorted(values.items())) + f"}}/{dimensions}"
    assert encoded("sparsevec", text) == {
        "dimensions": dimensions,
        "vector": [[i, v] for i, v in sorted(values.items())],
    }


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
tricky = st.text('a,"\\{}; \n=>😀', max_size=8) | st.sampled_from(["NULL", "null", "", " ", "\\"])


def backslashed(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.dictionaries(texts | tricky, texts | tricky | st.none(), max_size=5))
def test_h34_hstore_is_a_string_of_json(members: dict[str, str | None]) -> None:
    text = ", ".join(f"{backslashed(k)}=>{'NULL' if v is None else backslashed(v)}" for k, v in members.items())
    found = encoded("hstore", text)
    assert isinstance(found, str)
    assert list(json.loads(found).items()) == list(members.items())


# Arrays


def printed(value: Any, delimiter: str = ",") -> str:
    """An array as Postgres prints it: quoted where it must be, or where it may be."""
    if isinstance(value, list):
        return "{" + delimiter.join(printed(v, delimiter) for v in value) + "}"
    if value is None:
        return "NULL"
    text = str(value)
    plain = text and text.upper() != "NULL" and not any(c in '{}",\\ \n\t\r\v\f' or c == delimiter for c in text)
    return text if plain else backslashed(text)


def nested(element: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(element, max_size=4) | st.lists(st.lists(element, min_size=2, max_size=2), min_size=1, max_size=3)


@given(nested(texts | tricky | st.none()))
def test_h34_arrays_of_text_of_any_shape(value: list[Any]) -> None:
    assert encoded("text", printed(value), array=True) == value


@given(nested(st.integers(-(2**31), 2**31 - 1) | st.none()))
def test_h34_arrays_of_numbers_with_nulls(value: list[Any]) -> None:
    assert encoded("int4", printed(value), array=True) == value


def test_h34_bounds_other_than_one_are_left_off() -> None:
    assert encoded("int4", "[2:4]={1,2,3}", array=True) == [1, 2, 3]
    assert encoded("int4", "[0:1][5:6]={{1,2},{3,4}}", array=True) == [[1, 2], [3, 4]]
    assert encoded("int4", "{}", array=True) == []


def test_elements_are_encoded_as_the_columns_of_their_kind() -> None:
    assert encoded("time", "{13:51:30.123456,NULL,24:00:00}", array=True, encoding="debezium") == (
        [49890123456, None, 86400000000]
    )
    assert encoded("timestamptz", '{"2016-11-04 11:51:30.1+00",infinity}', array=True, typmod=3) == (
        ["2016-11-04T11:51:30.100Z", "infinity"]
    )
    assert encoded("bytea", '{"\\\\x00ff","\\\\x"}', array=True) == ["AP8=", ""]
    assert encoded("bool", "{t,f,NULL}", array=True) == [True, False, None]
    assert [len(shape["wkb"]) for shape in encoded("box", "{(1,1),(0,0);(2,2),(1,1)}", array=True)] == [124, 124]


@pytest.mark.parametrize(
    "text", ["", "{", "{1", "{1,", "{1,}", "{,1}", "1", "{1}}", "{1}{2}", '{"a}', "{{1}", "[1:2]", "{1;2}", "{}x"]
)
def test_what_is_no_array_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        encoded("int4", text, array=True)


@pytest.mark.parametrize("text", [b"[00]", b"[01,2]", b"[-007.5]"])
def test_a_vector_with_values_that_json_lacks_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="not a number"):
        shapes.vector(text)
