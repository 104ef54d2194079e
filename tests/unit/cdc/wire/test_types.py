"""A type is one row: every part that treats types differently has each kind of the table, and no kind of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from cdc.operate.handover_rules import _BY_VALUE, _OTHERWISE, _SAME_BYTES
from cdc.record.schema import Column, Encoding, Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.views.sql_types import _GROUPS as VIEW_GROUPS
from cdc.views.sql_types import PRINTED, UNCARRIED
from cdc.wire.canonical import CanonicalTable
from cdc.wire.debezium.connect_types import _KINDS as READ_FROM_DEBEZIUM
from cdc.wire.envelope import may_be_unavailable
from cdc.wire.plain import PlainTable
from cdc.wire.types import (
    BY_KIND,
    CATALOG_KINDS,
    ENUM,
    EXTENSION_KINDS,
    FAMILIES,
    OTHER,
    SPELLED,
    Canonical,
    Family,
    Plain,
)
from connectors.postgres.assembly.pending_records import placeholder
from connectors.postgres.encoding.encoder import Type, resolve
from connectors.postgres.encoding.wire_values import _READABLE, _SAME, codec
from sinks.search.search_mapping import field_mapping
from sinks.sql.sql_natives import _FITS as NATIVE_TEXTS
from sinks.warehouse.warehouse_columns import arrow_type, typed

ROOT = Path(__file__).parents[4]
_JSON: dict[Plain, tuple[type, ...]] = {
    Plain.BOOLEAN: (bool,),
    Plain.INTEGER: (int,),
    Plain.FLOAT: (int, float, str),
    Plain.TEXT: (str, bool),
    Plain.NESTED: (dict, list),
    Plain.OBJECT: (dict,),
    Plain.VECTOR: (list,),
}


def column(kind: str, *, array: bool = False) -> Column:
    typmod = BY_KIND[kind].example.typmod
    return Column(name="a", attnum=1, type=kind, type_oid=0, kind=kind, array=array, typmod=typmod)


def every_kind() -> list[str]:
    return [name for family in FAMILIES for name in family.names]


def table(kind: str, encoding: Encoding) -> TableSchema:
    return TableSchema(
        table=TableName("public", "t"),
        topic="shop.public.t",
        version=1,
        oid=1,
        encoding=encoding,
        identity=Identity.DEFAULT,
        columns=(column(kind),),
    )


def plain(family: Family, encoding: Encoding) -> bytes:
    wire = family.example.readable if encoding == "readable" else family.example.debezium
    return PlainTable(table(family.names[0], encoding)).row(b'{"a":%b}' % wire.encode())


def resolved(kind: str, *, owned: bool = True) -> str:
    extension = kind if kind in EXTENSION_KINDS and owned else None
    schema = "public" if kind in EXTENSION_KINDS or kind in (ENUM, OTHER) else "pg_catalog"
    found = Type(
        oid=7, name=kind, schema=schema, kind="e" if kind == ENUM else "b", base=0, typmod=-1, element=0,
        extension=extension,
    )  # fmt: skip
    return resolve(7, -1, {7: found}).kind


def canonical(kind: str) -> object:
    row = plain(BY_KIND[kind], "readable")
    return CanonicalTable(table(kind, "readable")).row(row) == CanonicalTable(table(kind, "debezium")).row(
        plain(BY_KIND[kind], "debezium")
    )


def carried_as_text(kind: str) -> bool:
    """A view passes a value on as it stands on the wire: that has to be what Postgres prints."""
    example = BY_KIND[kind].example
    return bool(orjson.loads(example.readable) == example.text)


CONSUMERS: dict[str, Callable[[str], object]] = {
    "catalog (connectors/postgres/encoding/encoder)": lambda kind: resolved(kind) == kind,
    "encoder, readable (connectors/postgres/encoding/wire_values)": lambda kind: (
        codec(column(kind), "readable").fast.pattern
    ),
    "encoder, debezium (connectors/postgres/encoding/wire_values)": lambda kind: (
        codec(column(kind), "debezium").fast.pattern
    ),
    "an array's encoder (connectors/postgres/encoding/wire_values)": lambda kind: (
        codec(column(kind, array=True), "readable").encode
    ),
    "unchanged values (cdc/wire/envelope)": lambda kind: may_be_unavailable(column(kind)) != BY_KIND[kind].fixed,
    "placeholder (connectors/postgres/assembly/pending_records)": lambda kind: orjson.loads(placeholder(column(kind))),
    "views (cdc/views/sql_types)": lambda kind: kind in {*VIEW_GROUPS, *UNCARRIED, *PRINTED} or carried_as_text(kind),
    "search (sinks/search/search_mapping)": lambda kind: field_mapping(column(kind), "object")["type"],
    "warehouse (sinks/warehouse/warehouse_columns)": lambda kind: isinstance(arrow_type(column(kind)), pa.DataType),
    "keys of two writers (cdc/operate/handover_rules)": lambda kind: kind in {*_SAME_BYTES, *_BY_VALUE, *_OTHERWISE},
}
UNFIXED = """
    text varchar bpchar xml citext numeric bytea bit varbit json jsonb hstore inet cidr tsvector ltree path polygon
    int4range int8range numrange tsrange tstzrange daterange vector halfvec sparsevec other
