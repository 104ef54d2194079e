"""Strategies: tables of any kinds, and rows that Postgres could print for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cdc.record.schema import Column, Encoding, Identity, TableSchema
from tests.unit.connectors.postgres import written as w

encodings: st.SearchStrategy[Encoding] = st.sampled_from(("readable", "debezium"))
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
plain = st.text("abc xyz,.:;/%é-", max_size=20)
long_texts = st.integers(200, 700).map(lambda n: "x" * n)
integers = st.integers(-(2**31), 2**31 - 1).map(str)

VALUES: dict[str, st.SearchStrategy[str]] = {
    "int4": integers,
    "int8": st.integers(-(2**63), 2**63 - 1).map(str),
    "float8": st.sampled_from(("0", "-0", "1.5", "1e+20", "1e-07", "NaN", "Infinity", "-Infinity", "123456.789")),
    "numeric": st.sampled_from(("0", "1.10", "-99999999999999999999.000001", "NaN", "12345.67", "100")),
    "bool": st.sampled_from("tf"),
    "text": texts | plain | long_texts | st.sampled_from(("", "NULL", "\\N", "\t\n\\", '"', "%s%%")),
    "enum": plain,
    "uuid": st.uuids().map(str),
    "jsonb": st.sampled_from(('{"a": [1, "x"]}', "null", '"é 😀 \\n"', "[]")),
    "date": st.sampled_from(("2026-11-20", "0001-01-01", "infinity", "0044-03-15 BC", "10000-01-01")),
    "time": st.sampled_from(("10:11:12", "10:11:12.5", "24:00:00")),
    "timestamp": st.sampled_from(
        ("2026-11-20 10:11:12.123456", "2026-11-20 10:11:12", "-infinity", "0044-03-15 12:00:00 BC")
    ),
    "timestamptz": st.sampled_from(
        ("2026-11-20 10:11:12.123456+00", "2026-11-20 10:11:12+00", "2026-11-20 10:11:12.5+00", "infinity",
         "0044-03-15 12:00:00+00 BC", "12345-01-01 00:00:00+00")
    ),
    "interval": st.sampled_from(("P1DT2H", "PT0S", "P-1M")),
    "bytea": st.binary(max_size=12).map(lambda raw: "\\x" + raw.hex()),
    "bit": st.text("01", min_size=1, max_size=12),
    "point": st.sampled_from(("(1,2)", "(0.5,-3e+20)")),
    "money": st.sampled_from(("$1,234.56", "-$0.01")),
    "other": texts,
}  # fmt: skip
KEY_KINDS = ("int4", "int8", "text", "uuid", "numeric", "timestamptz", "bool", "date")


@st.composite
def tables(draw: st.DrawFn, *, identity: Identity | None = None) -> TableSchema:
    """Up to eight columns of any kind, one to three of them the key, in any order."""
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=0, max_size=6))
    keys = draw(st.lists(st.sampled_from(KEY_KINDS), min_size=1, max_size=3))
    shuffled = draw(st.permutations([*((kind, i) for i, kind in enumerate(keys)), *((kind, None) for kind in kinds)]))
    columns = [_column(f'c{at} "%d"', kind, key) for at, (kind, key) in enumerate(shuffled)]
    chosen = identity or draw(st.sampled_from((Identity.DEFAULT, Identity.FULL)))
    return w.table(*columns, identity=chosen, encoding=draw(encodings))


def _column(name: str, kind: str, key: int | None) -> Column:
    return w.column(name, kind, key, typmod=12 if kind == "bit" else -1)


def rows(schema: TableSchema, *, nulls: bool = True) -> st.SearchStrategy[list[Any]]:
    """A row's text values; key columns are never null."""
    return st.tuples(*(_values(column, nulls=nulls) for column in schema.columns)).map(list)


def _values(column: Column, *, nulls: bool) -> st.SearchStrategy[bytes | None]:
    found = VALUES[column.kind].map(str.encode)
    return found if column.key_position is not None or not nulls else st.none() | found