"""
"""Types whose ``typlen`` in pg_type is -1: Postgres stores a long value out of line, and an update leaves it out."""
EXTENSIONS = {"citext", "ltree", "hstore", "vector", "halfvec", "sparsevec"}
LISTS = {
    "cdc/operate/forget": "kinds whose text in the stores has a form; a key of another text is refused",
    "cdc/operate/handover_rules": "a consumer above",
    "cdc/record/schema": "kinds that a key may change between; others are another key",
    "cdc/views/conversions": "casts of SQL; a view with another is refused",
    "cdc/views/decimals": "ranges of the integers",
    "cdc/views/functions": "arguments of functions; a view with another is refused",
    "spark/streams/stream_rows": "kinds that Spark's types are, of a stream's result",
    "connectors/views/pgsync_schema": "kinds of text, whose order a server's locale may change",
    "cdc/views/sql_types": "a consumer above",
    "cdc/wire/plain": "readers of Debezium's numbers; other kinds are alike in both encodings",
    "connectors/postgres/server/cut_reader": "keys that an index reads by; others are read by a scan",
    "connectors/postgres/assembly/pending_records": "placeholders that are numbers",
    "connectors/postgres/server/reselect": "types of text that a column may change between",
    "connectors/postgres/encoding/wire_values": "a consumer above",
    "sinks/cache/cached_values": "types of Python that a reader of the cache gets; others are plain",
    "sinks/sql/sql_natives": "types of Postgres that a warehouse on Postgres keeps",
    "connectors/streams/stream_histories": "keys whose equal values have several texts; a stream is not joined by them",
    "sinks/warehouse/warehouse_rows": "kinds whose plain value is text, and is none in the warehouse",
}
"""The modules with a list of three or more kinds of their own: why the table cannot give it, and what becomes of a kind
that is not on it. Look through them when you add a type."""


def kinds_listed(tree: ast.AST) -> Iterator[set[str]]:
    """The literal collections of a module, also those written as one text to be split: the kinds in each."""
    for node in ast.walk(tree):
        parts: Sequence[ast.expr | None] = ()
        if isinstance(node, ast.Dict):
            parts = node.keys
        elif isinstance(node, ast.Set | ast.Tuple | ast.List):
            parts = node.elts
        words = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and set(node.value.split()) <= BY_KIND.keys():
            words = set(node.value.split())
        yield words & BY_KIND.keys()


def quoted(code: str) -> set[str]:
    """The words between quotation marks."""
    return {word for text in re.findall(r"\"([^\"]*)\"", code) for word in text.split()}


def test_every_module_with_a_list_of_kinds_is_named() -> None:
    found = set()
    for package in ("cdc", "connectors", "snapshot", "sinks", "spark"):
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT).with_suffix("").as_posix()
            code = path.read_text(encoding="utf-8")
            if name == "cdc/wire/types" or len(BY_KIND.keys() & quoted(code)) < 3:
                continue
            if any(len(kinds) >= 3 for kinds in kinds_listed(ast.parse(code))):
                found.add(name)
    assert found == LISTS.keys()


@pytest.mark.parametrize("file", sorted({consumer.partition("(")[2].rstrip(")") for consumer in CONSUMERS}))
def test_the_file_of_each_part_is_there(file: str) -> None:
    assert (ROOT / f"{file}.py").is_file()


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_each_part_knows_every_kind(consumer: str) -> None:
    assert [kind for kind in every_kind() if not CONSUMERS[consumer](kind)] == []


def test_h38_only_types_without_a_fixed_length_may_be_left_out() -> None:
    assert {kind for kind in every_kind() if may_be_unavailable(column(kind))} == set(UNFIXED.split())
    assert all(may_be_unavailable(column(kind, array=True)) for kind in every_kind())


def test_a_type_of_an_extension_counts_where_it_owns_it() -> None:
    """Anybody may name a type hstore."""
    assert {kind for kind in every_kind() if resolved(kind, owned=False) == OTHER} == {*EXTENSIONS, OTHER}


def test_a_kind_stands_in_one_row() -> None:
    names = every_kind()
    assert len(names) == len(set(names)) > 50


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.names[0])
def test_the_example_is_what_is_written(family: Family) -> None:
    text = family.example.text.encode()
    assert codec(column(family.names[0]), "readable").encode(text).decode() == family.example.readable
    assert codec(column(family.names[0]), "debezium").encode(text).decode() == family.example.debezium


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.names[0])
def test_the_plain_value_is_as_the_row_says(family: Family) -> None:
    value = orjson.loads(plain(family, "readable"))["a"]
    assert isinstance(value, _JSON[family.plain])
    if family.names[0] != "interval":  # Debezium's microseconds know no months
        assert plain(family, "debezium") == plain(family, "readable")
        assert canonical(family.names[0])


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.names[0])
def test_the_warehouse_takes_the_plain_value(family: Family) -> None:
    kind = arrow_type(column(family.names[0]))
    array, outside = typed([orjson.loads(plain(family, "readable"))["a"]], kind)
    assert (array.null_count, outside) == (0, {})
    if family.names[0] not in ("numeric", "bit", "vector"):  # which depend on the column, as their words say
        assert {str(arrow_type(column(name))) for name in family.names} == {family.warehouse}


@pytest.mark.parametrize(
    ("kind", "type_"),
    [("bool", bool), ("int4", int), ("float8", float), ("money", Decimal), ("bytea", bytes), ("date", date),
     ("timestamp", datetime), ("text", str), ("uuid", str), ("vector", list)],
)  # fmt: skip
def test_a_typed_column_holds_a_typed_value(kind: str, type_: type) -> None:
    value = orjson.loads(plain(BY_KIND[kind], "readable"))["a"]
    array, _ = typed([value], arrow_type(column(kind)))
    assert type(array[0].as_py()) is type_


def test_encoders_are_for_kinds_of_the_table() -> None:
    """No list of a part has a kind that the table lacks."""
    for written in (_SAME, _READABLE):
        assert set(written) <= CATALOG_KINDS | EXTENSION_KINDS
    assert set(BY_KIND) >= READ_FROM_DEBEZIUM
    assert set(BY_KIND) >= NATIVE_TEXTS.keys()
    assert set(BY_KIND) >= VIEW_GROUPS.keys() - {"record", "unknown"}


def test_every_rule_of_comparing_is_used() -> None:
    assert {family.canonical for family in FAMILIES} == set(Canonical)


@pytest.mark.parametrize("kind", sorted(SPELLED))
def test_w1_a_kind_of_many_values_of_one_form_is_text_in_keys(kind: str) -> None:
    extension = kind if kind in EXTENSION_KINDS else None
    schema = "public" if extension else "pg_catalog"
    found = {7: Type(oid=7, name=kind, schema=schema, kind="b", base=0, typmod=-1, element=0, extension=extension)}
    assert resolve(7, 3, found) == (kind, False, 3)
    assert resolve(7, 3, found, keyed=True) == (OTHER, False, -1)
